package cluster

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// awaitSettled waits until a set is settled, and returns it.
func (s *scene) awaitSettled(set *lwsv1.LeaderWorkerSet) *lwsv1.LeaderWorkerSet {
	s.Helper()
	s.eventually(fmt.Sprintf("set %s (%s) is settled", set.Name, set.UID), func() error { return s.unsettled(set) })
	now, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, set.Name)
	return now
}

// unsettled returns what the status or the pods of a set lack.
func (s *scene) unsettled(want *lwsv1.LeaderWorkerSet) error {
	set, ok := find[*lwsv1.LeaderWorkerSet](s.recorder, want.Name)
	if !ok || set.UID != want.UID {
		return fmt.Errorf("set %s (%s) is not there", want.Name, want.UID)
	}
	if set.Generation < want.Generation {
		return fmt.Errorf("generation %d of set %s was not seen yet", want.Generation, want.Name)
	}
	if err := s.unavailable(set); err != nil {
		return err
	}
	return s.podsMissing(set)
}

// unavailable returns what the status of a set lacks.
func (s *scene) unavailable(set *lwsv1.LeaderWorkerSet) error {
	replicas := *set.Spec.Replicas
	for _, err := range []error{
		lacking("status.observedGeneration", set.Generation, set.Status.ObservedGeneration),
		holds(set, lwsv1.LeaderWorkerSetAvailable, "AllGroupsReady"),
		lacking("status.readyReplicas", replicas, set.Status.ReadyReplicas),
		lacking("status.updatedReplicas", replicas, set.Status.UpdatedReplicas),
		lacking("status.replicas", replicas, set.Status.Replicas),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// holds is an error unless a condition is True, for that reason, and up to date.
func holds(set *lwsv1.LeaderWorkerSet, condition lwsv1.LeaderWorkerSetConditionType, reason string) error {
	c := meta.FindStatusCondition(set.Status.Conditions, string(condition))
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != reason {
		return fmt.Errorf("condition %s: want True for %s, have %+v", condition, reason, c)
	}
	return lacking(fmt.Sprintf("observedGeneration of condition %s", condition), set.Generation, c.ObservedGeneration)
}

// podsMissing names a pod that is wrong, missing or too many.
func (s *scene) podsMissing(set *lwsv1.LeaderWorkerSet) error {
	image := set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image
	pods := s.podsOf(set)
	for _, pod := range pods {
		if !podReady(pod) {
			return fmt.Errorf("pod %s is not ready", pod.Name)
		}
		if s.root(pod.UID) != set.UID {
			return fmt.Errorf("pod %s is not of this life", pod.Name)
		}
		if imageOf(pod) != image {
			return fmt.Errorf("pod %s has image %s, not %s", pod.Name, imageOf(pod), image)
		}
	}
	return lacking("pods", podsWanted(set), len(pods))
}

// podsOf returns the pods with the name label of a set.
func (s *scene) podsOf(set *lwsv1.LeaderWorkerSet) []*corev1.Pod {
	var found []*corev1.Pod
	for _, pod := range live[*corev1.Pod](s.recorder) {
		if pod.Labels[lwsv1.SetNameLabelKey] == set.Name {
			found = append(found, pod)
		}
	}
	return found
}

func podsWanted(set *lwsv1.LeaderWorkerSet) int {
	return int(*set.Spec.Replicas * *set.Spec.LeaderWorkerTemplate.Size)
}

// awaitNothing waits until no object of a set is left.
func (s *scene) awaitNothing(uid types.UID) {
	s.Helper()
	s.eventually(fmt.Sprintf("nothing is left of set %s", uid), func() error {
		left := s.pick(func(r *record) bool { return r.died == 0 && r.kind != "Event" })
		if left, _ = s.ownedBy(uid, left); len(left) > 0 {
			return fmt.Errorf("left: %s", names(left))
		}
		return nil
	})
}

// awaitGroupReady waits until all pods of a group are ready and belong to this set.
func (s *scene) awaitGroupReady(set *lwsv1.LeaderWorkerSet, index int) {
	s.Helper()
	leader := fmt.Sprintf("%s-%d", set.Name, index)
	s.eventually("group "+leader+" is ready", func() error {
		want := []string{leader}
		for j := 1; j < int(*set.Spec.LeaderWorkerTemplate.Size); j++ {
			want = append(want, fmt.Sprintf("%s-%d", leader, j))
		}
		for _, name := range want {
			pod, ok := find[*corev1.Pod](s.recorder, name)
			if !ok || !podReady(pod) || s.root(pod.UID) != set.UID {
				return fmt.Errorf("pod %s is not there, not ready or not of this life", name)
			}
		}
		if _, ok := find[*appsv1.StatefulSet](s.recorder, leader); !ok && len(want) > 1 {
			return fmt.Errorf("statefulset %s is not there", leader)
		}
		return nil
	})
}
