package integration

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"lockstep.dev/lockstep/internal/install"
)

// TestPoliciesFromFilesCannotBeDeleted has an API server load the policies at its start.
// They do what they do elsewhere, with nothing installed, and are no objects that
// anybody could delete. Installed as well, they do it twice.
func TestPoliciesFromFilesCannotBeDeleted(t *testing.T) {
	dir := t.TempDir()
	if err := install.Install(t.Context(), install.Options{StaticPolicies: dir, Out: io.Discard}); err != nil {
		t.Fatal(err)
	}
	g := newGuarded(t, map[string]string{"admission-control-config-file": filepath.Join(dir, "admission.yaml")})
	g.inForce()
	var validating admissionv1.ValidatingAdmissionPolicyList
	var mutating admissionv1.MutatingAdmissionPolicyList
	g.needs(g.List(t.Context(), &validating))
	g.needs(g.List(t.Context(), &mutating))
	if n := len(validating.Items) + len(mutating.Items); n > 0 {
		t.Errorf("%d policies can be deleted", n)
	}
	var out bytes.Buffer
	err := install.Uninstall(t.Context(), install.Options{REST: g.config, Timeout: 2 * time.Second, Out: &out})
	if err == nil || !strings.Contains(err.Error(), "lockstep install --static-policies") {
		t.Errorf("with the files in place, uninstall ends with %v\n%s", err, &out)
	}
	c := g.claim("precious", held)
	g.mustRefuse(g.Delete(t.Context(), c), "ValidatingAdmissionPolicy 'refuse-delete.protection.lockstep.dev.static.k8s.io'")
	g.mustRefuse2(g.alice.Patch(t.Context(), c.DeepCopy(), noFinalizers), "the claim is in use: StatefulSet/db, +2. Its finalizers")

	for _, file := range []string{"barrier.yaml", "forged.yaml", "refuse.yaml", "guard.yaml"} {
		g.apply(file)
	}
	g.until("what is installed is there as well", func() bool {
		g.needs(g.List(t.Context(), &validating))
		return len(validating.Items) > 0
	})
	g.mustRefuse(g.Delete(t.Context(), c), "in use")
	if twice := g.claim("twice", nil); len(twice.Finalizers) != 2 {
		t.Errorf("born with %q", twice.Finalizers)
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	policy.Name = "mine.static.k8s.io"
	if err := g.Create(t.Context(), policy); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		t.Errorf("a request under a name for files ended with %v", err)
	}
}
