package dist

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"lockstep.dev/lockstep/release/sign"
)

const (
	checksums = "checksums.txt"
	signature = checksums + ".sig"
)

// Seal writes checksums.txt, and its signature if there is a key.
func Seal(dir string, key *ecdsa.PrivateKey) error {
	lines, err := list(dir)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, checksums), lines, 0o644); err != nil {
		return err
	}
	if key == nil {
		return os.RemoveAll(filepath.Join(dir, signature))
	}
	text, err := sign.Sign(key, lines)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, signature), []byte(text+"\n"), 0o644)
}

// list returns the lines of checksums.txt, in the form of sha256sum: every file of the directory itself.
func list(dir string) ([]byte, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var lines bytes.Buffer
	for _, file := range files {
		if !file.Type().IsRegular() || strings.HasPrefix(file.Name(), checksums) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(text), file.Name())
	}
	return lines.Bytes(), nil
}
