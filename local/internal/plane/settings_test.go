package plane

import (
	"strings"
	"testing"
)

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
