package sign

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
)

// write writes a key in PEM as openssl does, with the parameters of the curve before it.
func write(t *testing.T, key crypto.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte("curve")}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSameKeyAndMessageGiveTheSameSignature(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := Load(write(t, private))
	if err != nil {
		t.Fatal(err)
	}
	first, err := Sign(key, []byte("message"))
	if err != nil {
		t.Fatal(err)
	}
	if second, err := Sign(key, []byte("message")); err != nil || second != first {
		t.Errorf("%s and %s, %v", first, second, err)
	}
	digest := sha256.Sum256([]byte("message"))
	if der, err := base64.StdEncoding.DecodeString(first); err != nil || !ecdsa.VerifyASN1(&private.PublicKey, digest[:], der) {
		t.Errorf("%s is no signature of the message: %v", first, err)
	}
}

func TestKeysOfAnotherKindAreRefused(t *testing.T) {
	wider, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{write(t, wider), write(t, other), filepath.Join(t.TempDir(), "none")} {
		if key, err := Load(path); err == nil || key != nil {
			t.Errorf("%s: %v, %v", path, key, err)
		}
	}
	if key, err := Load(""); err != nil || key != nil {
		t.Errorf("without a path: %v, %v", key, err)
	}
}
