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
// Where the set has been rolled meanwhile, they are made anew, and the leader that
// adopted them stays.
func TestWorkersLeftBehind(t *testing.T) {
	aside(t)
	for _, image := range []string{imageA, imageB} {
		t.Run(image, func(t *testing.T) {
			s := newScene(t)
			set := s.newSet("a", 2, 3, imageA, restartPolicy(lwsv1.NoneRestartPolicy))
			s.create(set)
			set = s.awaitSettled(set)
			workers, _ := find[*appsv1.StatefulSet](s.recorder, "a-1")
			leader, _ := find[*corev1.Pod](s.recorder, "a-1")
			s.remove(leader.DeepCopy(), propagation(metav1.DeletePropagationOrphan))
			if image != imageA {
				set = s.become(set, pull(image))
			}
			s.eventually("another leader a-1 has workers of its own revision", func() error { return s.led(leader, workers, image) })
			s.awaitSettled(set)
		})
	}
}

// led tells whether a group is led by another leader, and its workers are those that
// were left behind, or others if that leader is of another template.
func (s *scene) led(former *corev1.Pod, left *appsv1.StatefulSet, image string) error {
	leader, ok := find[*corev1.Pod](s.recorder, former.Name)
	if !ok || leader.UID == former.UID {
		return errStill
	}
	workers, ok := find[*appsv1.StatefulSet](s.recorder, left.Name)
	if !ok || !metav1.IsControlledBy(workers, leader) || workers.Spec.Template.Spec.Containers[0].Image != image {
		return errStill
	}
	if kept := workers.UID == left.UID; kept != (image == left.Spec.Template.Spec.Containers[0].Image) {
		return fmt.Errorf("kept: %t", kept)
	}
	return nil
}
