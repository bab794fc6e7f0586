package image

import (
	"crypto/ecdsa"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
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
