package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lockstep.dev/lockstep/internal/pvc"
)

func settings(t *testing.T, text string) ProtectionSettings {
	t.Helper()
	c, err := LoadConfig(write(t, header+text))
	if err != nil {
		t.Fatal(err)
	}
	if faults := ValidateConfig(c); len(faults) > 0 {
		t.Fatal(faults.ToAggregate())
	}
	return SettingsOf(c.Protection, "lws-system")
}

func TestProtectionIsOnAndGentleByDefault(t *testing.T) {
	c, err := LoadConfig("")
	if err != nil {
		t.Fatal(err)
	}
	if !*c.Protection.Enabled {
		t.Error("it is off")
	}
	want := ProtectionSettings{
		Settings:   pvc.Settings{Mode: pvc.Barrier, Exempt: []string{"kube-system", "lws-system"}, Idle: pvc.IdleWarns},
		Kinds:      []pvc.Kind{pvc.JobSet},
		Grace:      5 * time.Minute,
		ReleaseTTL: time.Hour,
	}
	if diff := cmp.Diff(want, SettingsOf(c.Protection, "lws-system")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEverythingOfProtectionCanBeChosen(t *testing.T) {
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
		Kinds: []pvc.Kind{{
			GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Shard"},
			Templates:        []string{"spec.template"},
			ClaimTemplates:   []string{"spec.claims"},
			ClaimName:        "{template}-{name}-{ordinal}",
			Replicas:         "spec.size",
			Suspend:          "spec.pause",
			Finished:         []string{"Done"},
		}, pvc.JobSet},
		ReleaseTTL: time.Minute,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAnEmptyListExemptsOurOwnNamespaceAlone(t *testing.T) {
	if diff := cmp.Diff([]string{"lws-system"}, settings(t, "protection: {exemptNamespaces: []}").Exempt); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// In YAML, off is a truth value.
func TestOffNeedsNoQuotes(t *testing.T) {
	for _, text := range []string{"Off", `"Off"`} {
		if got := settings(t, "protection: {mode: "+text+"}").Mode; got != pvc.Off {
			t.Errorf("%s: %s", text, got)
		}
	}
	if _, err := LoadConfig(write(t, header+"protection: {mode: On}")); err == nil || !strings.Contains(err.Error(), "a mode is a word such as Barrier, not true") {
		t.Errorf("got %v", err)
	}
}

func TestADescriptionOfJobSetReplacesOurs(t *testing.T) {
	got := settings(t, "protection: {kinds: [{apiVersion: jobset.x-k8s.io/v1, kind: JobSet, podTemplates: [spec.template]}]}").Kinds
	if len(got) != 1 || got[0].Version != "v1" {
		t.Errorf("got %+v", got)
	}
}

func TestEveryWordOfProtectionIsKnown(t *testing.T) {
	for word, mode := range protectionModes {
		if want := strings.ToLower(string(word)); mode.String() != want {
			t.Errorf("%s stands for %s", word, mode)
		}
	}
	if len(protectionModes) != int(pvc.Strict)+1 || len(idlePolicies) != int(pvc.IdleFrees)+1 {
		t.Error("there are words that nobody can write")
	}
}

func TestFaultsOfProtectionNameTheirField(t *testing.T) {
	for text, want := range map[string]string{
		"mode: barrier":                         `protection.mode: Unsupported value: "barrier": supported values: "Barrier", "Hold", "Observe", "Off", "Strict"`,
		"idle: Keep":                            `protection.idle: Unsupported value: "Keep": supported values: "Free", "Hold", "Warn"`,
		"initialHold: Maybe":                    `protection.initialHold: Unsupported value: "Maybe": supported values: "None", "Pending"`,
		"graceSeconds: -1":                      `protection.graceSeconds: Invalid value: -1: must be between 0 and 86400, inclusive`,
		"releaseTTLSeconds: 0":                  `protection.releaseTTLSeconds: Invalid value: 0: must be between 1 and 86400, inclusive`,
		"exemptNamespaces: [Prod]":              `protection.exemptNamespaces[0]: Invalid value: "Prod": `,
		"exemptNamespaces: [a, b, a]":           `protection.exemptNamespaces[2]: Duplicate value: "a"`,
		"kinds: [{kind: A}]":                    `protection.kinds[0]: Required value: apiVersion and kind name the workload`,
		"kinds: [{apiVersion: a/b/c, kind: A}]": `protection.kinds[0].apiVersion: Invalid value: "a/b/c": must be group/version`,
		"kinds: [{apiVersion: a/v1, kind: A}]":  `protection.kinds[0]: Invalid value: "A": workload "A": neither pod templates nor claim templates`,
		"kinds: [{apiVersion: a/v1, kind: A, podTemplates: ['spec..x']}]":                                                            `protection.kinds[0].podTemplates[0]: Invalid value: "spec..x": must be names of fields with dots between`,
		"kinds: [{apiVersion: a/v1, kind: A, podTemplates: ['']}]":                                                                   `protection.kinds[0].podTemplates[0]: Required value: a path cannot be empty`,
		"kinds: [{apiVersion: a/v1, kind: A, podTemplates: [spec.x], suspend: '$.x'}]":                                               `protection.kinds[0].suspend: Invalid value: "$.x": `,
		"kinds: [{apiVersion: apps/v1, kind: StatefulSet, podTemplates: [spec.x]}]":                                                  `protection.kinds[0].kind: Invalid value: "StatefulSet": is known without being described; leave it out`,
		"kinds: [{apiVersion: a/v1, kind: A, podTemplates: [spec.x]}, {apiVersion: a/v2, kind: A, podTemplates: [spec.x]}]":          `protection.kinds[1].kind: Duplicate value: "A.a"`,
		"kinds: [{apiVersion: a/v1, kind: A, claimTemplates: [spec.x], claimName: '{name}'}]":                                        `claim name "{name}" does not contain {template}`,
		"kinds: [{apiVersion: a/v1, kind: A, claimTemplates: [spec.x], claimName: '{template}-{ordinal}', replicas: 'spec.size()'}]": `protection.kinds[0].replicas: Invalid value: "spec.size()"`,
	} {
		c, err := LoadConfig(write(t, header+"protection: {"+text+"}"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		faults := ValidateConfig(c)
		if len(faults) == 0 || !strings.Contains(faults.ToAggregate().Error(), want) {
			t.Errorf("%s: got %v, want %q", text, faults, want)
		}
	}
	if _, err := LoadConfig(write(t, header+"protection: {grace: 5}")); err == nil || !strings.Contains(err.Error(), `unknown field "protection.grace"`) {
		t.Errorf("a word that is not known: %v", err)
	}
}
