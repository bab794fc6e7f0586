package install

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"
)

func TestNoTimeToWaitIsRefusedBeforeAnythingIsAsked(t *testing.T) {
	for _, do := range []func(context.Context, Options) error{Install, Uninstall} {
		for _, timeout := range []time.Duration{0, -time.Second} {
			if err := do(t.Context(), Options{Timeout: timeout}); err == nil || !strings.Contains(err.Error(), "--timeout "+timeout.String()) {
				t.Errorf("got %v", err)
			}
		}
	}
}

// Files have all that is installed, each kind where its plugin looks, under names that
// no request can have.
func TestStaticPoliciesAreThoseInstalled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "policies")
	o := with("protection: {mode: Hold, alone: true}")
	var out bytes.Buffer
	o.StaticPolicies, o.Out = dir, &out
	if err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	var files []*unstructured.Unstructured
	for _, plugin := range plugins {
		found := must(read(os.DirFS(filepath.Join(dir, plugin.directory))))
		for _, u := range found {
			if strings.TrimSuffix(u.GetKind(), "Binding") != plugin.name {
				t.Errorf("%s is among the files of %s", title(u), plugin.name)
			}
			if policy, bound, _ := unstructured.NestedString(u.Object, "spec", "policyName"); !strings.HasSuffix(u.GetName(), staticSuffix) || bound && policy != u.GetName() {
				t.Errorf("%s of policy %q", title(u), policy)
			}
		}
		files = append(files, found...)
	}
	installed := 0
	for _, u := range load(t, o) {
		if ofProtection(u) && strings.Contains(u.GetKind(), "AdmissionPolicy") {
			installed++
		}
	}
	if installed == 0 || len(files) != installed {
		t.Errorf("%d are installed, and %d are in files", installed, len(files))
	}
	var admission struct {
		Plugins []struct {
			Name          string
			Configuration struct{ StaticManifestsDir string }
		}
	}
	if err := sigsyaml.Unmarshal(must(os.ReadFile(filepath.Join(dir, admissionFile))), &admission); err != nil {
		t.Fatal(err)
	}
	for i, plugin := range plugins {
		if got := admission.Plugins[i]; got.Name != plugin.name || got.Configuration.StaticManifestsDir != filepath.Join(dir, plugin.directory) {
			t.Errorf("got %+v", got)
		}
	}
	if !strings.Contains(out.String(), "--admission-control-config-file="+filepath.Join(dir, admissionFile)) {
		t.Errorf("said %q", out.String())
	}
}

func TestStaticPoliciesOfNothingAreRefused(t *testing.T) {
	o := with("protection: {enabled: false}")
	o.StaticPolicies, o.Out = t.TempDir(), &bytes.Buffer{}
	if err := Install(t.Context(), o); err == nil || !strings.Contains(err.Error(), "nothing to write") {
		t.Errorf("got %v", err)
	}
}
