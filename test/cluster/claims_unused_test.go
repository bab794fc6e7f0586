package cluster

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestUnusedClaimsBesideTheBuiltIn shows what the controller that is built in has
// claims say, and that we do not say it as well.
func TestUnusedClaimsBesideTheBuiltIn(t *testing.T) {
	aside(t)
	s := newScene(t)
	if said := saysUnused(s); len(said) > 0 {
		t.Errorf("two write one condition: %v", said)
	}
}

// saysUnused shows the condition that tells whether pods name a claim: the same,
// whoever writes it. It returns what the operator wrote.
func saysUnused(s *scene) []request {
	position := bed.audit.position()
	free, used, over, named := s.boundClaim("free"), s.boundClaim("used"), s.boundClaim("over"), s.boundClaim("named")
	finished, runs := s.user("finished", []string{"over"}), s.user("runs", []string{"used"})
	s.user("waits", []string{"named"}, unbound)
	s.awaitPhase(finished, corev1.PodRunning)
	for _, claim := range []*corev1.PersistentVolumeClaim{used, named, over} {
		s.awaitUnused(claim, corev1.ConditionFalse, "PodUsingPVC")
	}
	s.awaitUnused(free, corev1.ConditionTrue, "NoPodsUsingPVC")

	s.succeed(finished)
	s.remove(runs, client.GracePeriodSeconds(0))
	s.user("late", []string{"free"})
	s.awaitUnused(free, corev1.ConditionFalse, "PodUsingPVC")
	s.awaitUnused(over, corev1.ConditionTrue, "NoPodsUsingPVC")
	s.awaitUnused(used, corev1.ConditionTrue, "NoPodsUsingPVC")

	s.remove(used)
	s.awaitClaim("used", "is released", func(claim *corev1.PersistentVolumeClaim) error {
		return lacking("finalizers", fmt.Sprint([]string{foreign}), fmt.Sprint(claim.Finalizers))
	})
	gone := bed.audit.position()
	s.user("too-late", []string{"used"}, unbound)
	s.user("later", []string{"over"}, unbound)
	s.awaitUnused(over, corev1.ConditionFalse, "PodUsingPVC")
	s.awaitUnused(used, corev1.ConditionTrue, "NoPodsUsingPVC") // as it was: it is on its way out
	if said := s.saidUnused(gone); slices.ContainsFunc(said, func(r request) bool { return r.Name == "used" }) {
		s.Fatalf("of a claim on its way out: %v", said)
	}
	said := s.saidUnused(position)
	for _, claim := range []*corev1.PersistentVolumeClaim{free, used, over, named} {
		s.let(claim)
	}
	return said
}

// saidUnused is what the operator wrote on the status of claims.
func (s *scene) saidUnused(since int) []request {
	s.Helper()
	return slices.DeleteFunc(s.lockstepWrote(since), func(r request) bool {
		return r.Resource != "persistentvolumeclaims" || r.Subresource != "status"
	})
}

// awaitUnused waits until a claim says whether it is unused.
func (s *scene) awaitUnused(claim *corev1.PersistentVolumeClaim, status corev1.ConditionStatus, reason string) {
	s.Helper()
	s.awaitClaim(claim.Name, fmt.Sprintf("is unused: %s", status), func(claim *corev1.PersistentVolumeClaim) error {
		for _, c := range claim.Status.Conditions {
			if c.Type == corev1.PersistentVolumeClaimUnused {
				return lacking("condition", string(status)+" "+reason, string(c.Status)+" "+c.Reason)
			}
		}
		return fmt.Errorf("it says nothing: %v", claim.Status.Conditions)
	})
}
