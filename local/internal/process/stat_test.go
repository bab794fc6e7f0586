package process

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// proc returns a /proc with one process.
func proc(t *testing.T, stat string) string {
	t.Helper()
	root := t.TempDir()
	for file, text := range map[string]string{"77/stat": stat, "sys/kernel/random/boot_id": "boot\n"} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755))
		must(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o644))
	}
	return root
}

func TestStartOf(t *testing.T) {
	const rest = " 1 2 3 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 202354 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
	const threads = " 1 2 3 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 12 0 202354 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
	for name, stat := range map[string]string{
		"plain":                     "77 (etcd) S" + rest,
		"brackets in the name":      "77 (x) Z 1 2) S" + rest,
		"leader ended, threads run": "77 (etcd) Z" + threads,
	} {
		got, err := startOf(proc(t, stat), 77)
		if err != nil || got != "boot/202354" {
			t.Errorf("%s: start %q, error %v; want boot/202354", name, got, err)
		}
	}
	for _, stat := range []string{"77 (etcd) Z" + rest, "77 (etcd) X" + rest, "", "77", "77 (etcd", "77 (etcd) S 1 2"} {
		if got, err := startOf(proc(t, stat), 77); !errors.Is(err, errGone) {
			t.Errorf("%q: start %q, error %v, want %v", stat, got, err, errGone)
		}
	}
	if _, err := startOf(proc(t, ""), 78); !errors.Is(err, errGone) {
		t.Errorf("another pid: error %v", err)
	}
}
