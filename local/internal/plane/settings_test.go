package plane

import (
	"errors"
	"strings"
	"testing"
)

// catalog is a tiny set of programs.
type catalog struct{}

func (catalog) CheckFeatureGates(gates map[string]bool) error {
	for gate := range gates {
		if gate != "Known" {
			return errors.New("unrecognized feature gate: " + gate)
		}
	}
	return nil
}

func (catalog) Controllers() []string {
	return []string{"garbage-collector-controller", "job-controller"}
}

func (catalog) AdmissionPlugins() []string { return []string{"PodSecurity", "Priority"} }

func TestSettingsValidate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Settings)
		says   string // empty: accepted
	}{
		"defaults":                {func(*Settings) {}, ""},
		"no nodes":                {func(s *Settings) { s.Nodes = 0 }, ""},
		"known gate":              {func(s *Settings) { s.FeatureGates = map[string]bool{"Known": false} }, ""},
		"known plugin":            {func(s *Settings) { s.DisableAdmission = []string{"Priority"} }, ""},
		"all controllers but one": {func(s *Settings) { s.Controllers = []string{"*", "-garbage-collector-controller"} }, ""},
		"one controller":          {func(s *Settings) { s.Controllers = []string{"job-controller"} }, ""},

		"negative nodes":     {func(s *Settings) { s.Nodes = -1 }, "--nodes -1"},
		"too many nodes":     {func(s *Settings) { s.Nodes = MaxNodes + 1 }, "from 0 to 5000"},
		"no queries":         {func(s *Settings) { s.ControllerQPS = 0 }, "--kcm-qps 0"},
		"unknown stages":     {func(s *Settings) { s.Stages = "bogus" }, `--stages: unknown set of stages "bogus": known are guarded, stock`},
		"unknown gate":       {func(s *Settings) { s.FeatureGates = map[string]bool{"Bogus": true} }, "--feature-gates: unrecognized feature gate: Bogus"},
		"unknown plugin":     {func(s *Settings) { s.DisableAdmission = []string{"Bogus"} }, `unknown admission plugin "Bogus": known are PodSecurity, Priority`},
		"unknown controller": {func(s *Settings) { s.Controllers = []string{"*", "-bogus"} }, `unknown controller "bogus": known are garbage-collector-controller, job-controller`},
		"no controllers":     {func(s *Settings) { s.Controllers = nil }, "--kcm-controllers: nothing selected"},
	} {
		settings := DefaultSettings()
		c.change(&settings)
		err := settings.Validate(catalog{})
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: refused: %v", name, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: error %v, want one that says %q", name, err, c.says)
		}
	}
}

func TestValidateTellsEverythingAtOnce(t *testing.T) {
	err := Settings{Nodes: -1, ControllerQPS: -1, Controllers: []string{"*"}}.Validate(catalog{})
	if err == nil || !strings.Contains(err.Error(), "--nodes") || !strings.Contains(err.Error(), "--kcm-qps") {
		t.Errorf("error %v, want one about --nodes and --kcm-qps", err)
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
