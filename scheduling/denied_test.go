package scheduling_test

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/kube-scheduler/framework"
)

// TestASchedulerThatMayNotSaysSo: no change of a claim would help, so none is waited for.
// What one claim refuses for what it has become is looked into as before.
func TestASchedulerThatMayNotSaysSo(t *testing.T) {
	for _, verb := range []string{"get", "patch"} {
		s := newStage(t, "")
		s.cached(newClaim("data"))
		calls := 0
		s.refuse = func(v, name string) error {
			if v != verb {
				return nil
			}
			calls++
			return apierrors.NewForbidden(claimResource, name, errors.New("second-scheduler may not "+verb))
		}
		status := s.schedule(newPod("web", "data"))
		if status.Code() != framework.Error || !strings.Contains(status.Message(), "second-scheduler may not "+verb) || calls != 2 {
			t.Errorf("%s: got %v %q after %d calls", verb, status.Code(), status.Message(), calls)
		}
	}

	s := newStage(t, "")
	s.cached(newClaim("data"))
	writes := 0
	s.before = func() { s.live(newClaim("data")) }
	s.refuse = func(v, name string) error {
		if v == "patch" && writes < 3 {
			writes++
			return apierrors.NewForbidden(claimResource, name, errors.New("a guard refuses what it has become"))
		}
		return nil
	}
	status := s.schedule(newPod("web", "data"))
	if writes != 3 || status.Code() == framework.Error {
		t.Errorf("of a claim that changes each time: got %v %q after %d refusals", status.Code(), status.Message(), writes)
	}
}
