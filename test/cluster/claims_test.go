package cluster

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// behaviours is what becomes of a claim whose deletion is asked for: those of the
// controller that is built into Kubernetes, which ours must have as well, beside it
// and in its place.
var behaviours = []struct {
	name string
	show func(*scene)
}{
	{"nobody uses it", func(s *scene) {
		claim := s.claim("free")
		s.remove(claim)
		s.awaitGone(claim)
	}},
	{"a bound pod uses it", func(s *scene) {
		claim, pod := s.claim("used"), s.user("user", []string{"used"})
		s.awaitPhase(pod, corev1.PodRunning)
		s.remove(claim)
		s.stays(claim)
		s.awaitWord(claim, "DeletionPostponed", "pod user on node")
		s.remove(pod)
		s.awaitGone(claim)
		s.awaitWord(claim, "DeletionReleased", "")
	}},
	{"an unbound pod names it", func(s *scene) {
		claim := s.claim("named")
		s.user("waiting", []string{"named"}, unbound)
		s.remove(claim)
		s.awaitGone(claim)
	}},
	{"a pod that has finished uses it", func(s *scene) {
		claim, pod := s.claim("used"), s.user("finished", []string{"used"})
		s.awaitPhase(pod, corev1.PodRunning)
		s.succeed(pod)
		s.remove(claim)
		s.stays(claim)
		s.remove(pod)
		s.awaitGone(claim)
	}},
	{"a pod that is being deleted uses it", func(s *scene) { usedOnTheWayOut(s) }},
	{"a pod that was deleted by force uses it", func(s *scene) { usedOnTheWayOut(s, client.GracePeriodSeconds(0)) }},
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
			s.eventually("ours are taken", func() error {
				if have := s.finalizersOf(claim.Name); !slices.Equal(have, []string{foreign}) {
					return fmt.Errorf("it has %v", have)
				}
				return nil
			})
			s.let(claim)
			s.awaitGone(claim)
		}
	}},
	{"a pod slipped in", slipped},
	{"modes are chosen", chosenModes},
	{"it changes all the time", func(s *scene) {
		claim := s.claim("restless")
		s.remove(claim)
		s.eventually("it is gone", func() error {
			err := s.client.Patch(s.Context(), s.newClaim("restless"), client.RawPatch("application/merge-patch+json",
				fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/beat":%q}}}`, s.unique())))
			if client.IgnoreNotFound(err) == nil && err != nil {
				return nil
			}
			return errors.Join(err, errors.New("it is still there"))
		})
	}},
}

// usedOnTheWayOut is of a pod that was told to leave, however, and is still there.
func usedOnTheWayOut(s *scene, how ...client.DeleteOption) {
	claim, pod := s.claim("used"), s.user("leaving", []string{"used"}, pinned)
	s.awaitPhase(pod, corev1.PodRunning)
	s.remove(claim)
	s.remove(pod, how...)
	s.stays(claim)
	s.let(pod)
	s.awaitGone(claim)
}

// ephemeral is of claims that go with a pod: they are not ours to bar, and the pod
// that has one holds it until its kubelet is done with it.
func ephemeral(s *scene) {
	bed.hasSet(s.namespace)
	own := func(pod *corev1.Pod) {
		none := ""
		pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &none, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			}},
		}}}}
	}
	pod := s.user("user", nil, own, pinned)
	claim := &corev1.PersistentVolumeClaim{}
	s.eventually("the pod's own claim is there, and protected", func() error {
		found, err := s.claims()
		if claim = found["user-scratch"]; claim == nil || !slices.Equal(claim.Finalizers, []string{podProtection}) {
			return errors.Join(err, fmt.Errorf("have %v", found))
		}
		return err
	})
	s.remove(claim)
	witness := s.claim("witness")
	s.remove(witness)
	s.awaitGone(witness)
	if have := s.finalizersOf(claim.Name); !slices.Equal(have, []string{podProtection}) {
		s.Fatalf("its pod uses it, and it has %v", have)
	}
	s.remove(pod, client.GracePeriodSeconds(0)) // a finalizer keeps the pod: were that to hold, neither would go
	s.awaitGone(claim)
	s.let(pod)
}

// slipped is of a pod that came to run on a claim while its pod protection went: it
// keeps its data, and that is told.
func slipped(s *scene) {
	claim := s.claim("used")
	pod := s.user("slipped", []string{"used"})
	s.remove(claim)
	s.stays(claim)
	s.patch(claim, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, barrier))
	s.awaitWord(claim, "UsedWithoutProtection", "pod slipped on node")
	if have := s.finalizersOf("used"); !slices.Equal(have, []string{barrier}) {
		s.Fatalf("it has %v", have)
	}
	s.remove(pod, client.GracePeriodSeconds(0))
	s.awaitGone(claim)
}

// modes of protection are chosen by namespaces and by claims, at any time.
func chosenModes(s *scene) {
	claim := s.claim("data")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	s.patch(namespace, `{"metadata":{"labels":{"protection.lockstep.dev/mode":"off"}}}`)
	s.awaitBarrier("data", false)
	s.patch(claim, `{"metadata":{"annotations":{"protection.lockstep.dev/mode":"barrier"}}}`)
	s.awaitBarrier("data", true)
	s.patch(claim, `{"metadata":{"annotations":{"protection.lockstep.dev/mode":"observe"}}}`)
	s.awaitBarrier("data", false)
	pod := s.user("user", []string{"data"})
	s.remove(claim)
	s.awaitWord(claim, "DeletionPostponed", "pod user on node")
	s.remove(pod, client.GracePeriodSeconds(0))
	s.awaitGone(claim)
	later := s.newClaim("later")
	s.create(later)
	s.patch(namespace, `{"metadata":{"labels":{"protection.lockstep.dev/mode":null}}}`)
	s.awaitBarrier("later", true)
}

// TestClaimsBesideTheBuiltIn shows every behaviour with what is built in switched on.
func TestClaimsBesideTheBuiltIn(t *testing.T) { showBehaviours(t) }

func showBehaviours(t *testing.T) {
	for _, b := range behaviours {
		t.Run(b.name, func(t *testing.T) {
			aside(t)
			b.show(newScene(t))
		})
	}
}
