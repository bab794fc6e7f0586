// Package dist makes the files of a release from programs that are already built, and verifies them.
//
// It knows archives, checksums and the manifest of the kubectl plugin. It refuses to know how programs,
// images and charts are made. The same programs and options give the same bytes.
package dist

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// entry is one file of an archive.
type entry struct {
	name, path string
	mode       int64
}

// tree returns the files below a directory, in the order of their names.
func tree(dir string) (entries []entry, err error) {
	err = filepath.WalkDir(dir, func(path string, file fs.DirEntry, err error) error {
		if err == nil && file.Type().IsRegular() {
			name := filepath.ToSlash(strings.TrimPrefix(path, filepath.Clean(dir)+string(filepath.Separator)))
			entries = append(entries, entry{name, path, 0o644})
		}
		return err
	})
	return entries, err
}

// archive writes files to a tar file, compressed if its name ends in .gz. Owners, modes and times do
// not depend on the machine.
func archive(path string, created time.Time, entries []entry) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = closed
		}
	}()
	if !strings.HasSuffix(path, ".gz") {
		return writeTar(file, created, entries)
	}
	compressed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeTar(compressed, created, entries); err != nil {
		return err
	}
	return compressed.Close()
}

func writeTar(to io.Writer, created time.Time, entries []entry) error {
	w := tar.NewWriter(to)
	for _, e := range entries {
		if err := add(w, created, e); err != nil {
			return err
		}
	}
	return w.Close()
}

func add(w *tar.Writer, created time.Time, e entry) error {
	file, err := os.Open(e.path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	err = w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: e.name, Size: info.Size(), Mode: e.mode, ModTime: created, Format: tar.FormatPAX,
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(w, file)
	return err
}
