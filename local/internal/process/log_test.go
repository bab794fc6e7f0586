package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTail(t *testing.T) {
	long := strings.Repeat("x", tailWindow)
	for name, c := range map[string]struct {
		text string
		n    int
		want []string
	}{
		"empty":                    {"", 3, nil},
		"only line ends":           {"\n\n\n", 3, nil},
		"fewer than asked":         {"a\nb\n", 3, []string{"a", "b"}},
		"more than asked":          {"a\nb\nc\nd\n", 2, []string{"c", "d"}},
		"last line not ended":      {"a\nb", 1, []string{"b"}},
		"blank lines within count": {"a\n\nb\n", 2, []string{"", "b"}},
		"none asked":               {"a\n", 0, nil},
		"beyond the window":        {"lost\n" + long + "\nlast\n", 1, []string{"last"}},
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Tail(path, c.n)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTailOfNothing(t *testing.T) {
	got, err := Tail(filepath.Join(t.TempDir(), "absent"), 5)
	if got != nil || err != nil {
		t.Errorf("Tail of a file that is not there: %q, %v", got, err)
	}
}
