package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"lockstep.dev/lockstep/test/expect"
)

// zeros is a content without bytes of its own.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// packed writes an archive.
func packed(t testing.TB, write func(*tar.Writer) error) *bytes.Buffer {
	t.Helper()
	text := &bytes.Buffer{}
	compressed, _ := gzip.NewWriterLevel(text, gzip.BestSpeed)
	archive := tar.NewWriter(compressed)
	expect.OK(t, errors.Join(write(archive), archive.Close(), compressed.Close()))
	return text
}

// entry is an archive of one file.
func entry(t testing.TB, head tar.Header) *bytes.Buffer {
	return packed(t, func(archive *tar.Writer) error {
		if err := archive.WriteHeader(&head); err != nil {
			return err
		}
		_, err := io.CopyN(archive, zeros{}, head.Size)
		return err
	})
}

// holes is an archive of one file of a TiB that has no bytes: tar --sparse --format=gnu, or --format=pax, in which the
// file is a regular one.
func holes(t testing.TB, format string) *bytes.Buffer {
	t.Helper()
	text := expect.Value(os.ReadFile("testdata/holes-" + format + ".tar.gz"))(t)
	return bytes.NewBuffer(text)
}

func TestWhatNoReportHasIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		archive *bytes.Buffer
		says    string
	}{
		"a text":               {bytes.NewBufferString(strings.Repeat("text", 100)), "gzip"},
		"a path upward":        {entry(t, tar.Header{Name: "objects/../../x"}), "no proper name"},
		"a path from the root": {entry(t, tar.Header{Name: "/etc/x"}), "no proper name"},
		"a path with a dot":    {entry(t, tar.Header{Name: "./x"}), "no proper name"},
		"no name":              {entry(t, tar.Header{Name: ""}), "no proper name"},
		"a symbolic link":      {entry(t, tar.Header{Name: "a", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}), "no regular file"},
		"a hard link":          {entry(t, tar.Header{Name: "a", Linkname: "b", Typeflag: tar.TypeLink}), "no regular file"},
		"a device":             {entry(t, tar.Header{Name: "a", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}), "no regular file"},
		"a block device":       {entry(t, tar.Header{Name: "a", Typeflag: tar.TypeBlock}), "no regular file"},
		"a pipe":               {entry(t, tar.Header{Name: "a", Typeflag: tar.TypeFifo}), "no regular file"},
		"a directory":          {entry(t, tar.Header{Name: "a/", Typeflag: tar.TypeDir}), "no regular file"},
		"a file of holes":      {holes(t, "gnu"), "no regular file"},
		"a newer one":          {holes(t, "pax"), "more than 512 MiB"},
		"a large file":         {entry(t, tar.Header{Name: "a", Size: mostBytes + 1}), "more than 512 MiB"},
		"many large files": {packed(t, func(a *tar.Writer) (err error) {
			for i := 0; i < 3 && err == nil; i++ {
				if err = a.WriteHeader(&tar.Header{Name: fmt.Sprint(i), Size: mostBytes / 2}); err == nil {
					_, err = io.CopyN(a, zeros{}, mostBytes/2)
				}
			}
			return err
		}), "more than 512 MiB"},
		"a million files": {packed(t, func(a *tar.Writer) (err error) {
			for i := 0; i < 1_000_000 && err == nil; i++ {
				err = a.WriteHeader(&tar.Header{Name: fmt.Sprint(i)})
			}
			return err
		}), "more than 100000 files"},
		"a file twice": {packed(t, func(a *tar.Writer) error {
			_ = a.WriteHeader(&tar.Header{Name: "a"})
			return a.WriteHeader(&tar.Header{Name: "a"})
		}), "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			if files, err := Read(tt.archive); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %d files, %v; want %q", len(files), err, tt.says)
			}
		})
	}
}

// An archive in an archive is a file like any other.
func TestAnArchiveInAnArchiveStaysPacked(t *testing.T) {
	inner := entry(t, tar.Header{Name: "a", Size: 100 << 20}).Bytes()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	files, err := Read(packed(t, func(a *tar.Writer) error {
		_ = a.WriteHeader(&tar.Header{Name: "inner.tar.gz", Size: int64(len(inner))})
		_, err := a.Write(inner)
		return err
	}))
	runtime.ReadMemStats(&after)
	expect.That(t, err == nil && bytes.Equal(files["inner.tar.gz"], inner) && after.TotalAlloc-before.TotalAlloc <= 50<<20,
		"got %d files, %v, and %d bytes of memory", len(files), err, after.TotalAlloc-before.TotalAlloc)
}

func TestOnlyARegularFileIsOpened(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	expect.OK(t, syscall.Mkfifo(pipe, 0o600))
	for _, path := range []string{pipe, "/dev/zero", t.TempDir(), pipe + ".none"} {
		_, err := Open(t.Context(), path)
		expect.That(t, err != nil, "%s was read", path)
	}
}

// A reading that is interrupted ends.
func TestReadingEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	expect.OK(t, os.WriteFile(path, entry(t, tar.Header{Name: "a", Size: 100 << 20}).Bytes(), 0o600))
	ctx, end := context.WithCancel(t.Context())
	end()
	_, err := Open(ctx, path)
	expect.That(t, err != nil, "it was read")
}

// FuzzRead: an archive is an error, or files with names that stay where they are, of no more bytes than it may have.
func FuzzRead(f *testing.F) {
	for _, archive := range []*bytes.Buffer{
		{}, bytes.NewBufferString("text"), holes(f, "gnu"), holes(f, "pax"), entry(f, tar.Header{Name: "a", Size: 3}), entry(f, tar.Header{Name: "../a"}),
		entry(f, tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "b"}), entry(f, tar.Header{Name: strings.Repeat("a/", 200) + "a"}),
	} {
		text := archive.Bytes()
		if unpacked, err := gzip.NewReader(archive); err == nil {
			text, err = io.ReadAll(unpacked)
			expect.OK(f, err)
		}
		f.Add(text) // the fuzzer knows no checksums of gzip
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		compressed := &bytes.Buffer{}
		writer, _ := gzip.NewWriterLevel(compressed, gzip.NoCompression)
		_, _ = writer.Write(text)
		_ = writer.Close()
		files, err := Read(compressed)
		expect.Must(t, (err == nil) == (files != nil), "%d files and error %v", len(files), err)
		size := 0
		for name, content := range files {
			expect.Must(t, filepath.IsLocal(name) && filepath.Clean(name) == name, "a file has the name %q", name)
			size += len(content)
		}
		expect.Must(t, size <= mostBytes, "%d bytes became %d", len(text), size)
	})
}
