package image

import (
	"encoding/json"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"lockstep.dev/lockstep/release/sign"
)

// The form in which "cosign verify --key" looks for a signature: an image under a tag that is made of
// the digest, with one layer for each signature.
const (
	signatureLayer      types.MediaType = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation                 = "dev.cosignproject.cosign/signature"
)

// statement is what is signed.
type statement struct {
	Critical struct {
		Identity struct {
			Reference string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
	Optional map[string]string `json:"optional"`
}

// signatureTag is where the signature of a digest is kept.
func signatureTag(of name.Repository, digest v1.Hash) name.Tag {
	return of.Tag(digest.Algorithm + "-" + digest.Hex + ".sig")
}

// pushSignature signs a digest for the repository that it was pushed to.
func pushSignature(to name.Repository, digest v1.Hash, key *sign.Key, options ...remote.Option) error {
	var s statement
	s.Critical.Identity.Reference = to.Name()
	s.Critical.Image.Digest = digest.String()
	s.Critical.Type = "cosign container image signature"
	payload, err := json.Marshal(s)
	if err != nil {
		return err
	}
	signature, err := key.Sign(payload)
	if err != nil {
		return fmt.Errorf("sign %s: %w", digest, err)
	}
	signed, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: static.NewLayer(payload, signatureLayer), Annotations: map[string]string{signatureAnnotation: signature}})
	if err != nil {
		return err
	}
	return remote.Write(signatureTag(to, digest), signed, options...)
}

// verifySignature returns an error unless a registry has a signature of the digest that was made with the key.
func verifySignature(of name.Repository, digest v1.Hash, key *sign.Public, options ...remote.Option) error {
	signed, err := remote.Image(signatureTag(of, digest), options...)
	if err != nil {
		return fmt.Errorf("signature of %s: %w", digest, err)
	}
	manifest, err := signed.Manifest()
	if err != nil {
		return err
	}
	payload, err := content(signed)
	if err != nil {
		return fmt.Errorf("signature of %s: %w", digest, err)
	}
	if err := key.Verify(payload, manifest.Layers[0].Annotations[signatureAnnotation]); err != nil {
		return fmt.Errorf("%s: %w", digest, err)
	}
	var s statement
	if err := json.Unmarshal(payload, &s); err != nil {
		return err
	}
	if s.Critical.Image.Digest != digest.String() {
		return fmt.Errorf("signature of %s: it was made for %s", digest, s.Critical.Image.Digest)
	}
	return nil
}
