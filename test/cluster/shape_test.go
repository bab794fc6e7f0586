package cluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Everything about the template, and the number of groups, may differ between
// two lives.
func TestRecreateInAnotherShape(t *testing.T) {
	const replicas, size = 6, 3
	smaller := births{Pods: replicas * size, StatefulSets: 1 + replicas, Services: replicas, Revisions: 1}
	rolled := births{Pods: replicas * size, StatefulSets: replicas, Revisions: 1}
	shared := func(*lwsv1.LeaderWorkerSet) {}
	for _, c := range []struct {
		policy  metav1.DeletionPropagation
		network edit
		want    births
	}{
		{metav1.DeletePropagationBackground, uniquePerReplica, smaller},
		{metav1.DeletePropagationForeground, uniquePerReplica, smaller},
		{metav1.DeletePropagationOrphan, shared, rolled},
	} {
		t.Run(string(c.policy), func(t *testing.T) {
			s := newScene(t)
			old, _ := s.firstLife(groups, groupSize)
			next := s.newSet("a", replicas, size, imageB, c.network, func(set *lwsv1.LeaderWorkerSet) {
				leader := template(imageB)
				leader.Labels = map[string]string{"role": "leader"}
				set.Spec.LeaderWorkerTemplate.LeaderTemplate = &leader
			})
			l := s.recreate(old, next, c.policy)
			s.awaitSettled(l.set)
			s.judge(l, c.want)
		})
	}
}

// One group at a time is away when the set says so.
func TestOrphansRollAtThePaceOfTheSet(t *testing.T) {
	aside(t)
	s := newScene(t)
	old, _ := s.firstLife(3, 2)
	next := s.newSet("a", 3, 2, imageB, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.RolloutStrategy = lwsv1.RolloutStrategy{Type: lwsv1.RollingUpdateStrategyType}
	})
	l := s.recreate(old, next, metav1.DeletePropagationOrphan)
	s.awaitSettled(l.set)
	s.judge(l, births{Pods: 6, StatefulSets: 3, Revisions: 1})
}
