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
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Key signs.
type Key struct{ private *ecdsa.PrivateKey }

// Public verifies.
type Public struct{ key *ecdsa.PublicKey }

// errKey is returned for keys of another kind.
var errKey = errors.New("wants an ECDSA key on P-256")

// Load reads a private key in PEM, as "openssl ecparam -name prime256v1 -genkey -noout" writes it.
func Load(path string) (*Key, error) {
	der, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("signing key: %w; make one: openssl ecparam -name prime256v1 -genkey -noout", err)
	}
	private, err := x509.ParseECPrivateKey(der)
	if err != nil {
		parsed, other := x509.ParsePKCS8PrivateKey(der)
		if other != nil {
			return nil, fmt.Errorf("signing key %s: %w", path, err)
		}
		private, _ = parsed.(*ecdsa.PrivateKey)
	}
	if private == nil || private.Curve != elliptic.P256() {
		return nil, fmt.Errorf("signing key %s: %w", path, errKey)
	}
	return &Key{private}, nil
}

// LoadPublic reads a public key in PEM, as "openssl ec -pubout" writes it.
func LoadPublic(path string) (*Public, error) {
	der, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("public key: %w; make one: openssl ec -pubout", err)
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, fmt.Errorf("public key %s: %w", path, err)
	}
	public, ok := parsed.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return nil, fmt.Errorf("public key %s: %w", path, errKey)
	}
	return &Public{public}, nil
}

// read returns the first PEM block of a file that is no parameter of a curve, which openssl writes before a key.
func read(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode(text)
	for block != nil && block.Type == "EC PARAMETERS" {
		block, rest = pem.Decode(rest)
	}
	if block == nil {
		return nil, fmt.Errorf("%s is not PEM", path)
	}
	return block.Bytes, nil
}

// Sign returns the signature of a message in base64, as cosign writes it. The same key and message
// give the same signature (RFC 6979), so that a release can be made twice with the same bytes.
func (k *Key) Sign(message []byte) (string, error) {
	digest := sha256.Sum256(message)
	signature, err := k.private.Sign(nil, digest[:], crypto.SHA256)
	return base64.StdEncoding.EncodeToString(signature), err
}

// Public returns the key that verifies what this key signs.
func (k *Key) Public() *Public { return &Public{&k.private.PublicKey} }

// Verify returns an error unless the signature, in base64, is that of the message.
func (p *Public) Verify(message []byte, signature string) error {
	der, err := base64.StdEncoding.DecodeString(strings.TrimSpace(signature))
	if err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	digest := sha256.Sum256(message)
	if !ecdsa.VerifyASN1(p.key, digest[:], der) {
		return errors.New("the signature is not made with this key for these bytes")
	}
	return nil
}
