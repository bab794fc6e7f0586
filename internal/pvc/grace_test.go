package pvc_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// There is no grace for what was scaled down and says that its claims go. What a stranger
// held, under a name that begins alike, may be on its way back.
func TestOnlyTheWorkloadsOwnPodsGoWithoutGrace(t *testing.T) {
	scaled := statefulSet("web", 2, func(s *appsv1.StatefulSet) {
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
	})
	for last, want := range map[string]pvc.State{
		"StatefulSet/web": pvc.Free, "Pod/web-3": pvc.Free, "Pod/web-0-3": pvc.Free, "Pod/web-3, StatefulSet/web": pvc.Free,
		"Pod/web-tool-7f9c": pvc.Cooling, "Pod/web-03": pvc.Cooling, "Pod/web-1-2-3": pvc.Cooling, "Pod/web-": pvc.Cooling,
		"Pod/tool-7f9c": pvc.Cooling, "Pod/web-3, Pod/web-tool": pvc.Cooling, "Deployment/web-3": pvc.Cooling,
	} {
		c := claim("data-web-3", annotated(pvc.HoldersAnnotation, last), annotated(pvc.VerifiedAnnotation, noon.Format(time.RFC3339)))
		if got := pvc.DecideHold(holdView(c, pvc.OfStatefulSet(scaled))).State; got != want {
			t.Errorf("after %s: %s, want %s", last, got, want)
		}
	}
}
