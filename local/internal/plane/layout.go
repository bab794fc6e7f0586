package plane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"lockstep.dev/lockstep/local/internal/process"
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

func (l Layout) inner(elem ...string) string {
	return filepath.Join(append([]string{l.Dir, "control-plane"}, elem...)...)
}

func (l Layout) pki(file string) string { return l.inner("pki", file) }

func (l Layout) config(file string) string { return l.inner("config", file) }

func (l Layout) etcdData() string { return l.inner("etcd") }

// clear removes what an earlier cluster left, and nothing else. Without our mark in the
// directory, files with these names belong to the user and stay.
func (l Layout) clear(marked bool) error {
	for _, path := range []string{l.Kubeconfig(), l.AuditLog(), l.inner()} {
		if _, err := os.Lstat(path); err == nil && !marked {
			return fmt.Errorf("directory %q holds %q but no cluster of ours: give an empty or new directory with --dir", l.Dir, filepath.Base(path))
		}
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

// State is what is remembered of a cluster between commands.
//
//	(no file) ──up──► Running ──down──► not Running, no processes ──up──► …
//
// It is written after every start of a process, so that an up that is itself
// killed leaves nothing that a down does not find.
type State struct {
	Running   bool                           `json:"running"`
	Settings  Settings                       `json:"settings"`
	Ports     Ports                          `json:"ports"`
	Processes map[Component]process.Identity `json:"processes,omitempty"`
}

// loadState reads the state of a directory; found is false if there was never a cluster in it.
func loadState(l Layout) (state State, found bool, err error) {
	data, err := os.ReadFile(l.state())
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, false, nil
	}
	if err != nil {
		return State{}, false, err
	}
	state.Processes = map[Component]process.Identity{}
	if err := json.Unmarshal(data, &state); err != nil {
		return State{}, false, fmt.Errorf("%s: %w: remove the file if no cluster of this directory runs", l.state(), err)
	}
	return state, true, nil
}

// save replaces the file whole: a reader sees the old state or the new one.
func (s State) save(l Layout) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(l.state(), append(data, '\n'), 0o644)
}

// alive lists the components whose process still runs.
func (s State) alive() []Component {
	return slices.DeleteFunc(slices.Clone(Components), func(c Component) bool { return !s.Processes[c].Alive() })
}

// writeFile replaces a file whole. Only the holder of the lock writes.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	if err := os.WriteFile(path+".new", data, mode); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// acquire makes this the only command at work on a directory, waiting up to patience for another to finish. The kernel
// gives the lock back when the holder ends, however it ends.
func acquire(ctx context.Context, l Layout, patience time.Duration) (release func(), err error) {
	file, err := os.OpenFile(filepath.Join(l.Dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
	if err == nil {
		return func() { file.Close() }, nil
	}
	file.Close()
	if wait.Interrupted(err) && ctx.Err() == nil {
		err = errors.New("another lockstep-local command is at work in it: wait for it to finish, or end it")
	}
	return nil, fmt.Errorf("directory %q: %w", l.Dir, err)
}
