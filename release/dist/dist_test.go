package dist

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	spdx "github.com/spdx/tools-golang/json"

	"lockstep.dev/lockstep/test/expect"
)

var released = []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"}

const version = "v1.2.3"

// options builds small programs for each platform, which stand in for Lockstep's, whose builds take minutes.
func options(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example.com/program\n\ngo 1.26\n")
	for _, program := range programs {
		write(t, filepath.Join(dir, program, "main.go"), "package main\n\nfunc main() { println(\"here is "+program+"\") }\n")
	}
	write(t, filepath.Join(dir, "image", "index.json"), "{}")
	write(t, filepath.Join(dir, "image", "blobs", "sha256", "0"), "blob")
	write(t, filepath.Join(dir, "LICENSE"), "the license")
	o := Options{
		Version: version, Created: time.Unix(1_700_000_000, 0).UTC(), URL: "https://example.com/" + version,
		Image: filepath.Join(dir, "image"), License: filepath.Join(dir, "LICENSE"),
	}
	for _, platform := range released {
		to := filepath.Join(dir, "programs", platform)
		o.Programs = append(o.Programs, to)
		system, architecture, _ := strings.Cut(platform, "_")
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", to+"/", "./lockstep", "./"+plugin)
		build.Dir = dir
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture, "GOFLAGS=")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return o
}

func write(t *testing.T, path, text string) {
	t.Helper()
	expect.OK(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	return expect.Value(os.ReadFile(path))(t)
}

// newKey returns a private key, and the path of its public one.
func newKey(t *testing.T) (private *ecdsa.PrivateKey, public string) {
	t.Helper()
	private = expect.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	open := expect.Value(x509.MarshalPKIXPublicKey(&private.PublicKey))(t)
	public = filepath.Join(t.TempDir(), "lockstep.pub")
	write(t, public, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: open})))
	return private, public
}

// make writes a signed release to a new directory.
func (o Options) make(t *testing.T, private *ecdsa.PrivateKey) string {
	t.Helper()
	dir := t.TempDir()
	expect.OK(t, errors.Join(o.Write(dir), Seal(dir, private)))
	return dir
}

// The programs are built twice as well, in other directories.
func TestTheSameSourcesGiveTheSameRelease(t *testing.T) {
	private, _ := newKey(t)
	one, other := options(t).make(t, private), options(t).make(t, private)
	made, err := os.ReadDir(one)
	expect.Must(t, err == nil && len(made) == 2*len(programs)*len(released)+4, "%d files, %v", len(made), err)
	if out, err := exec.Command("diff", "-r", one, other).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAnArchiveHoldsAProgramAndTheLicense(t *testing.T) {
	private, _ := newKey(t)
	o := options(t)
	dir := o.make(t, private)
	for _, from := range o.Programs {
		for _, program := range programs {
			name := filepath.Join(dir, program+"_"+version+"_"+filepath.Base(from))
			compressed := expect.Value(gzip.NewReader(bytes.NewReader(read(t, name+".tar.gz"))))(t)
			held := read(t, filepath.Join(from, program))
			checkTar(t, compressed, map[string][]byte{"LICENSE": read(t, o.License), program: held})
			bill := expect.Value(spdx.Read(bytes.NewReader(read(t, name+".spdx.json"))))(t)
			subject := bill.Packages[0]
			if subject.PackageChecksums[0].Value != fmt.Sprintf("%x", sha256.Sum256(held)) || len(bill.Packages) != 3 {
				t.Errorf("%s: %+v and %d more packages", name, subject, len(bill.Packages)-1)
			}
		}
	}
	checkTar(t, bytes.NewReader(read(t, filepath.Join(dir, "lockstep_"+version+"_image.tar"))),
		map[string][]byte{"index.json": []byte("{}"), "blobs/sha256/0": []byte("blob")})
}

func checkTar(t *testing.T, from io.Reader, want map[string][]byte) {
	t.Helper()
	files := tar.NewReader(from)
	for range len(want) {
		header := expect.Value(files.Next())(t)
		text, err := io.ReadAll(files)
		expect.That(t, err == nil && bytes.Equal(text, want[header.Name]), "%s: %v", header.Name, err)
		executable := slices.Contains(programs, header.Name)
		if header.Uid != 0 || header.Uname != "" || header.ModTime.Unix() != 1_700_000_000 || (header.Mode == 0o755) != executable {
			t.Errorf("%+v", header)
		}
	}
	_, err := files.Next()
	expect.That(t, err == io.EOF, "the archive has more: %v", err)
}

// verify runs the commands of the page in a directory, with a public key.
func verify(t *testing.T, dir, public string) error {
	t.Helper()
	if err := os.CopyFS(dir, os.DirFS(filepath.Dir(public))); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	script := exec.Command("sh", "-ec", blockWith(t, "openssl dgst"))
	script.Dir = dir
	out, err := script.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// blockWith returns the command block of the page that contains a text.
func blockWith(t *testing.T, text string) string {
	t.Helper()
	for _, block := range strings.Split(string(read(t, "../../docs/how-to/verify-a-release.md")), "\n\n") {
		if strings.HasPrefix(block, "    ") && strings.Contains(block, text) {
			return block
		}
	}
	t.Fatalf("no block of the page has %q", text)
	return ""
}

func TestAReleaseIsVerified(t *testing.T) {
	for _, tool := range []string{"openssl", "sha256sum"} {
		if _, err := exec.LookPath(tool); err != nil {
			expect.Must(t, os.Getenv("CI") == "", "%v", err)
			t.Skipf("%s is not installed: the commands of the page do not run", tool)
		}
	}
	private, public := newKey(t)
	_, another := newKey(t)
	made := options(t).make(t, private)
	archived := "lockstep_" + version + "_linux_amd64.tar.gz"
	for _, c := range []struct {
		name   string
		change func(dir string) error
		key    string
		ok     bool
	}{
		{"as made", func(string) error { return nil }, public, true},
		{"one file alone", func(dir string) error {
			return os.Remove(filepath.Join(dir, "lockstep_"+version+"_darwin_arm64.tar.gz"))
		}, public, true},
		{"another key", func(string) error { return nil }, another, false},
		{"a file that is changed", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, archived), []byte("other"), 0o644)
		}, public, false},
		{"a file that is changed with its checksum", func(dir string) error {
			path := filepath.Join(dir, checksums)
			return os.WriteFile(path, bytes.Replace(read(t, path), []byte(archived), []byte("another"), 1), 0o644)
		}, public, false},
		{"without signature", func(dir string) error { return os.Remove(filepath.Join(dir, signature)) }, public, false},
	} {
		dir := t.TempDir()
		expect.OK(t, os.CopyFS(dir, os.DirFS(made)))
		expect.OK(t, c.change(dir))
		err := verify(t, dir, c.key)
		expect.That(t, (err == nil) == c.ok, "%s: %v", c.name, err)
	}
}

// krew's own validator installs the plugin with krew on every platform, as it does for krew's index.
func TestKrewInstallsThePlugin(t *testing.T) {
	private, _ := newKey(t)
	tools := t.TempDir()
	build := exec.Command("go", "build", "-modfile=../go.krew.mod", "-o", tools+"/", "tool")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// kubectl runs its plugins like this.
	write(t, filepath.Join(tools, "kubectl"), "#!/bin/sh\nplugin=$1\nshift\nexec \"$plugin\" \"$@\"\n")
	expect.OK(t, os.Chmod(filepath.Join(tools, "kubectl"), 0o755))
	t.Setenv("PATH", tools+string(filepath.ListSeparator)+os.Getenv("PATH"))
	o := options(t)
	files := http.NewServeMux()
	server := httptest.NewServer(files)
	t.Cleanup(server.Close)
	o.URL = server.URL
	dir := o.make(t, private)
	files.Handle("/", http.FileServer(http.Dir(dir)))
	if out, err := exec.Command("validate-krew-manifest", "-manifest", filepath.Join(dir, manifestName)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	t.Setenv("KREW_ROOT", t.TempDir())
	if out, err := exec.Command("kubectl", "krew", "install", "--manifest", filepath.Join(dir, manifestName)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	said, err := exec.Command(filepath.Join(os.Getenv("KREW_ROOT"), "bin", plugin)).CombinedOutput()
	expect.That(t, err == nil && strings.Contains(string(said), "here is "+plugin),
		"the installed plugin: %v\n%s", err, said)
}
