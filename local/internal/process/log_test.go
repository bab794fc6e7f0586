package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTail(t *testing.T) {
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
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, Tail(path, c.n)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := Tail(filepath.Join(t.TempDir(), "absent"), 5); got != nil {
		t.Errorf("a file that does not exist: %q", got)
	}
}
