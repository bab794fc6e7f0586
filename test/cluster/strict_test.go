package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/history"
)

// strictScene is a scene with a history in the API server's order.
type strictScene struct {
	*scene
	history *history.History
}

// newStrictScene creates a scene in mode strict.
func newStrictScene(t *testing.T) *strictScene {
	t.Helper()
	direct, err := kubernetes.NewForConfig(bed.rest)
	if err != nil {
		t.Fatal(err)
	}
	told, err := history.Begin(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	s := &strictScene{newScene(t), told}
	bed.hasSet(s.namespace) // the operator may write here
	s.setMode("strict")
	namespace := s.itself()
	s.check("read the namespace", s.client.Get(s.Context(), keyOf(namespace), namespace))
	t.Cleanup(func() { // it goes with its claims, before its scene is struck
		if err := s.client.Patch(context.Background(), namespace, released(namespace)); err != nil {
			t.Errorf("release namespace %s: %v", s.namespace, err)
		}
	})
	s.eventually("a pod that names its node is refused, and another is gated", func() error {
		named := s.newUser("probe", []string{"none"})
		named.Spec.NodeName = "nowhere"
		if err := s.client.Create(s.Context(), named, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("it is not refused: %w", err)
		}
		pod := s.newUser("probe", []string{"none"})
		err := s.client.Create(s.Context(), pod, client.DryRunAll)
		return errors.Join(err, lacking("gated", true, pvc.Gated(pod)))
	})
	return s
}

// isGated is an error unless a pod is gated.
func (s *scene) isGated(name string) error {
	pod, err := s.pod(name)
	if err == nil && (!pvc.Gated(pod) || pod.Spec.NodeName != "") {
		err = fmt.Errorf("gates %v, node %q", pod.Spec.SchedulingGates, pod.Spec.NodeName)
	}
	return err
}

// checkLifted checks that PVCs had the use record of a pod before its gate was lifted, and that it was
// bound after that.
func (s *strictScene) checkLifted(pod *corev1.Pod, claims ...string) {
	s.Helper()
	for _, name := range claims {
		s.check("claim "+name, lacking("use record", pod.Name+"="+string(pod.UID), s.recordOf(name)))
	}
	var told []history.Version
	s.eventually("it is told how pod "+pod.Name+" came to be bound", func() (err error) {
		told, err = s.history.Told(s.namespace)
		gated, bound := false, false
		for _, v := range told {
			if v.Pod != nil && v.Pod.UID == pod.UID {
				gated, bound = gated || pvc.Gated(v.Pod), bound || v.Pod.Spec.NodeName != ""
			}
		}
		return errors.Join(err, lacking("gated", true, gated), lacking("bound", true, bound))
	})
	s.check("how it came", history.Judge(told, true))
}

// TestStrictWritesPodsOnTheirClaimsBeforeTheyAreScheduled, with any scheduler, and keeps a pod gated
// that has to wait.
func TestStrictWritesPodsOnTheirClaimsBeforeTheyAreScheduled(t *testing.T) {
	aside(t)
	s := newStrictScene(t)
	s.boundClaim("data")
	claim := s.boundClaim("logs")
	s.create(s.newUser("web", []string{"data", "logs"}))
	s.checkLifted(s.awaitScheduled("web"), "data", "logs")
	s.create(s.newUser("none", nil))
	s.awaitScheduled("none")

	web, err := s.pod("web")
	s.check("pod web", err)
	s.remove(web)
	s.eventually("nobody stands on the claims", func() error {
		return errors.Join(lacking("use record", "", s.recordOf("logs")), lacking("use record", "", s.recordOf("data")))
	})

	s.check("release claim logs", s.client.Patch(s.Context(), claim.DeepCopy(), released(claim))) // the hold outlives the pod by its grace
	s.remove(claim)
	s.create(s.newUser("late", []string{"data", "logs"}))
	s.awaitEvent("late", "ClaimUnusable", "logs")
	s.check("pod late waits", s.isGated("late"))
	s.check("pod late waits for logs", lacking("use record", "", s.recordOf("data")))
	s.vanish(claim)
	s.awaitEvent("late", "AwaitingClaim", "logs")
	s.classClaim("logs", "local")
	s.checkLifted(s.awaitScheduled("late"), "data", "logs")
}

// TestStrictWaitsForTheOperator: pods stay gated while no operator runs.
func TestStrictWaitsForTheOperator(t *testing.T) {
	s := newStrictScene(t)
	s.boundClaim("data")
	s.check("kill the operator", bed.operator.Kill())
	s.create(s.newUser("web", []string{"data"}))
	s.awaitRefused("web", "SchedulingGated")
	s.check("nobody wrote on the claim", lacking("use record", "", s.recordOf("data")))
	s.check("start the operator", bed.operator.Start())
	s.checkLifted(s.awaitScheduled("web"), "data")
}
