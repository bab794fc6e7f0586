package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

func settings(t *testing.T, text string) ProtectionSettings {
	t.Helper()
	c := must(LoadConfig(write(t, header+text)))
	if faults := ValidateConfig(c); len(faults) > 0 {
		t.Fatal(faults.ToAggregate())
	}
	return SettingsOf(c.Protection, "lws-system")
}

func TestProtectionDefaults(t *testing.T) {
	c := must(LoadConfig(""))
	if !*c.Protection.Enabled {
		t.Error("it is off")
	}
	want := ProtectionSettings{
		Settings:   pvc.Settings{Mode: pvc.Barrier, Exempt: []string{"kube-system", "lws-system"}, Idle: pvc.IdleWarns},
		Kinds:      []workloads.Kind{workloads.JobSet},
		Grace:      5 * time.Minute,
		ReleaseTTL: time.Hour,
	}
	if diff := cmp.Diff(want, SettingsOf(c.Protection, "lws-system")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProtectionSettings(t *testing.T) {
	got := settings(t, `
protection:
  enabled: false
  mode: Strict
  alone: true
  exemptNamespaces: [a, lws-system]
  idle: Hold
  graceSeconds: 0
  releaseTTLSeconds: 60
  kinds:
  - apiVersion: example.com/v1
    kind: Shard
    podTemplates: [spec.template]
    claimTemplates: [spec.claims]
    claimName: "{template}-{name}-{ordinal}"
    replicas: spec.size
    suspend: spec.pause
    finished: [Done]
`)
	want := ProtectionSettings{
		Settings: pvc.Settings{Mode: pvc.Strict, Alone: true, Exempt: []string{"a", "lws-system"}, Idle: pvc.IdleHolds},
		Kinds: []workloads.Kind{workloads.KindOf(v1alpha1.WorkloadKind{
			APIVersion: "example.com/v1", Kind: "Shard",
			PodTemplates:   []string{"spec.template"},
			ClaimTemplates: []string{"spec.claims"},
			ClaimName:      "{template}-{name}-{ordinal}",
			Replicas:       "spec.size",
			Suspend:        "spec.pause",
			Finished:       []string{"Done"},
		}), workloads.JobSet},
		ReleaseTTL: time.Minute,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSettingsFollowTheConfiguration(t *testing.T) {
	jobSet := "protection: {kinds: [{apiVersion: jobset.x-k8s.io/v1, kind: JobSet, podTemplates: [spec.template]}]}"
	if got := settings(t, "protection: {exemptNamespaces: []}").Exempt; len(got) != 1 || got[0] != "lws-system" {
		t.Errorf("the operator's own namespace is not exempt: %q", got)
	}
	if got := settings(t, jobSet).Kinds; len(got) != 1 || got[0].Version != "v1" {
		t.Errorf("a configured JobSet does not replace the built-in one: %+v", got)
	}
	for _, text := range []string{"Off", `"Off"`} { // in YAML, off is a boolean
		if got := settings(t, "protection: {mode: "+text+"}").Mode; got != pvc.Off {
			t.Errorf("%s: %s", text, got)
		}
	}
	if _, err := LoadConfig(write(t, header+"protection: {mode: On}")); err == nil || !strings.Contains(err.Error(), "a mode is a word such as Barrier, not true") {
		t.Errorf("got %v", err)
	}
}

func TestAllModesCanBeConfigured(t *testing.T) {
	for word, mode := range protectionModes {
		if want := strings.ToLower(string(word)); mode.String() != want {
			t.Errorf("%s is read as %s", word, mode)
		}
	}
	if len(protectionModes) != int(pvc.Strict)+1 || len(idlePolicies) != int(pvc.IdleFrees)+1 {
		t.Error("a mode or an idle policy cannot be configured")
	}
}
