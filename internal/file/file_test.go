package file

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep.dev/lockstep/test/expect"
)

// zeros is a stream without an end, which fails the test when too much of it is read.
type zeros struct {
	t    *testing.T
	most int
}

func (z *zeros) Read(p []byte) (int, error) {
	z.most -= len(p)
	expect.Must(z.t, z.most >= 0, "it reads on")
	return len(p), nil
}

func TestReadAllIsBounded(t *testing.T) {
	exact := bytes.Repeat([]byte("x"), 1<<20)
	text, err := ReadAll(bytes.NewReader(exact), 1)
	expect.That(t, err == nil && bytes.Equal(text, exact), "a MiB: got %d bytes, %v", len(text), err)
	for name, from := range map[string]io.Reader{
		"a byte more":    io.MultiReader(bytes.NewReader(exact), strings.NewReader("x")),
		"without an end": &zeros{t, 2 << 20},
	} {
		_, err := ReadAll(from, 1)
		expect.That(t, err != nil && strings.Contains(err.Error(), "more than 1 MiB"), "%s: got %v", name, err)
	}
}

// The size of a file may be another when it is read, and a device has none.
func TestReadTrustsNoSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	expect.OK(t, os.WriteFile(path, []byte("text"), 0o600))
	expect.Equal(t, "text", string(expect.Value(Read(path, 1))(t)))
	expect.OK(t, os.Truncate(path, 1<<40))
	_, err := Read(path, 1)
	expect.That(t, err != nil && strings.HasPrefix(err.Error(), path), "got %v", err)
}

func TestCheckYAML(t *testing.T) {
	laughs := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for name := 'b'; name < 'j'; name++ {
		of := "*" + string(name-1)
		laughs += string(name) + ": &" + string(name) + " [" + strings.Repeat(of+",", 10) + "]\n"
	}
	long := strings.Repeat("x", 100<<10)
	for name, tt := range map[string]struct {
		text string
		fits bool
	}{
		"nothing":                      {"", true},
		"no YAML":                      {"a: [", true},
		"JSON":                         {`{"a":"&"}`, true},
		"documents that fit":           {strings.Repeat("---\na: "+long+"\n", 20), true},
		"a document that does not":     {"a: b\n---\na: " + strings.Repeat(long, 11) + "\n", false},
		"an alias that fits":           {"a: &a " + long + "\nb: [*a,*a,*a]\n", true},
		"a long text and many aliases": {"a: &a " + long + "\nb: [" + strings.Repeat("*a,", 11) + "]\n", false},
		"a key and many aliases":       {"? &a " + long + "\n: b\nc: [" + strings.Repeat("*a,", 11) + "]\n", false},
		"a merge of many":              {"a: &a {k: " + long + "}\nb: [" + strings.Repeat("{<<: *a},", 11) + "]\n", false},
		"aliases of aliases":           {laughs, false},
		"an alias of what it is in":    {"a: &a [*a]\n", false},
		"an alias of what is above":    {"a: &a {b: {c: *a}}\n", false},
	} {
		err := CheckYAML([]byte(tt.text), 1)
		expect.Equalf(t, tt.fits, err == nil, "%s: got %v", name, err)
	}
}
