// Package archive reads the archives of kubectl lockstep report into memory. Any stranger may have made one, so
// nothing is written where the names in it say, and its size is judged by what it unpacks to.
package archive

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// What an archive may have. A report has 20 MiB, packed.
const (
	mostBytes = 512 << 20
	mostFiles = 100_000
)

var errTooLarge = fmt.Errorf("it unpacks to more than %d MiB", mostBytes>>20)

// Open returns the files of the archive at a path, by their names.
func Open(ctx context.Context, file string) (map[string][]byte, error) {
	if info, err := os.Stat(file); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	packed, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = packed.Close() })()
	defer func() { _ = packed.Close() }() // it is only read
	return Read(packed)
}

// Read returns the files of an archive by their names.
func Read(packed io.Reader) (map[string][]byte, error) {
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	limited := &io.LimitedReader{R: unpacked, N: mostBytes}
	files, err := unpack(tar.NewReader(limited))
	if limited.N == 0 {
		return nil, errTooLarge
	}
	return files, err
}

func unpack(archive *tar.Reader) (map[string][]byte, error) {
	files, left := map[string][]byte{}, int64(mostBytes)
	for {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err == nil {
			left -= head.Size // a file with holes unpacks to more than the archive has
			err = check(head, files, left)
		}
		if err != nil {
			return nil, err
		}
		if files[head.Name], err = io.ReadAll(archive); err != nil {
			return nil, err
		}
	}
}

// check refuses what no report has.
func check(head *tar.Header, files map[string][]byte, left int64) error {
	_, known := files[head.Name]
	switch {
	case head.Typeflag != tar.TypeReg:
		return fmt.Errorf("%q is no regular file", head.Name)
	case !fs.ValidPath(head.Name):
		return fmt.Errorf("%q is no proper name of a file", head.Name)
	case known:
		return fmt.Errorf("%q is in it twice", head.Name)
	case len(files) == mostFiles:
		return fmt.Errorf("it has more than %d files", mostFiles)
	case left < 0:
		return errTooLarge
	}
	return nil
}
