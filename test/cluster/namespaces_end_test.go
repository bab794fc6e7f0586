package cluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// TestNamespacesEnd deletes namespaces whose count of held claims is stale, in every
// mode: what is in them is in use, and nothing of it stays.
func TestNamespacesEnd(t *testing.T) {
	guard(t)
	t.Run("whatever their mode", func(t *testing.T) {
		for _, mode := range []string{"off", "observe", "barrier", "hold", "strict"} {
			t.Run(mode, func(t *testing.T) { aside(t); namespaceInModeEnds(t, mode) })
		}
	})
	t.Run("the operator dies between two writes", namespaceEndsAfterDeath)
}

func namespaceInModeEnds(t *testing.T, mode string) {
	s := newGuarded(t)
	s.patch(s.itself(), `{"metadata":{"labels":{"protection.lockstep.dev/mode":"`+mode+`"}}}`)
	s.settleInMode(mode)
	s.deleteUncounted()
	s.namespaceEnds()
}

// settleInMode brings up a set with claims, and a Deployment whose pods no node takes.
func (s *guarded) settleInMode(mode string) {
	s.Helper()
	set := s.newSet("a", 1, 2, imageA, volumes(keepClaims, keepClaims), hasty)
	s.create(set)
	s.awaitSettled(set)
	s.awaitBound(2)
	s.create(s.holders()[1].Object)
	s.claim("deploy", nil)
	if held, _ := pvc.ParseMode(mode); held >= pvc.Hold {
		s.awaitHeld("data-a-0", "data-a-0-1", "deploy")
	}
}

// deleteUncounted deletes the namespace in a moment in which it tells of no held
// claims, as one does that were held only just now.
func (s *guarded) deleteUncounted() {
	s.Helper()
	s.eventually("the namespace is being deleted", func() error {
		itself := s.itself()
		s.annotate(itself, pvc.HeldClaimsAnnotation, "")
		return s.client.Delete(s.Context(), itself)
	})
}

// namespaceEndsAfterDeath: the hold is off, and who took it off died before deleting
// the claim.
func namespaceEndsAfterDeath(t *testing.T) {
	s := newGuarded(t)
	claim, deployment := s.wanted(nil)
	s.check("kill the operator", bed.operator.kill())
	s.deleteUncounted()
	s.remove(deployment, propagation(metav1.DeletePropagationBackground))
	s.annotate(claim, pvc.HoldersAnnotation, "")
	s.check("start the operator", bed.operator.start())
	s.namespaceEnds()
}
