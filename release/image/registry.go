package image

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"lockstep.dev/lockstep/release/sign"
)

// withCredentials uses the credentials of the user's registry configuration.
func withCredentials(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

// Push pushes an image under a tag and returns its digest. With a key it signs the index, each image
// and each bill of materials. The tag is written last: it never names an image without them.
func (i Image) Push(ctx context.Context, to string, key *sign.Key) (v1.Hash, error) {
	tag, err := name.NewTag(to, name.StrictValidation)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("IMAGE %q: %w; wants HOST/NAME:TAG", to, err)
	}
	options := withCredentials(ctx)
	digest, err := i.Index.Digest()
	if err != nil {
		return v1.Hash{}, err
	}
	if err := remote.WriteIndex(tag.Context().Digest(digest.String()), i.Index, options...); err != nil {
		return v1.Hash{}, fmt.Errorf("push %s: %w", tag, err)
	}
	manifest, err := i.Index.IndexManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	pushed := []v1.Hash{digest}
	for _, platform := range manifest.Manifests {
		pushed = append(pushed, platform.Digest)
	}
	for _, materials := range i.Materials {
		of, err := materials.Digest()
		if err != nil {
			return v1.Hash{}, err
		}
		if err := remote.Write(tag.Context().Digest(of.String()), materials, options...); err != nil {
			return v1.Hash{}, fmt.Errorf("push the bill of materials of %s: %w", tag, err)
		}
		pushed = append(pushed, of)
	}
	for _, one := range pushed {
		if key == nil {
			break
		}
		if err := pushSignature(tag.Context(), one, key, options...); err != nil {
			return v1.Hash{}, err
		}
	}
	return digest, remote.WriteIndex(tag, i.Index, options...)
}

// Verified is what Verify found: the digest of the index, and the bill of materials of each platform.
type Verified struct {
	Digest    v1.Hash
	Materials map[string][]byte
}

// Verify returns an error unless a registry has signatures, made with the key, of an index, its images
// and one bill of materials for each.
func Verify(ctx context.Context, reference string, key *sign.Public) (Verified, error) {
	ref, err := name.ParseReference(reference, name.StrictValidation)
	if err != nil {
		return Verified{}, err
	}
	options := withCredentials(ctx)
	index, err := remote.Index(ref, options...)
	if err != nil {
		return Verified{}, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return Verified{}, err
	}
	found := Verified{Materials: map[string][]byte{}}
	if found.Digest, err = index.Digest(); err != nil {
		return Verified{}, err
	}
	if err := verifySignature(ref.Context(), found.Digest, key, options...); err != nil {
		return Verified{}, err
	}
	for _, platform := range manifest.Manifests {
		if err := verifySignature(ref.Context(), platform.Digest, key, options...); err != nil {
			return Verified{}, err
		}
		if found.Materials[platform.Platform.String()], err = verifyMaterials(ref.Context(), platform.Digest, key, options...); err != nil {
			return Verified{}, fmt.Errorf("bill of materials of %s: %w", platform.Digest, err)
		}
	}
	return found, nil
}

// verifyMaterials returns the bill of materials of an image: its only referrer of that type with a signature.
func verifyMaterials(of name.Repository, digest v1.Hash, key *sign.Public, options ...remote.Option) ([]byte, error) {
	index, err := remote.Referrers(of.Digest(digest.String()), slices.Concat(options, []remote.Option{remote.WithFilter("artifactType", string(SPDX))})...)
	if err != nil {
		return nil, err
	}
	referrers, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	err = fmt.Errorf("the registry has none")
	for _, referrer := range referrers.Manifests {
		var text []byte
		if text, err = readMaterials(of, referrer.Digest, digest, key, options...); err == nil {
			return text, nil
		}
	}
	return nil, err
}

// readMaterials reads a signed bill of materials, which must name the image that it is for.
func readMaterials(of name.Repository, digest, subject v1.Hash, key *sign.Public, options ...remote.Option) ([]byte, error) {
	if err := verifySignature(of, digest, key, options...); err != nil {
		return nil, err
	}
	artifact, err := remote.Image(of.Digest(digest.String()), options...)
	if err != nil {
		return nil, err
	}
	manifest, err := artifact.Manifest()
	if err != nil {
		return nil, err
	}
	if manifest.Subject == nil || manifest.Subject.Digest != subject {
		return nil, fmt.Errorf("%s is for another image", digest)
	}
	return content(artifact)
}
