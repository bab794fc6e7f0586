package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"lockstep.dev/lockstep/release/sign"
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

// Push pushes an image under a tag, with the credentials of the user's registry configuration, and
// returns its digest. It signs the digest if there is a key. The tag goes last: nobody sees an image
// without its bills of materials and its signature.
func (i Image) Push(ctx context.Context, to string, key *sign.Key, options ...remote.Option) (v1.Hash, error) {
	tag, err := name.NewTag(to, name.StrictValidation)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("IMAGE %q: %w; wants HOST/NAME:TAG", to, err)
	}
	options = append([]remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}, options...)
	digest, err := partial.Descriptor(i.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := remote.WriteIndex(tag.Context().Digest(digest.Digest.String()), i.Index, options...); err != nil {
		return v1.Hash{}, fmt.Errorf("push %s: %w", tag, err)
	}
	for _, materials := range i.Materials {
		of, err := materials.Digest()
		if err != nil {
			return v1.Hash{}, err
		}
		if err := remote.Write(tag.Context().Digest(of.String()), materials, options...); err != nil {
			return v1.Hash{}, fmt.Errorf("push the bill of materials of %s: %w", tag, err)
		}
	}
	if key != nil {
		if err := pushSignature(tag.Context(), digest.Digest, key, options...); err != nil {
			return v1.Hash{}, err
		}
	}
	return digest.Digest, remote.WriteIndex(tag, i.Index, options...)
}
