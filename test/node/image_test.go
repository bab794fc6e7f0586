//go:build linux

package node

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// The images of the drills. No registry has them: they are put into containerd's store.
const (
	containerImage = "lockstep.local/container:drill"
	pauseImage     = "lockstep.local/pause:drill" // what holds a pod's namespaces: the same program, with nothing to do
)

// archive is an OCI image layout in a tar file.
type archive struct {
	blobs     map[string][]byte // by path
	manifests []descriptor
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// buildImages builds the program that runs in pods, and writes an archive with the images
// made of it.
func buildImages(dir string) (path string, err error) {
	program := filepath.Join(dir, "container")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, "./container")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the image's program: %w\n%s", err, out)
	}
	code, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	layer, err := tarOf(map[string][]byte{"container": code}, 0o755)
	if err != nil {
		return "", err
	}
	images := &archive{blobs: map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}}
	for _, name := range []string{containerImage, pauseImage} {
		if err := images.add(name, layer); err != nil {
			return "", err
		}
	}
	path = filepath.Join(dir, "images.tar")
	return path, images.write(path)
}

// add adds an image of one layer.
func (a *archive) add(name string, layer []byte) error {
	under := a.blob("application/vnd.oci.image.layer.v1.tar", layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/container"}, "Labels": map[string]string{"name": name}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{under.Digest}}, // the layer is not compressed
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2,
		"mediaType":     "application/vnd.oci.image.manifest.v1+json",
		"config":        a.blob("application/vnd.oci.image.config.v1+json", config),
		"layers":        []descriptor{under},
	})
	if err != nil {
		return err
	}
	top := a.blob("application/vnd.oci.image.manifest.v1+json", manifest)
	top.Annotations = map[string]string{"io.containerd.image.name": name}
	a.manifests = append(a.manifests, top)
	return nil
}

func (a *archive) blob(mediaType string, content []byte) descriptor {
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	a.blobs["blobs/sha256/"+sum] = content
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(content)}
}

func (a *archive) write(path string) error {
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": a.manifests})
	if err != nil {
		return err
	}
	a.blobs["index.json"] = index
	content, err := tarOf(a.blobs, 0o644)
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

func tarOf(files map[string][]byte, mode int64) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}
