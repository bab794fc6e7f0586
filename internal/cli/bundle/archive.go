package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

const (
	// mostBytes is how large an archive may be. What does not fit is named in the report.
	mostBytes = 20 << 20
	// pageBytes are kept for the report itself and for the heads of files.
	pageBytes = 2 << 20
	// headBytes bounds what the head of a file takes, compressed.
	headBytes = 256

	pageName   = "report.md"
	momentName = "moment.json"
)

// file is one file of the archive.
type file struct {
	name    string
	content []byte
}

// Bundle is a packed report.
type Bundle struct {
	archive bytes.Buffer
	// Left says what did not fit.
	Left []string
}

// WriteTo implements io.WriterTo.
func (b *Bundle) WriteTo(w io.Writer) (int64, error) { return b.archive.WriteTo(w) }

// Moment is when the objects were as the bundle has them.
type Moment struct {
	At time.Time `json:"at"`
}

// pack packs files in their order, after the page that names what did not fit.
func pack(files []file, moment time.Time, page func(left []string) string) (*Bundle, error) {
	b := &Bundle{}
	files, b.Left = fitting(files, mostBytes-pageBytes)
	when, err := json.Marshal(Moment{moment.UTC()})
	if err != nil {
		return nil, err
	}
	files = append([]file{{pageName, []byte(page(b.Left))}, {momentName, when}}, files...)
	packed := gzip.NewWriter(&b.archive)
	archive := tar.NewWriter(packed)
	for _, f := range files {
		head := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.content)), ModTime: moment.UTC().Truncate(time.Second)}
		if err := archive.WriteHeader(head); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return b, packed.Close()
}

// fitting returns the files that fit into a number of compressed bytes, and names the others. Files that are packed
// together take less than the sum.
func fitting(files []file, most int) (fit []file, left []string) {
	packer := gzip.NewWriter(io.Discard)
	for _, f := range files {
		size := headBytes + compressed(packer, f.content)
		if size > most {
			left = append(left, fmt.Sprintf("%s: it does not fit, with %d bytes", f.name, len(f.content)))
			continue
		}
		most -= size
		fit = append(fit, f)
	}
	return fit, left
}

// compressed is the size of a text after compression.
func compressed(packer *gzip.Writer, text []byte) int {
	var size counter
	packer.Reset(&size)
	_, _ = packer.Write(text) // a counter takes everything
	_ = packer.Close()
	return int(size)
}

type counter int

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
