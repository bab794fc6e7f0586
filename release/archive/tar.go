// Package archive writes archives.
//
// It knows what a tar file and a gzip file say of files. It refuses to know the machine: owners, modes and times do not
// depend on it.
package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"time"
)

// File is one file of an archive.
type File struct {
	Name string
	Mode int64
	Data []byte
}

// Tar returns a tar file. The same files and time give the same bytes.
func Tar(created time.Time, files ...File) ([]byte, error) {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, f := range files {
		header := tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Size: int64(len(f.Data)), Mode: f.Mode, ModTime: created}
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return text.Bytes(), err
}

// Gzip compresses as well as it can.
func Gzip(data []byte) []byte {
	var text bytes.Buffer
	w, _ := gzip.NewWriterLevel(&text, gzip.BestCompression) // a level that exists
	_, _ = w.Write(data)                                     // memory takes all that is written
	_ = w.Close()
	return text.Bytes()
}
