package protect_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"lockstep.dev/lockstep/internal/protect"
)

// There is no grace for what was scaled down and says that its claims go. What a stranger
// held, under a name that begins alike, may be on its way back.
func TestOnlyTheWorkloadsOwnPodsGoWithoutGrace(t *testing.T) {
	scaled := statefulSet("web", 2, func(s *appsv1.StatefulSet) {
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
	})
	for last, want := range map[string]protect.State{
		"StatefulSet/web": protect.Free, "Pod/web-3": protect.Free, "Pod/web-0-3": protect.Free, "Pod/web-3, StatefulSet/web": protect.Free,
		"Pod/web-tool-7f9c": protect.Cooling, "Pod/web-03": protect.Cooling, "Pod/web-1-2-3": protect.Cooling, "Pod/web-": protect.Cooling,
		"Pod/tool-7f9c": protect.Cooling, "Pod/web-3, Pod/web-tool": protect.Cooling, "Deployment/web-3": protect.Cooling,
	} {
		c := claim("data-web-3", annotated(protect.HoldersAnnotation, last), annotated(protect.VerifiedAnnotation, noon.Format(time.RFC3339)))
		if got := protect.DecideHold(holdView(c, protect.OfStatefulSet(scaled))).State; got != want {
			t.Errorf("after %s: %s, want %s", last, got, want)
		}
	}
}
