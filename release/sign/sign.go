// Package sign signs what a release consists of, so that cosign and openssl can verify it.
//
// It knows keys and signatures of ECDSA on P-256 with SHA-256. It refuses to know what is signed, and
// where signatures are kept.
package sign

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
)

// Key signs.
type Key struct{ private *ecdsa.PrivateKey }

// Load reads a private key in PEM, as "openssl ecparam -name prime256v1 -genkey -noout" writes it.
func Load(path string) (*Key, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the signing key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("signing key %s: not PEM; make one: openssl ecparam -name prime256v1 -genkey -noout", path)
	}
	private, err := parse(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("signing key %s: %w", path, err)
	}
	return &Key{private}, nil
}

func parse(der []byte) (*ecdsa.PrivateKey, error) {
	private, err := x509.ParseECPrivateKey(der)
	if err != nil {
		any, other := x509.ParsePKCS8PrivateKey(der)
		if other != nil {
			return nil, err
		}
		private, _ = any.(*ecdsa.PrivateKey)
	}
	if private == nil || private.Curve != elliptic.P256() {
		return nil, fmt.Errorf("wants an ECDSA key on P-256")
	}
	return private, nil
}

// Sign returns the signature of a message in base64, as cosign writes it.
func (k *Key) Sign(message []byte) (string, error) {
	digest := sha256.Sum256(message)
	signature, err := ecdsa.SignASN1(rand.Reader, k.private, digest[:])
	return base64.StdEncoding.EncodeToString(signature), err
}

// Public returns the public key in PEM, which users verify with.
func (k *Key) Public() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(&k.private.PublicKey)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
}
