package image

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// refName names the index in a layout.
const refName = "org.opencontainers.image.ref.name"

// Write writes an image to a directory in the OCI layout, in place of what is there.
func (i Image) Write(dir, version string) error {
	next := filepath.Clean(dir) + ".new"
	if err := os.RemoveAll(next); err != nil {
		return err
	}
	path, err := layout.Write(next, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(i.Index, layout.WithAnnotations(map[string]string{refName: version})); err != nil {
		return err
	}
	for _, materials := range i.Materials {
		if err := path.AppendImage(materials); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(next, dir)
}

// Read reads an image that Write wrote.
func Read(dir string) (Image, error) {
	whole, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return Image{}, fmt.Errorf("%s is no image layout: %w; make one: make image", dir, err)
	}
	manifest, err := whole.IndexManifest()
	if err != nil {
		return Image{}, err
	}
	var read Image
	for _, entry := range manifest.Manifests {
		if entry.MediaType.IsIndex() {
			if read.Index, err = whole.ImageIndex(entry.Digest); err != nil {
				return Image{}, err
			}
			continue
		}
		materials, err := whole.Image(entry.Digest)
		if err != nil {
			return Image{}, err
		}
		read.Materials = append(read.Materials, materials)
	}
	if read.Index == nil {
		return Image{}, fmt.Errorf("%s holds no index of platforms; make one: make image", dir)
	}
	return read, nil
}
