package plane

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBrokenStateIsAnError(t *testing.T) {
	l := Layout{Dir: t.TempDir()}
	must(t, os.WriteFile(l.state(), []byte("{half"), 0o600))
	if _, _, err := loadState(l); err == nil || !strings.Contains(err.Error(), l.state()) {
		t.Errorf("error %v, want one that names %s", err, l.state())
	}
}

func TestOnlyOneCommandAtATime(t *testing.T) {
	l := Layout{Dir: t.TempDir()}
	release, err := acquire(context.Background(), l, 0)
	must(t, err)
	if _, err := acquire(context.Background(), l, 0); err == nil || !strings.Contains(err.Error(), "another lockstep-local command") {
		t.Errorf("second command: %v", err)
	}
	release()
	release, err = acquire(context.Background(), l, 0)
	if err != nil {
		t.Fatalf("after the first has finished: %v", err)
	}
	release()
}

func TestClearRemovesOnlyOurFiles(t *testing.T) {
	l := Layout{Dir: t.TempDir()}
	foreign := filepath.Join(l.Dir, "notes.txt")
	for _, path := range []string{foreign, l.Kubeconfig(), l.AuditLog()} {
		must(t, os.WriteFile(path, []byte("x"), 0o600))
	}
	must(t, l.create())
	if err := l.clear(false); err == nil || !strings.Contains(err.Error(), l.Dir) {
		t.Errorf("without our marker: %v, want a refusal that names the directory", err)
	}
	if _, err := os.Stat(l.Kubeconfig()); err != nil {
		t.Errorf("without our marker, a kubeconfig was removed: %v", err)
	}
	must(t, l.clear(true))
	entries, err := os.ReadDir(l.Dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "notes.txt" {
		t.Errorf("left: %v, %v; want notes.txt only", entries, err)
	}
}

func TestLayoutIsAbsolute(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := NewLayout("some/dir")
	if err != nil || !filepath.IsAbs(l.Kubeconfig()) {
		t.Errorf("kubeconfig %q, %v; want an absolute path", l.Kubeconfig(), err)
	}
	if _, err := NewLayout(""); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("no directory: %v, want an error that names --dir", err)
	}
}
