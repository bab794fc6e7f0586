package cluster

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// A leader that is deleted while its workers are left behind comes again with them.
func TestWorkersLeftBehind(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.newSet("a", 2, 3, imageA, restartPolicy(lwsv1.NoneRestartPolicy))
	s.create(set)
	set = s.awaitSettled(set)
	workers, _ := find[*appsv1.StatefulSet](s.recorder, "a-1")
	leader, _ := find[*corev1.Pod](s.recorder, "a-1")
	s.remove(leader.DeepCopy(), propagation(metav1.DeletePropagationOrphan))
	s.eventually("another leader a-1 adopted the workers", func() error { return s.led(leader, workers) })
	s.awaitSettled(set)
}

// led reports whether a group has another leader, which controls the workers left behind.
func (s *scene) led(former *corev1.Pod, left *appsv1.StatefulSet) error {
	leader, ok := find[*corev1.Pod](s.recorder, former.Name)
	if !ok || leader.UID == former.UID {
		return errStill
	}
	workers, ok := find[*appsv1.StatefulSet](s.recorder, left.Name)
	if !ok || !metav1.IsControlledBy(workers, leader) {
		return errStill
	}
	if workers.UID != left.UID {
		return fmt.Errorf("the workers were made anew")
	}
	return nil
}
