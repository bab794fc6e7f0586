// Package image builds and pushes the container image of the operator.
//
// It knows the layout of an OCI image: one layer with the program for each platform, an index of
// platforms, and a bill of materials that refers to each image. It refuses to know how programs are
// built. The same programs and options give the same bytes.
package image

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"lockstep.dev/lockstep/release/archive"
	"lockstep.dev/lockstep/release/sbom"
	"lockstep.dev/lockstep/release/sign"
)

const (
	// program is where the image holds the operator.
	program = "lockstep"
	// user is the numeric user and group that run it. Nothing in the image is writable.
	user = "65532:65532"
	// materialsType is the media type of a bill of materials, and of the artifact that holds it.
	materialsType types.MediaType = "application/spdx+json"
	// created is an annotation, and a label. refName names the index in a layout.
	created = "org.opencontainers.image.created"
	refName = "org.opencontainers.image.ref.name"
)

// Options are what images are made of.
type Options struct {
	// Programs are directories named OS_ARCHITECTURE with the static program for that platform, in the order of the index.
	Programs []string
	// Version and Commit become labels.
	Version, Commit string
	// Created is the time of everything in the image.
	Created time.Time
}

// Write writes an OCI layout in place of what is there, and returns the digest of its index of platforms. After the index
// it holds the bill of materials of each image. A program that is missing, or built for another platform, is an error.
func (o Options) Write(dir string) (v1.Hash, error) {
	platforms, materials := []mutate.IndexAddendum{}, []mutate.IndexAddendum{}
	for _, from := range o.Programs {
		image, bill, err := o.platform(from)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("image of %s: %w", from, err)
		}
		platforms, materials = append(platforms, image), append(materials, bill)
	}
	listed := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), platforms...)
	index := mutate.Annotations(listed, o.labels()).(v1.ImageIndex)
	named := mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{refName: o.Version}}}
	if err := os.RemoveAll(dir); err != nil {
		return v1.Hash{}, err
	}
	if _, err := layout.Write(dir, mutate.AppendManifests(empty.Index, append([]mutate.IndexAddendum{named}, materials...)...)); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// platform builds the image of one platform, and its bill of materials.
func (o Options) platform(from string) (image, materials mutate.IndexAddendum, err error) {
	text, bill, err := sbom.Read(from, program, o.Version, o.Created)
	if err != nil {
		return image, materials, err
	}
	if image.Platform, err = v1.ParsePlatform(strings.ReplaceAll(filepath.Base(from), "_", "/")); err != nil {
		return image, materials, err
	}
	built, err := o.image(*image.Platform, text)
	if err != nil {
		return image, materials, err
	}
	image.Add = built
	subject, err := partial.Descriptor(built)
	if err != nil {
		return image, materials, err
	}
	held, err := mutate.AppendLayers(artifact(materialsType), static.NewLayer(bill, materialsType))
	if err != nil {
		return image, materials, err
	}
	materials.Add = mutate.Subject(mutate.Annotations(held, map[string]string{created: o.labels()[created]}), *subject).(v1.Image)
	return image, materials, nil
}

// image builds an image of one program.
func (o Options) image(platform v1.Platform, text []byte) (v1.Image, error) {
	files, err := archive.Tar(o.Created, archive.File{Name: program, Mode: 0o555, Data: text})
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: o.Created}
	base, err := mutate.ConfigFile(artifact(types.OCIConfigJSON), &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Entrypoint: []string{"/" + program}, User: user, WorkingDir: "/", Env: []string{"PATH=/"}, Labels: o.labels()},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "lockstep-release image"}})
}

// artifact is an image of nothing, with a media type of its configuration.
func artifact(config types.MediaType) v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), config)
}

// labels are those of the OCI image specification.
func (o Options) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "lockstep",
		"org.opencontainers.image.description": "Kubernetes operator for LeaderWorkerSets and PVCs in use",
		"org.opencontainers.image.version":     o.Version,
		"org.opencontainers.image.revision":    o.Commit,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		created:                                o.Created.UTC().Format(time.RFC3339),
	}
}

// repository is where a registry keeps an image and what belongs to it.
type repository struct {
	name.Repository
	options []remote.Option
}

// open returns a repository, with the credentials of the user's registry configuration.
func open(ctx context.Context, of name.Repository) repository {
	return repository{of, []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}}
}

// Push pushes a layout that Write wrote, and returns the digest of the index of platforms, which gets the tag. With a key
// it signs the index, each image and each bill of materials. The tag is written last: it never names an image without them.
func Push(ctx context.Context, dir, to string, key *ecdsa.PrivateKey) (v1.Hash, error) {
	tag, err := name.NewTag(to, name.StrictValidation)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("IMAGE %q: %w; wants HOST/NAME:TAG", to, err)
	}
	index, parts, err := read(dir)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("%s: %w; make one: make image", dir, err)
	}
	r := open(ctx, tag.Context())
	for _, part := range parts {
		if err := r.push(part, key); err != nil {
			return v1.Hash{}, fmt.Errorf("push %s: %w", tag, err)
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, err
	}
	return digest, remote.Tag(tag, index, r.options...)
}

// read reads a layout: its index of platforms, which is the first of its parts.
func read(dir string) (index v1.ImageIndex, parts []partial.Describable, err error) {
	built, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, nil, err
	}
	if parts, err = partial.Manifests(built); err != nil {
		return nil, nil, err
	}
	if len(parts) > 0 {
		index, _ = parts[0].(v1.ImageIndex)
	}
	if index == nil {
		return nil, nil, fmt.Errorf("no image layout with an index of platforms")
	}
	return index, parts, nil
}

// push pushes a part of a layout. With a key it signs the part, and each image that is listed in it.
func (r repository) push(part partial.Describable, key *ecdsa.PrivateKey) error {
	digest, err := part.Digest()
	if err != nil {
		return err
	}
	if err := remote.Push(r.Digest(digest.String()), part.(remote.Taggable), r.options...); err != nil || key == nil {
		return err
	}
	if index, is := part.(v1.ImageIndex); is {
		manifest, err := index.IndexManifest()
		if err != nil {
			return err
		}
		for _, platform := range manifest.Manifests {
			if err := r.sign(key, platform.Digest); err != nil {
				return err
			}
		}
	}
	return r.sign(key, digest)
}

// The form in which "cosign verify --key" looks for a signature: an image under a tag that is made of
// the digest, with one layer for each signature.
const (
	signatureLayer      types.MediaType = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation                 = "dev.cosignproject.cosign/signature"
	signedText                          = `{"critical":{"identity":{"docker-reference":%q},` +
		`"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`
)

// sign signs a digest for the repository that it was pushed to.
func (r repository) sign(key *ecdsa.PrivateKey, digest v1.Hash) error {
	text := fmt.Appendf(nil, signedText, r.Name(), digest)
	signature, err := sign.Sign(key, text)
	if err != nil {
		return fmt.Errorf("sign %s: %w", digest, err)
	}
	signed, err := mutate.Append(artifact(types.OCIConfigJSON), mutate.Addendum{
		Layer: static.NewLayer(text, signatureLayer), Annotations: map[string]string{signatureAnnotation: signature},
	})
	if err != nil {
		return err
	}
	return remote.Write(r.Tag(digest.Algorithm+"-"+digest.Hex+".sig"), signed, r.options...)
}
