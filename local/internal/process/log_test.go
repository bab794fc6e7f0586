package process

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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

// buffer is read while Copy writes to it.
type buffer struct {
	mutex sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.Buffer.Write(p)
}

func (b *buffer) await(t *testing.T, want string) {
	t.Helper()
	for {
		b.mutex.Lock()
		got := b.String()
		b.mutex.Unlock()
		if got == want {
			return
		}
		if !strings.HasPrefix(want, got) {
			t.Fatalf("copied %q, want %q", got, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestCopyFollows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write := func(text string, flags int) {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|flags, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n", 0)
	ctx, cancel := context.WithCancel(context.Background())
	out := &buffer{}
	done := make(chan error)
	go func() { done <- Copy(ctx, path, out, true) }()
	out.await(t, "one\n")
	write("two\n", os.O_APPEND)
	out.await(t, "one\ntwo\n")
	write("new\n", os.O_TRUNC) // a cluster begun anew
	out.await(t, "one\ntwo\nnew\n")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestCopyWithoutFollowing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("all\nof it"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Copy(context.Background(), path, &out, false); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "all\nof it"; got != want {
		t.Errorf("copied %q, want %q", got, want)
	}
}
