package image

import (
	"archive/tar"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"lockstep.dev/lockstep/release/sign"
)

var architectures = []string{"amd64", "arm64"}

// options builds a small program for each platform. It stands in for the operator, whose build takes minutes.
func options(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
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
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path, ".")
		build.Dir = dir
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture, "GOFLAGS=")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		o.Programs = append(o.Programs, Program{OS: "linux", Architecture: architecture, Path: path})
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

func TestTheSameProgramsGiveTheSameBytes(t *testing.T) {
	o := options(t)
	first, second := filepath.Join(t.TempDir(), "image"), filepath.Join(t.TempDir(), "image")
	for _, dir := range []string{first, second, second} { // the last writes over the second
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
		file, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
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

// A registry serves both platforms, and the bill of materials of each as its referrer.
func TestARegistryServesWhatIsPushed(t *testing.T) {
	o := options(t)
	dir := filepath.Join(t.TempDir(), "image")
	if err := build(t, o).Write(dir, o.Version); err != nil {
		t.Fatal(err)
	}
	read, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	tag, key := strings.TrimPrefix(server.URL, "http://")+"/team/lockstep:v1.2.3", newKey(t)
	digest, err := read.Push(t.Context(), tag, key)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(tag)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pulled.Digest(); err != nil || got != digest {
		t.Errorf("pulled %s, %v, want %s", got, err, digest)
	}
	checkSignature(t, ref.Context(), digest, key)
	images := platforms(t, pulled)
	if len(images) != len(architectures) {
		t.Fatalf("%d platforms", len(images))
	}
	for _, image := range images {
		of, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		referrers, err := remote.Referrers(ref.Context().Digest(of.String()))
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := referrers.IndexManifest()
		if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].ArtifactType != string(SPDX) {
			t.Fatalf("referrers of %s: %+v, %v", of, manifest, err)
		}
		artifact, err := remote.Image(ref.Context().Digest(manifest.Manifests[0].Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		text, err := Bill(artifact)
		if err != nil {
			t.Fatal(err)
		}
		var bill document
		if err := json.Unmarshal(text, &bill); err != nil || bill.Version != "SPDX-2.3" {
			t.Fatalf("%v\n%s", err, text)
		}
		var packages []string
		for _, one := range bill.Packages {
			packages = append(packages, one.Name)
		}
		if got := strings.Join(packages, " "); got != "lockstep stdlib example.com/program" {
			t.Errorf("packages %s", got)
		}
	}
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

// checkSignature verifies a signature as cosign does, with the public key alone.
func checkSignature(t *testing.T, of name.Repository, digest v1.Hash, key *sign.Key) {
	t.Helper()
	signed, err := remote.Image(of.Tag("sha256-" + digest.Hex + ".sig"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := signed.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	payload, err := Bill(signed)
	if err != nil || !strings.Contains(string(payload), digest.String()) {
		t.Fatalf("payload %s, %v", payload, err)
	}
	signature, err := base64.StdEncoding.DecodeString(manifest.Layers[0].Annotations["dev.cosignproject.cosign/signature"])
	if err != nil {
		t.Fatal(err)
	}
	text, err := key.Public()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for change, want := range map[string]bool{"": true, " ": false} {
		hash := sha256.Sum256([]byte(string(payload) + change))
		if ecdsa.VerifyASN1(public.(*ecdsa.PublicKey), hash[:], signature) != want {
			t.Errorf("the payload with %q: want verified %t", change, want)
		}
	}
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
