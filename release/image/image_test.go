package image

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
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

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	spdxjson "github.com/spdx/tools-golang/json"

	"lockstep.dev/lockstep/test/expect"
)

var architectures = []string{"amd64", "arm64"}

// options builds a small program for each platform. It stands in for the operator, whose build takes minutes.
func options(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod": "module example.com/program\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() {}\n",
	} {
		expect.OK(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
	}
	o := Options{Version: "v1.2.3", Commit: "0123abc", Created: time.Unix(1_700_000_000, 0).UTC()}
	for _, architecture := range architectures {
		from := filepath.Join(dir, "linux_"+architecture)
		o.Programs = append(o.Programs, from)
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(from, program), ".")
		build.Dir = dir
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture, "GOFLAGS=")
		out, err := build.CombinedOutput()
		expect.Must(t, err == nil, "%v\n%s", err, out)
	}
	return o
}

// layoutOf writes an image to a new directory.
func (o Options) layoutOf(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "image")
	expect.Value(o.Write(dir))(t)
	return dir
}

// The programs are built twice as well, in other directories.
func TestTheSameSourcesGiveTheSameBytes(t *testing.T) {
	first, second := filepath.Join(t.TempDir(), "image"), filepath.Join(t.TempDir(), "image")
	for _, dir := range []string{first, second, second} { // the last writes over the second
		expect.Value(options(t).Write(dir))(t)
	}
	out, err := exec.Command("diff", "-r", first, second).CombinedOutput()
	expect.That(t, err == nil, "%v\n%s", err, out)
	blobs, _ := filepath.Glob(filepath.Join(first, "blobs", "*", "*"))
	expect.That(t, len(blobs) >= 8, "an image has only the blobs %v", blobs)
}

func TestAnImageHoldsTheProgramAlone(t *testing.T) {
	o := options(t)
	index, parts, err := read(o.layoutOf(t))
	expect.Must(t, err == nil && len(parts) == 1+len(architectures), "%d parts, %v", len(parts), err)
	expect.OK(t, validate.Index(index))
	for i, image := range platforms(t, index) {
		file := expect.Value(image.ConfigFile())(t)
		if file.Architecture != architectures[i] || file.OS != "linux" || file.Config.User != "65532:65532" ||
			strings.Join(file.Config.Entrypoint, " ") != "/lockstep" || file.Config.Labels["org.opencontainers.image.revision"] != o.Commit {
			t.Errorf("configuration %+v", file)
		}
		layers, err := image.Layers()
		expect.Must(t, err == nil && len(layers) == 1, "%d layers, %v", len(layers), err)
		text := expect.Value(layers[0].Uncompressed())(t)
		archive := tar.NewReader(text)
		header, err := archive.Next()
		expect.That(t, err == nil && header.Name == "lockstep" && header.Mode == 0o555 && header.Uid == 0,
			"the layer begins with %+v, %v", header, err)
		if _, err := archive.Next(); err != io.EOF {
			t.Errorf("the layer goes on: %v", err)
		}
	}
}

func platforms(t *testing.T, index v1.ImageIndex) (images []v1.Image) {
	t.Helper()
	manifest := expect.Value(index.IndexManifest())(t)
	for _, entry := range manifest.Manifests {
		image := expect.Value(index.Image(entry.Digest))(t)
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
			dir, tag := o.layoutOf(t), host+"/team/lockstep:v1.2.3"
			if _, err := Push(t.Context(), dir, tag, key); err == nil || !strings.Contains(err.Error(), "401") {
				t.Fatalf("pushed without credentials: %v", err)
			}
			logIn(t, host)
			s := served{t, repositoryOf(t, tag)}
			expect.Value(Push(t.Context(), dir, tag, nil))(t)
			if tags, err := remote.List(s.Repository, s.options...); err != nil || strings.Contains(fmt.Sprint(tags), ".sig") {
				t.Errorf("without a key, the tags are %v, %v", tags, err)
			}
			digest := expect.Value(Push(t.Context(), dir, tag, key))(t)
			index := expect.Value(remote.Index(s.repository.Tag("v1.2.3"), s.options...))(t)
			s.checkSigned(digestOf(t, index), key)
			expect.Equalf(t, digest, digestOf(t, index), "what the tag is for")
			for i, image := range platforms(t, index) {
				s.checkSigned(digestOf(t, image), key)
				bill := s.materials(digestOf(t, image))
				s.checkSigned(digestOf(t, bill), key)
				checkMaterials(t, s.content(bill), filepath.Join(o.Programs[i], program))
			}
		})
	}
}

// served is what a registry serves.
type served struct {
	*testing.T
	repository
}

func repositoryOf(t *testing.T, tag string) repository {
	t.Helper()
	ref := expect.Value(name.NewTag(tag))(t)
	return open(t.Context(), ref.Context())
}

func digestOf(t *testing.T, of interface{ Digest() (v1.Hash, error) }) v1.Hash {
	t.Helper()
	return expect.Value(of.Digest())(t)
}

// checkSigned verifies the signature of a digest as cosign does.
func (s served) checkSigned(digest v1.Hash, key *ecdsa.PrivateKey) {
	s.Helper()
	signed, err := remote.Image(s.Tag("sha256-"+digest.Hex+".sig"), s.options...)
	expect.OK(s.T, err)
	manifest, err := signed.Manifest()
	expect.OK(s.T, err)
	text, sum := s.content(signed), sha256.Sum256(s.content(signed))
	der, err := base64.StdEncoding.DecodeString(manifest.Layers[0].Annotations["dev.cosignproject.cosign/signature"])
	expect.That(s, err == nil && ecdsa.VerifyASN1(&key.PublicKey, sum[:], der),
		"the signature of %s is not made with the key: %v", digest, err)
	var statement struct {
		Critical struct {
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			}
		}
	}
	if err := json.Unmarshal(text, &statement); err != nil || statement.Critical.Image.Digest != digest.String() {
		s.Errorf("%s is signed, not %s: %v", text, digest, err)
	}
}

// materials returns the only bill of materials that refers to an image.
func (s served) materials(image v1.Hash) v1.Image {
	s.Helper()
	index, err := remote.Referrers(s.Digest(image.String()), append(s.options, remote.WithFilter("artifactType", "application/spdx+json"))...)
	expect.OK(s.T, err)
	all, err := index.IndexManifest()
	expect.Must(s, err == nil && len(all.Manifests) == 1, "referrers %+v, %v", all, err)
	bill, err := remote.Image(s.Digest(all.Manifests[0].Digest.String()), s.options...)
	expect.OK(s.T, err)
	return bill
}

// content returns what the only layer of an artifact holds.
func (s served) content(artifact v1.Image) []byte {
	s.Helper()
	layers, err := artifact.Layers()
	expect.Must(s, err == nil && len(layers) == 1, "%d layers, %v", len(layers), err)
	content, err := layers[0].Uncompressed()
	expect.OK(s.T, err)
	text, err := io.ReadAll(content)
	expect.OK(s.T, err)
	return text
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
	expect.OK(t, os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte(text), 0o600))
}

// checkMaterials reads the bill of materials of a program with SPDX' own library.
func checkMaterials(t *testing.T, text []byte, path string) {
	t.Helper()
	bill, err := spdxjson.Read(bytes.NewReader(text))
	expect.Must(t, err == nil, "%v\n%s", err, text)
	var packages []string
	for _, one := range bill.Packages {
		packages = append(packages, one.PackageName)
	}
	platform := strings.ReplaceAll(filepath.Base(filepath.Dir(path)), "_", "-")
	expect.Equal(t, "lockstep-"+platform+" stdlib example.com/program", strings.Join(packages, " "))
	file := expect.Value(os.ReadFile(path))(t)
	sum := fmt.Sprintf("%x", sha256.Sum256(file))
	expect.Equalf(t, sum, bill.Packages[0].PackageChecksums[0].Value, "what the bill of materials is for")
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	return expect.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
}

func TestWhatIsNoImageIsRefused(t *testing.T) {
	o := options(t)
	swapped := filepath.Join(t.TempDir(), "linux_arm64")
	expect.OK(t, os.CopyFS(swapped, os.DirFS(o.Programs[0])))
	for want, from := range map[string]string{"GOARCH=amd64": swapped, "no such file": filepath.Join(t.TempDir(), "linux_amd64")} {
		_, err := (Options{Programs: []string{from}}).Write(t.TempDir())
		expect.That(t, err != nil && strings.Contains(err.Error(), want), "%v, want %q", err, want)
	}
	_, err := Push(t.Context(), t.TempDir(), "registry.example/name:tag", nil)
	expect.That(t, err != nil && strings.Contains(err.Error(), "make image"), "an empty directory: %v", err)
	for _, tag := range []string{"", "lockstep", "host/name", "host/name@sha256:x"} {
		_, err := Push(t.Context(), o.layoutOf(t), tag, nil)
		expect.That(t, err != nil && strings.Contains(err.Error(), "HOST/NAME:TAG"), "%q: %v", tag, err)
	}
}
