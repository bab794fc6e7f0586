//go:build drills

package helm

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/test/drill"
)

const release = "lockstep"

// A release is installed, upgraded from the chart of the commit before, fails to upgrade, is rolled
// back, and is uninstalled. Sets, pods and PVCs stay throughout.
func TestLifecycle(t *testing.T) {
	for name, h := range tools() {
		t.Run(name, func(t *testing.T) { lifecycle(t, h) })
	}
}

func lifecycle(t *testing.T, h tool) {
	t.Cleanup(func() { clear(t, h, release) })
	wait := options{wait: patience}
	must(t, "install", h.install(release, namespace, from(t), merged(nil), wait))
	must(t, "await the roles", bed.Operator.AwaitRoles())
	s := newScene(t)

	must(t, "upgrade", h.upgrade(release, namespace, chartDir, merged(map[string]any{"replicas": 3}), wait))
	s.wantAll("upgrade")
	s.wantServed("upgraded")

	unschedulable := merged(map[string]any{"nodeSelector": map[string]any{"no": "such-node"}, "replicas": 3})
	if err := h.upgrade(release, namespace, chartDir, unschedulable, options{wait: 10 * time.Second}); err == nil {
		t.Error("an upgrade whose operator cannot run is reported as well")
	}
	s.wantAll("failed upgrade")
	must(t, "rollback", h.rollback(release, namespace, 2))
	s.wantAll("rollback")
	s.wantServed("rolled-back")

	newerDefinition(t, h, s)

	must(t, "uninstall", h.uninstall(release, namespace))
	if crd(t, setsName) == nil {
		t.Fatal("uninstall deleted the definition")
	}
	s.wantAll("uninstall")
	for kind, name := range map[string]string{
		"MutatingWebhookConfiguration": "lws-mutating-webhook-configuration", "ValidatingAdmissionPolicy": "lockstep-labels",
	} {
		if get(t, "admissionregistration.k8s.io/v1", kind, "", name) != nil {
			t.Errorf("uninstall left %s %s", kind, name)
		}
	}

	must(t, "install again", h.install(release, namespace, chartDir, merged(nil), wait))
	must(t, "await the roles", bed.Operator.AwaitRoles())
	s.RestartOperator()
	s.Eventually("the groups are ready", s.unready)
	s.wantAll("second install")
	s.wantServed("installed-again")
	freed(t, h, s)
}

// newerDefinition upgrades over a definition with one field more, and takes the field away again.
func newerDefinition(t *testing.T, h tool, s *scene) {
	editVersion(t, func(version map[string]any) error {
		return unstructured.SetNestedMap(version, map[string]any{"type": "string"}, newField...)
	})
	err := h.upgrade(release, namespace, chartDir, merged(nil), options{})
	if err == nil || !strings.Contains(err.Error(), "spec.placement") {
		t.Errorf("an upgrade that loses a field: %v", err)
	}
	if !hasNewField(t) {
		t.Error("the refused upgrade removed the field")
	}
	keep := merged(map[string]any{"crds": map[string]any{"keepFields": true}})
	must(t, "upgrade that keeps fields", h.upgrade(release, namespace, chartDir, keep, options{wait: patience}))
	if !hasNewField(t) {
		t.Error("the upgrade removed the field that it was to keep")
	}
	s.wantAll("upgrade over a newer definition")
	editVersion(t, func(version map[string]any) error {
		unstructured.RemoveNestedField(version, newField...)
		return nil
	})
}

var newField = []string{"schema", "openAPIV3Schema", "properties", "spec", "properties", "placement"}

func editVersion(t *testing.T, edit func(map[string]any) error) {
	t.Helper()
	live := crd(t, setsName)
	versions, _, _ := unstructured.NestedSlice(live.Object, "spec", "versions")
	must(t, "edit the definition", edit(versions[0].(map[string]any)))
	must(t, "edit the definition", unstructured.SetNestedSlice(live.Object, versions, "spec", "versions"))
	must(t, "write the definition", bed.Client.Update(t.Context(), live))
}

func hasNewField(t *testing.T) bool {
	versions, _, _ := unstructured.NestedSlice(crd(t, setsName).Object, "spec", "versions")
	_, found, _ := unstructured.NestedMap(versions[0].(map[string]any), newField...)
	return found
}

// freed removes the sets and the release, and then the finalizers that protection left on PVCs.
func freed(t *testing.T, h tool, s *scene) {
	for _, name := range []string{"plain", "data"} {
		s.Remove(s.Set(name))
	}
	s.Until("the sets are gone", func() bool { return len(s.Pods()) == 0 && s.Set("plain") == nil && s.Set("data") == nil })
	must(t, "uninstall", h.uninstall(release, namespace))
	must(t, "stop the operator", bed.Operator.Kill())
	must(t, "lockstep uninstall", lockstep("uninstall", "--keep-sets"))
	claims := s.Claims()
	if len(claims) == 0 {
		t.Error("no PVC is left to check")
	}
	for name, claim := range claims {
		s.Want("finalizers of "+name, drill.Lacking("barrier", false, strings.Contains(strings.Join(claim.Finalizers, " "), "protection.lockstep.dev")))
	}
}
