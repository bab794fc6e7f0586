package cluster

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// behaviours are what happens to a deleted PVC: those of the built-in controller, which the
// operator has too, beside it and in its place.
var behaviours = []struct {
	name string
	show func(*scene)
}{
	{"not in use", func(s *scene) {
		claim := s.claim("free")
		s.remove(claim)
		s.awaitGone(claim)
	}},
	{"a bound pod uses it", func(s *scene) {
		claim, pod := s.claim("used"), s.user("user", []string{"used"})
		s.awaitPhase(1, corev1.PodRunning)
		s.remove(claim)
		s.stays(claim)
		s.awaitEvent(claim.Name, "DeletionPostponed", "user")
		s.remove(pod)
		s.awaitGone(claim)
		s.awaitEvent(claim.Name, "DeletionReleased")
	}},
	{"an unbound pod uses it", func(s *scene) {
		claim := s.claim("named")
		s.user("waiting", []string{"named"}, unbound)
		s.remove(claim)
		s.awaitGone(claim)
	}},
	{"a pod that has finished uses it", func(s *scene) {
		claim, pod := s.claim("used"), s.user("finished", []string{"used"})
		s.awaitPhase(1, corev1.PodRunning)
		s.check("end the pod", s.client.Status().Patch(s.Context(), pod.DeepCopy(), merge(`{"status":{"phase":"Succeeded","containerStatuses":null}}`)))
		s.awaitPhase(1, corev1.PodSucceeded)
		s.remove(claim)
		s.stays(claim)
		s.remove(pod)
		s.awaitGone(claim)
	}},
	{"a pod that is being deleted uses it", func(s *scene) { usedWhileTerminating(s) }},
	{"a pod that was deleted by force uses it", func(s *scene) { usedWhileTerminating(s, client.GracePeriodSeconds(0)) }},
	{"a pod on the network of its node uses it", func(s *scene) {
		claim, pod := s.claim("used"), s.user("host", []string{"used"}, hostNetwork)
		s.remove(claim)
		s.stays(claim)
		s.remove(pod, client.GracePeriodSeconds(0))
		s.awaitGone(claim)
	}},
	{"a pod uses it for itself alone", ephemeral},
	{"a pod took the name of another that used it", func(s *scene) {
		claim, pod := s.claim("used"), s.user("user", []string{"used"})
		s.remove(claim)
		s.stays(claim)
		s.remove(pod, client.GracePeriodSeconds(0))
		s.user("user", nil)
		s.awaitGone(claim)
	}},
	{"two claims at once, of which one is used", func(s *scene) {
		used, free := s.claim("used"), s.claim("free")
		pod := s.user("user", []string{"used"})
		s.remove(used)
		s.remove(free)
		s.awaitGone(free)
		s.stays(used)
		s.remove(pod, client.GracePeriodSeconds(0))
		s.awaitGone(used)
	}},
	{"one pod uses two claims", func(s *scene) {
		a, b := s.claim("a"), s.claim("b")
		pod := s.user("user", []string{"a", "b"})
		s.remove(a)
		s.stays(a)
		s.remove(pod, client.GracePeriodSeconds(0))
		s.awaitGone(a)
		s.remove(b)
		s.awaitGone(b)
	}},
	{"others have finalizers on it, in any order", func(s *scene) {
		for i, order := range [][]string{
			{foreign, podProtection, barrier}, {barrier, foreign, podProtection},
			{podProtection, foreign}, {barrier, podProtection, foreign},
		} {
			claim := s.claim(fmt.Sprint("order-", i), order...)
			s.remove(claim)
			s.awaitFinalizers(claim, foreign)
			s.vanish(claim)
		}
	}},
	{"a pod slipped in", slippedIn},
	{"modes are chosen", chosenModes},
	{"it changes all the time", func(s *scene) {
		claim := s.claim("restless")
		s.remove(claim)
		s.eventually("it is gone", func() error {
			err := s.client.Patch(s.Context(), s.newClaim("restless"), merge(fmt.Sprintf(`{"metadata":{"annotations":{"example.com/beat":%q}}}`, s.unique())))
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, errStill)
		})
	}},
}

// usedWhileTerminating: a deleted pod holds its PVC until the pod is gone.
func usedWhileTerminating(s *scene, how ...client.DeleteOption) {
	claim, pod := s.claim("used"), s.user("leaving", []string{"used"}, pinned)
	s.awaitPhase(1, corev1.PodRunning)
	s.remove(claim)
	s.remove(pod, how...)
	s.stays(claim)
	s.let(pod)
	s.awaitGone(claim)
}

// ephemeral: a PVC of an ephemeral volume has no barrier, and its pod holds it.
func ephemeral(s *scene) {
	bed.hasSet(s.namespace)
	spec := s.newClaim("").Spec
	pod := s.user("user", nil, pinned, func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: spec}},
		}}}
	})
	claim := s.awaitClaim("user-scratch", "is there", func(*corev1.PersistentVolumeClaim) error { return nil })
	s.awaitFinalizers(claim, podProtection)
	s.remove(claim)
	s.outlastClaim()
	s.awaitFinalizers(claim, podProtection)
	s.remove(pod, client.GracePeriodSeconds(0)) // a finalizer keeps the pod: were that to hold, neither would go
	s.awaitGone(claim)
	s.let(pod)
}

// slippedIn: a pod runs on a PVC that lost its pod protection. The barrier keeps the data, and an
// event reports it.
func slippedIn(s *scene) {
	claim, pod := s.claim("used"), s.user("slipped", []string{"used"})
	s.remove(claim)
	s.stays(claim)
	s.patch(claim, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, barrier))
	s.awaitEvent("used", "UsedWithoutProtection", "slipped")
	s.awaitFinalizers(claim, barrier)
	s.remove(pod, client.GracePeriodSeconds(0))
	s.awaitGone(claim)
}

// chosenModes: namespaces and PVCs choose their mode at any time.
func chosenModes(s *scene) {
	claim := s.claim("data")
	s.setMode("off")
	s.awaitBarrier("data", false)
	s.annotate(claim, pvc.ModeKey, "barrier")
	s.awaitBarrier("data", true)
	s.annotate(claim, pvc.ModeKey, "observe")
	s.awaitBarrier("data", false)
	pod := s.user("user", []string{"data"})
	s.remove(claim)
	s.awaitEvent("data", "DeletionPostponed", "user")
	s.remove(pod, client.GracePeriodSeconds(0))
	s.awaitGone(claim)
	s.create(s.newClaim("later"))
	s.patch(s.itself(), fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, pvc.ModeKey))
	s.awaitBarrier("later", true)
}

// TestClaimsBesideTheBuiltIn shows every behaviour beside the built-in controller.
func TestClaimsBesideTheBuiltIn(t *testing.T) { showBehaviours(t) }

func showBehaviours(t *testing.T) {
	for _, b := range behaviours {
		t.Run(b.name, func(t *testing.T) { b.show(asideScene(t)) })
	}
}
