// Package sign signs what a release consists of, so that cosign and openssl can verify it.
//
// It knows keys and signatures of ECDSA on P-256 with SHA-256. It refuses to know what is signed, and
// where signatures are kept.
package sign

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"k8s.io/client-go/util/keyutil"
)

// Load reads a private key in PEM, as "openssl ecparam -name prime256v1 -genkey -noout" writes it. Without a path there is none.
func Load(path string) (*ecdsa.PrivateKey, error) {
	if path == "" {
		return nil, nil
	}
	parsed, err := keyutil.PrivateKeyFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("signing key: %w; make one: openssl ecparam -name prime256v1 -genkey -noout", err)
	}
	key, is := parsed.(*ecdsa.PrivateKey)
	if !is || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("signing key %s: wants an ECDSA key on P-256", path)
	}
	return key, nil
}

// Sign returns the signature of a message in base64, as cosign writes it. The same key and message
// give the same signature (RFC 6979), so that a release can be made twice with the same bytes.
func Sign(key *ecdsa.PrivateKey, message []byte) (string, error) {
	digest := sha256.Sum256(message)
	signature, err := key.Sign(nil, digest[:], crypto.SHA256)
	return base64.StdEncoding.EncodeToString(signature), err
}
