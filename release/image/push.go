package image

import (
	"context"
	"crypto/ecdsa"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"lockstep.dev/lockstep/release/sign"
)

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
