package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const (
	// mostBytes is how large an archive may be, but for the report itself. What does not fit is named there.
	mostBytes = 18 << 20

	pageName = "report.md"
	// momentName says when the objects were as the bundle has them.
	momentName = "moment.json"
)

// file is one file of the archive.
type file struct {
	name    string
	content []byte
}

// pack packs files in their order while they fit, and a page that names what did not. What is not compressed yet must
// fit as it is.
func pack(files []file, moment time.Time, most int, page func(left []string) string) (*bytes.Buffer, error) {
	packed, left := &bytes.Buffer{}, []string(nil)
	compressed := gzip.NewWriter(packed)
	archive := tar.NewWriter(compressed)
	add := func(f file) error {
		head := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.content)), ModTime: moment.UTC().Truncate(time.Second)}
		if err := archive.WriteHeader(head); err != nil {
			return err
		}
		_, err := archive.Write(f.content)
		return errors.Join(err, archive.Flush(), compressed.Flush()) // so that the size is known
	}
	for _, f := range files {
		if packed.Len()+len(f.content) > most {
			left = append(left, fmt.Sprintf("%s: it does not fit, with %d bytes", f.name, len(f.content)))
			continue
		}
		if err := add(f); err != nil {
			return nil, err
		}
	}
	when, err := json.Marshal(map[string]time.Time{"at": moment.UTC()})
	err = errors.Join(err, add(file{momentName, when}), add(file{pageName, []byte(page(left))}))
	return packed, errors.Join(err, archive.Close(), compressed.Close())
}
