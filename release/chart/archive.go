package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Name is the name of the chart, and of the directory in its archive.
const Name = "lockstep"

// Release is what a packaged chart says of itself.
type Release struct {
	// Version of Lockstep, as v1.2.3.
	Version string
	// Image is the default image, HOST/NAME[:TAG][@DIGEST]. If empty, the user must name one.
	Image string
	// Created is the time of every file.
	Created time.Time
}

// ChartVersion is the version as Helm wants it.
func (r Release) ChartVersion() string { return strings.TrimPrefix(r.Version, "v") }

// File is the name of the archive.
func (r Release) File() string { return Name + "-" + r.ChartVersion() + ".tgz" }

// Archive returns the chart of a directory as Helm reads it. The same files and release give the
// same bytes.
func (r Release) Archive(dir string) ([]byte, error) {
	archive := &bytes.Buffer{}
	zipped := gzip.NewWriter(archive)
	files := tar.NewWriter(zipped)
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err == nil {
			text, err = r.edit(filepath.ToSlash(name), text)
		}
		if err != nil {
			return err
		}
		header := &tar.Header{Name: path.Join(Name, filepath.ToSlash(name)), Mode: 0o644, Size: int64(len(text)), ModTime: r.Created, Format: tar.FormatPAX}
		if err := files.WriteHeader(header); err != nil {
			return err
		}
		_, err = files.Write(text)
		return err
	})
	if err == nil {
		err = files.Close()
	}
	if err == nil {
		err = zipped.Close()
	}
	return archive.Bytes(), err
}

// edit writes version and image into the files that have them.
func (r Release) edit(name string, text []byte) ([]byte, error) {
	lines := map[string]string{}
	switch name {
	case "Chart.yaml":
		lines = map[string]string{"version": r.ChartVersion(), "appVersion": r.Version}
	case valuesFile:
		if r.Image == "" {
			return text, nil
		}
		image, digest, _ := strings.Cut(r.Image, "@")
		lines["  digest"] = digest
		lines["  repository"] = image
		if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
			lines["  repository"], lines["  tag"] = image[:i], image[i+1:]
		}
	}
	for key, value := range lines {
		line := regexp.MustCompile(`(?m)^` + key + `: .*$`)
		if found := line.FindAllIndex(text, -1); len(found) != 1 {
			return nil, fmt.Errorf("%s: want one line with %q, not %d", name, key, len(found))
		}
		text = line.ReplaceAllLiteral(text, fmt.Appendf(nil, "%s: %q", key, value))
	}
	return text, nil
}
