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

	"lockstep.dev/lockstep/test/expect"
)

// write writes a key in PEM as openssl does, with the parameters of the curve before it.
func write(t *testing.T, key crypto.PrivateKey) string {
	t.Helper()
	der := expect.Value(x509.MarshalPKCS8PrivateKey(key))(t)
	text := append(pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte("curve")}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	path := filepath.Join(t.TempDir(), "key.pem")
	expect.OK(t, os.WriteFile(path, text, 0o600))
	return path
}

func TestSameKeyAndMessageGiveTheSameSignature(t *testing.T) {
	private := expect.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	key := expect.Value(Load(write(t, private)))(t)
	first := expect.Value(Sign(key, []byte("message")))(t)
	expect.Equal(t, first, expect.Value(Sign(key, []byte("message")))(t))
	digest := sha256.Sum256([]byte("message"))
	if der, err := base64.StdEncoding.DecodeString(first); err != nil || !ecdsa.VerifyASN1(&private.PublicKey, digest[:], der) {
		t.Errorf("%s is no signature of the message: %v", first, err)
	}
}

func TestKeysOfAnotherKindAreRefused(t *testing.T) {
	wider := expect.Value(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))(t)
	other := expect.Value(rsa.GenerateKey(rand.Reader, 2048))(t)
	for _, path := range []string{write(t, wider), write(t, other), filepath.Join(t.TempDir(), "none")} {
		key, err := Load(path)
		expect.That(t, err != nil && key == nil, "%s: %v, %v", path, key, err)
	}
	key, err := Load("")
	expect.That(t, err == nil && key == nil, "without a path: %v, %v", key, err)
}
