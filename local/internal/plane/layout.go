package plane

import (
	"fmt"
	"os"
	"path/filepath"
)

// Layout is where things lie in a cluster's directory:
//
//	DIR/
//	├── kubeconfig            for users; there while the cluster is up
//	├── audit.log             with --audit; kept until the next up
//	├── cluster.json          what was started; marks the directory as ours
//	└── control-plane/
//	    ├── pki/ config/      made anew by every up
//	    ├── etcd/             gone after down
//	    └── log/              kept until the next up
type Layout struct {
	Dir string // absolute
}

// NewLayout makes dir absolute: the components run in directories of their own.
func NewLayout(dir string) (Layout, error) {
	if dir == "" {
		return Layout{}, fmt.Errorf("no directory given: give the directory of the cluster with --dir DIR")
	}
	abs, err := filepath.Abs(dir)
	return Layout{Dir: abs}, err
}

// Kubeconfig is the administrator's.
func (l Layout) Kubeconfig() string { return filepath.Join(l.Dir, "kubeconfig") }

// AuditLog has one JSON object per line.
func (l Layout) AuditLog() string { return filepath.Join(l.Dir, "audit.log") }

// Log is what a component wrote to its standard output and error.
func (l Layout) Log(c Component) string { return l.inner("log", string(c)+".log") }

func (l Layout) state() string { return filepath.Join(l.Dir, "cluster.json") }

func (l Layout) lock() string { return filepath.Join(l.Dir, ".lock") }

func (l Layout) inner(elem ...string) string {
	return filepath.Join(append([]string{l.Dir, "control-plane"}, elem...)...)
}

func (l Layout) pki(file string) string { return l.inner("pki", file) }

func (l Layout) config(file string) string { return l.inner("config", file) }

func (l Layout) etcdData() string { return l.inner("etcd") }

// ours lists what an up replaces. Nothing else in the directory is touched.
func (l Layout) ours() []string {
	return []string{l.Kubeconfig(), l.AuditLog(), l.inner()}
}

// clear removes what an earlier cluster left. Without our mark in the
// directory, files with these names belong to the user and stay.
func (l Layout) clear(marked bool) error {
	for _, path := range l.ours() {
		if _, err := os.Lstat(path); err == nil && !marked {
			return fmt.Errorf("directory %q holds %q but no cluster of ours: give an empty or new directory with --dir", l.Dir, filepath.Base(path))
		}
	}
	for _, path := range l.ours() {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

func (l Layout) create() error {
	for _, dir := range []string{"pki", "config", "log", "etcd"} {
		if err := os.MkdirAll(l.inner(dir), 0o700); err != nil {
			return err
		}
	}
	return nil
}
