package image

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// program is where the image holds the operator.
	program = "lockstep"
	// user is the numeric user that runs it. Nothing in the image is writable.
	user = 65532
)

// Options are what images are made of.
type Options struct {
	// Programs are the paths of the static programs, by platform, in the order of the index.
	Programs []Program
	// Version and Commit become labels.
	Version, Commit string
	// Created is the time of everything in the image.
	Created time.Time
}

// Program is the operator for one platform.
type Program struct {
	OS, Architecture string
	Path             string
}

// Image is one index of platforms, with the bill of materials of each.
type Image struct {
	Index v1.ImageIndex
	// Materials refer to the images of the index, in its order.
	Materials []v1.Image
}

// Build builds an image. A program that is missing, or built for another platform, is an error.
func Build(o Options) (Image, error) {
	built := Image{Index: mutate.IndexMediaType(empty.Index, types.OCIImageIndex)}
	for _, p := range o.Programs {
		one, materials, err := o.platform(p)
		if err != nil {
			return Image{}, fmt.Errorf("image for %s/%s: %w", p.OS, p.Architecture, err)
		}
		built.Index = mutate.AppendManifests(built.Index, mutate.IndexAddendum{
			Add:        one,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.OS, Architecture: p.Architecture}},
		})
		built.Materials = append(built.Materials, materials)
	}
	built.Index, _ = mutate.Annotations(built.Index, o.labels()).(v1.ImageIndex)
	return built, nil
}

// platform builds the image of one platform, and its bill of materials.
func (o Options) platform(p Program) (image, materials v1.Image, err error) {
	build, err := buildinfo.ReadFile(p.Path)
	if err != nil {
		return nil, nil, err
	}
	for _, setting := range build.Settings {
		if setting.Key == "GOOS" && setting.Value != p.OS || setting.Key == "GOARCH" && setting.Value != p.Architecture {
			return nil, nil, fmt.Errorf("%s is built with %s=%s", p.Path, setting.Key, setting.Value)
		}
		if setting.Key == "CGO_ENABLED" && setting.Value != "0" {
			return nil, nil, fmt.Errorf("%s is no static program: build it with CGO_ENABLED=0", p.Path)
		}
	}
	text, err := os.ReadFile(p.Path)
	if err != nil {
		return nil, nil, err
	}
	archive, err := o.layer(text)
	if err != nil {
		return nil, nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: o.Created}, CreatedBy: "lockstep-release image", Comment: "the operator, a static program",
	}})
	if err != nil {
		return nil, nil, err
	}
	image, err = o.configure(image, p)
	if err != nil {
		return nil, nil, err
	}
	materials, err = o.materials(image, p, build)
	return image, materials, err
}

// configure writes how the program is run.
func (o Options) configure(image v1.Image, p Program) (v1.Image, error) {
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = p.OS, p.Architecture, v1.Time{Time: o.Created}
	file.Config = v1.Config{
		Entrypoint: []string{"/" + program},
		User:       strconv.Itoa(user) + ":" + strconv.Itoa(user),
		WorkingDir: "/",
		Env:        []string{"PATH=/"},
		Labels:     o.labels(),
	}
	return mutate.ConfigFile(image, file)
}

// labels are those of the OCI image specification.
func (o Options) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "lockstep",
		"org.opencontainers.image.description": "Kubernetes operator for LeaderWorkerSets and PVCs in use",
		"org.opencontainers.image.version":     o.Version,
		"org.opencontainers.image.revision":    o.Commit,
		"org.opencontainers.image.created":     o.Created.UTC().Format(time.RFC3339),
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
}

// layer is an archive of the program alone.
func (o Options) layer(text []byte) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: program, Size: int64(len(text)), Mode: 0o555, ModTime: o.Created, Format: tar.FormatUSTAR,
	})
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}
