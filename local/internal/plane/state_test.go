package plane

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep.dev/lockstep/local/internal/process"
)

func TestStateIsRemembered(t *testing.T) {
	l := Layout{Dir: t.TempDir()}
	if _, found, err := loadState(l); found || err != nil {
		t.Fatalf("empty directory: found %t, %v", found, err)
	}
	want := State{
		Running:   true,
		Settings:  Settings{Nodes: 3, Audit: true, ControllerQPS: 7, FeatureGates: map[string]bool{"A": true}, DisableAdmission: []string{"P"}, Controllers: []string{"*"}},
		Ports:     portsFrom(21000),
		Processes: map[Component]process.Identity{Etcd: {PID: 5, Start: "boot/9"}},
		Killed:    []Component{Kwok},
	}
	if err := want.save(l); err != nil {
		t.Fatal(err)
	}
	got, found, err := loadState(l)
	if err != nil || !found {
		t.Fatalf("found %t, %v", found, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBrokenStateIsNotOverlooked(t *testing.T) {
	l := Layout{Dir: t.TempDir()}
	if err := os.WriteFile(l.state(), []byte("{half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := loadState(l); err == nil || !strings.Contains(err.Error(), l.state()) {
		t.Errorf("error %v, want one that names %s", err, l.state())
	}
}

func TestKilledUntilStarted(t *testing.T) {
	var s State
	s.started(Etcd, process.Identity{PID: 5, Start: "x"})
	s.killed(Etcd)
	s.killed(Etcd)
	if diff := cmp.Diff(State{Processes: map[Component]process.Identity{}, Killed: []Component{Etcd}}, s); diff != "" {
		t.Errorf("after kill (-want +got):\n%s", diff)
	}
	s.started(Etcd, process.Identity{PID: 6, Start: "y"})
	if len(s.Killed) != 0 || s.Processes[Etcd].PID != 6 {
		t.Errorf("after restart: %+v", s)
	}
}

func TestOnlyOneCommandAtATime(t *testing.T) {
	l := Layout{Dir: t.TempDir()}
	release, err := acquire(context.Background(), l, 0)
	if err != nil {
		t.Fatal(err)
	}
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

func TestClearTouchesOnlyOurs(t *testing.T) {
	l := Layout{Dir: t.TempDir()}
	foreign := filepath.Join(l.Dir, "notes.txt")
	for _, path := range []string{foreign, l.Kubeconfig(), l.AuditLog()} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.create(); err != nil {
		t.Fatal(err)
	}
	if err := l.clear(false); err == nil || !strings.Contains(err.Error(), l.Dir) {
		t.Errorf("without our mark: %v, want a refusal that names the directory", err)
	}
	if _, err := os.Stat(l.Kubeconfig()); err != nil {
		t.Errorf("without our mark, a kubeconfig was removed: %v", err)
	}
	if err := l.clear(true); err != nil {
		t.Fatal(err)
	}
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

func TestSettingsValidate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Settings)
		says   []string // empty: accepted
	}{
		"defaults":       {func(*Settings) {}, nil},
		"no nodes":       {func(s *Settings) { s.Nodes = 0 }, nil},
		"negative nodes": {func(s *Settings) { s.Nodes = -1 }, []string{"--nodes -1"}},
		"too many nodes": {func(s *Settings) { s.Nodes = MaxNodes + 1 }, []string{"from 0 to 5000"}},
		"unknown stages": {func(s *Settings) { s.Stages = "bogus" }, []string{`--stages "bogus"`, "guarded, stock"}},
		"all at once":    {func(s *Settings) { s.Nodes, s.ControllerQPS = -1, 0 }, []string{"--nodes -1", "--kcm-qps 0"}},
	} {
		settings := DefaultSettings()
		c.change(&settings)
		err := settings.Validate()
		if (err == nil) != (c.says == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, says := range c.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %q in it", name, err, says)
			}
		}
	}
}

func TestParseComponent(t *testing.T) {
	for name, want := range map[string]Component{
		"etcd": Etcd, "kube-apiserver": APIServer, "kube-controller-manager": ControllerManager,
		"kube-scheduler": Scheduler, "kwok": Kwok,
	} {
		if got, err := ParseComponent(name); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"", "kubelet", "ETCD", "etcd "} {
		if got, err := ParseComponent(name); err == nil || !strings.Contains(err.Error(), "kube-scheduler") {
			t.Errorf("%q: %q, %v; want an error that lists the components", name, got, err)
		}
	}
}
