package cluster

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
)

// uninstall runs "lockstep uninstall --keep-sets".
func uninstall() (string, error) {
	out, err := exec.Command(bed.Operator.Program, "uninstall", "--keep-sets", "--timeout", patience.String(), "--kubeconfig", bed.Operator.Kubeconfig).CombinedOutput()
	return string(out), err
}

// TestUninstallWithProtectedClaims removes Lockstep while it does not run. A terminating PVC in use stops
// that. In the end only built-in controllers protect PVCs.
func TestUninstallWithProtectedClaims(t *testing.T) {
	s := newScene(t)
	used, living := s.claim("used"), s.claim("living")
	pod := s.user("user", []string{"used"})
	s.Remove(used)
	s.stays(used)
	s.Eventually("the scenes before have ended", s.alone) // while there is an operator that lets their claims go
	s.Check("stop the operator", bed.Operator.Kill())
	t.Cleanup(func() {
		if err := errors.Join(bed.Operator.Install(), bed.Operator.Start()); err != nil {
			t.Fatal(err)
		}
	})

	out, err := uninstall()
	if err == nil || !strings.Contains(out, s.Namespace+"/used (is being deleted)") || !strings.Contains(out, "nothing was removed") {
		t.Fatalf("with a claim in use: %v\n%s", err, out)
	}
	policies := &admissionv1.MutatingAdmissionPolicyList{}
	s.Check("list policies", s.Client.List(t.Context(), policies))
	if len(policies.Items) == 0 {
		t.Fatal("there was no policy to take away")
	}

	s.Remove(pod, force)
	out, err = uninstall()
	t.Logf("%s", out)
	s.Check("uninstall", err)
	s.AwaitGone(used)
	s.AwaitFinalizers(living, podProtection)
	s.Check("list policies", s.Client.List(t.Context(), policies))
	if len(policies.Items) > 0 {
		t.Errorf("%d policies are left", len(policies.Items))
	}
	s.Remove(living)
	s.AwaitGone(living)
}

// alone is an error while a terminating PVC of another scene waits for Lockstep.
func (s *scene) alone() error {
	list := &corev1.PersistentVolumeClaimList{}
	err := s.Client.List(s.Context(), list)
	for i := range list.Items {
		claim := &list.Items[i]
		waits := slices.Contains(claim.Finalizers, podProtection) || slices.Contains(claim.Finalizers, barrier)
		if claim.Namespace != s.Namespace && claim.DeletionTimestamp != nil && waits {
			err = errors.Join(err, fmt.Errorf("claim %s of %s is on its way out", claim.Name, claim.Namespace))
		}
	}
	return err
}
