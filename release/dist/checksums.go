package dist

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"lockstep.dev/lockstep/release/sign"
)

const (
	checksums = "checksums.txt"
	signature = checksums + ".sig"
)

// sum returns the SHA-256 of a file, in hex.
func sum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
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
		digest, err := sum(filepath.Join(dir, file.Name()))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&lines, "%s  %s\n", digest, file.Name())
	}
	return lines.Bytes(), nil
}

// Seal writes checksums.txt, and its signature if there is a key.
func Seal(dir string, key *sign.Key) error {
	lines, err := list(dir)
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		return fmt.Errorf("%s has no files; make them: make release", dir)
	}
	if err := os.WriteFile(filepath.Join(dir, checksums), lines, 0o644); err != nil {
		return err
	}
	if key == nil {
		err := os.Remove(filepath.Join(dir, signature))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return err
	}
	text, err := key.Sign(lines)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, signature), []byte(text+"\n"), 0o644)
}

// Verify returns an error unless checksums.txt has a signature that was made with the key, and every
// file of it that is in the directory has its checksum. It returns how many files it compared.
func Verify(dir string, key *sign.Public) (int, error) {
	lines, err := os.ReadFile(filepath.Join(dir, checksums))
	if err != nil {
		return 0, err
	}
	signed, err := os.ReadFile(filepath.Join(dir, signature))
	if err != nil {
		return 0, err
	}
	if err := key.Verify(lines, string(signed)); err != nil {
		return 0, fmt.Errorf("%s: %w", checksums, err)
	}
	compared := 0
	for line := range strings.Lines(string(lines)) {
		want, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok || filepath.Base(name) != name {
			return compared, fmt.Errorf("%s: no checksum: %q", checksums, line)
		}
		got, err := sum(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // a user needs no file of another platform
		}
		if err != nil {
			return compared, err
		}
		if got != want {
			return compared, fmt.Errorf("%s is not the file of the release: its SHA-256 is %s, want %s", name, got, want)
		}
		compared++
	}
	if compared == 0 {
		return 0, fmt.Errorf("%s has no file of %s", dir, checksums)
	}
	return compared, nil
}
