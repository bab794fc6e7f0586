package image

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	spdx "github.com/spdx/tools-golang/json"

	"lockstep.dev/lockstep/release/sign"
)

var architectures = []string{"amd64", "arm64"}

// standIns is the directory of programs that most tests share.
var standIns string

func TestMain(m *testing.M) {
	var err error
	if standIns, err = os.MkdirTemp("", "image"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(standIns)
	os.Exit(code)
}

// options returns the programs that most tests share.
func options(t *testing.T) Options {
	t.Helper()
	return optionsIn(t, standIns)
}

// optionsIn builds a small program for each platform. It stands in for the operator, whose build takes minutes.
func optionsIn(t *testing.T, dir string) Options {
	t.Helper()
	for file, text := range map[string]string{
		"go.mod": "module example.com/program\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Version: "v1.2.3", Commit: "0123abc", Created: time.Unix(1_700_000_000, 0).UTC()}
	for _, architecture := range architectures {
		path := filepath.Join(dir, "linux_"+architecture, "lockstep")
		o.Programs = append(o.Programs, Program{OS: "linux", Architecture: architecture, Path: path})
		if _, err := os.Stat(path); err == nil {
			continue
		}
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path, ".")
		build.Dir = dir
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture, "GOFLAGS=")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return o
}

func build(t *testing.T, o Options) Image {
	t.Helper()
	built, err := Build(o)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// files returns the content of all files below a directory.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The programs are built twice as well, in other directories.
func TestTheSameSourcesGiveTheSameBytes(t *testing.T) {
	first, second := filepath.Join(t.TempDir(), "image"), filepath.Join(t.TempDir(), "image")
	for _, dir := range []string{first, second, second} { // the last writes over the second
		o := optionsIn(t, t.TempDir())
		if err := build(t, o).Write(dir, o.Version); err != nil {
			t.Fatal(err)
		}
	}
	one, other := files(t, first), files(t, second)
	if len(one) != len(other) || len(one) < 10 {
		t.Fatalf("%d files and %d", len(one), len(other))
	}
	for path, text := range one {
		if other[path] != text {
			t.Errorf("%s differs", path)
		}
	}
}

func TestAnImageHoldsTheProgramAlone(t *testing.T) {
	o := options(t)
	dir := filepath.Join(t.TempDir(), "image")
	if err := build(t, o).Write(dir, o.Version); err != nil {
		t.Fatal(err)
	}
	read, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(read.Index); err != nil {
		t.Fatal(err)
	}
	for i, image := range platforms(t, read.Index) {
		file := config(t, image)
		if file.Architecture != architectures[i] || file.OS != "linux" || file.Config.User != "65532:65532" ||
			strings.Join(file.Config.Entrypoint, " ") != "/lockstep" || file.Config.Labels["org.opencontainers.image.revision"] != o.Commit {
			t.Errorf("configuration %+v", file)
		}
		layers, err := image.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("%d layers, %v", len(layers), err)
		}
		text, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		archive := tar.NewReader(text)
		header, err := archive.Next()
		if err != nil || header.Name != "lockstep" || header.Mode != 0o555 || header.Uid != 0 {
			t.Errorf("the layer begins with %+v, %v", header, err)
		}
		if _, err := archive.Next(); err != io.EOF {
			t.Errorf("the layer goes on: %v", err)
		}
	}
}

func platforms(t *testing.T, index v1.ImageIndex) (images []v1.Image) {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range manifest.Manifests {
		image, err := index.Image(entry.Digest)
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, image)
	}
	return images
}

// A registry serves both platforms, the bill of materials of each as its referrer, and all signatures:
// with an API for referrers and without, and to users with credentials alone.
func TestARegistryServesWhatIsPushed(t *testing.T) {
	for name, referrers := range map[string]bool{"with referrers": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			o, key := options(t), newKey(t)
			host := serve(t, referrers)
			tag := host + "/team/lockstep:v1.2.3"
			pushed := build(t, o)
			if _, err := pushed.Push(t.Context(), tag, key); err == nil || !strings.Contains(err.Error(), "401") {
				t.Fatalf("pushed without credentials: %v", err)
			}
			logIn(t, host)
			digest, err := pushed.Push(t.Context(), tag, key)
			if err != nil {
				t.Fatal(err)
			}
			found, err := Verify(t.Context(), tag, key.Public())
			if err != nil || found.Digest != digest || len(found.Materials) != len(architectures) {
				t.Fatalf("verified %+v, %v, want %s", found, err, digest)
			}
			for i, image := range platforms(t, pushed.Index) {
				checkMaterials(t, found.Materials["linux/"+architectures[i]], image)
			}
			if _, err := Verify(t.Context(), tag, newKey(t).Public()); err == nil {
				t.Error("verified with another key")
			}
			if _, err := pushed.Push(t.Context(), host+"/team/unsigned:v1.2.3", nil); err != nil {
				t.Fatal(err)
			}
			if _, err := Verify(t.Context(), host+"/team/unsigned:v1.2.3", key.Public()); err == nil {
				t.Error("verified an image without signatures")
			}
		})
	}
}

const login, password = "someone", "secret"

// serve starts a registry that wants credentials, and returns its address.
func serve(t *testing.T, referrers bool) string {
	t.Helper()
	files := registry.New(registry.WithReferrersSupport(referrers), registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != login || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	return strings.TrimPrefix(server.URL, "http://")
}

// logIn writes the registry configuration that "docker login" writes.
func logIn(t *testing.T, host string) {
	t.Helper()
	text := fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`, host, login, password)
	if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// checkMaterials reads a bill of materials with SPDX' own library.
func checkMaterials(t *testing.T, text []byte, of v1.Image) {
	t.Helper()
	digest, err := of.Digest()
	if err != nil {
		t.Fatal(err)
	}
	bill, err := spdx.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var packages []string
	for _, one := range bill.Packages {
		packages = append(packages, one.PackageName)
	}
	if got := strings.Join(packages, " "); got != "lockstep-linux-"+config(t, of).Architecture+" stdlib example.com/program" {
		t.Errorf("packages %s", got)
	}
	if got := bill.Packages[0].PackageChecksums[0].Value; got != digest.Hex {
		t.Errorf("the bill of materials is for %s, want %s", got, digest)
	}
}

func config(t *testing.T, image v1.Image) *v1.ConfigFile {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func newKey(t *testing.T) *sign.Key {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := sign.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestWhatIsNoImageIsRefused(t *testing.T) {
	o := options(t)
	swapped := o
	swapped.Programs = []Program{{OS: "linux", Architecture: "arm64", Path: o.Programs[0].Path}}
	missing := o
	missing.Programs = []Program{{OS: "linux", Architecture: "amd64", Path: filepath.Join(t.TempDir(), "none")}}
	for want, o := range map[string]Options{"GOARCH=amd64": swapped, "no such file": missing} {
		if _, err := Build(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "make image") {
		t.Errorf("an empty directory: %v", err)
	}
	for _, tag := range []string{"", "lockstep", "host/name", "host/name@sha256:x"} {
		if _, err := build(t, o).Push(t.Context(), tag, nil); err == nil || !strings.Contains(err.Error(), "HOST/NAME:TAG") {
			t.Errorf("%q: %v", tag, err)
		}
	}
}
