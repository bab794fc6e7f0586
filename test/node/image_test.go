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

// buildImages builds the program that runs in pods, and writes an archive with the images
// made of it, in the form of docker save.
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
	files, manifests := map[string][]byte{"layer.tar": layer}, []map[string]any{}
	for _, name := range []string{containerImage, pauseImage} {
		config := fmt.Sprintf("%d.json", len(manifests))
		files[config], err = json.Marshal(map[string]any{
			"architecture": runtime.GOARCH, "os": "linux",
			"config": map[string]any{"Entrypoint": []string{"/container"}, "Labels": map[string]string{"name": name}},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
		})
		if err != nil {
			return "", err
		}
		manifests = append(manifests, map[string]any{"Config": config, "RepoTags": []string{name}, "Layers": []string{"layer.tar"}})
	}
	if files["manifest.json"], err = json.Marshal(manifests); err != nil {
		return "", err
	}
	images, err := tarOf(files, 0o644)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "images.tar")
	return path, os.WriteFile(path, images, 0o644)
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
