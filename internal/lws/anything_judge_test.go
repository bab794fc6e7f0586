package lws_test

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// judge checks that nothing of others is written to (S10).
func (w *anyWorld) judge(a action.Action) {
	w.met.when(a.Why().Code, true)
	w.checkDue(a)
	w.checkBudget(a)
	if _, creates := a.(action.Create); !creates && w.squatters[a.Target().UID] {
		w.t.Fatalf("%s %s, which is somebody else's", a.Verb(), a.Target())
	}
}

// checkDue checks that no group is recreated before it is due. A date that was
// written down only ever comes nearer.
func (w *anyWorld) checkDue(a action.Action) {
	set := fakeapi.Find[*lwsv1.LeaderWorkerSet](w.Server, "w")
	if set == nil || a.Why().Code != lws.CodeRestart {
		return
	}
	for _, failed := range set.Status.Restarts {
		if failed.Leader == a.Target().UID && w.Now.Before(failed.DueAt.Time) {
			w.t.Fatalf("%s %s at %s: %s, due at %s", a.Verb(), a.Target(), w.Now, a.Why().Sentence, failed.DueAt)
		}
	}
}

// checkBudget checks that a ready group is given up only where the budget covers it
// (S4), by an operator that sees all there is.
func (w *anyWorld) checkBudget(a action.Action) {
	apply, applies := a.(action.Apply)
	if !w.sees || !applies || a.Why().Code != lws.CodeRollout {
		return
	}
	sts, _ := apply.Object.(*appsv1.StatefulSet)
	world := w.set("w")
	was, key := partition(world.StatefulSet.Member()), sts.Labels[lwsv1.RevisionKey]
	rolling := rollingOf(world.Set.DeepCopy())
	var up, standIn, givenUp int32
	for i := range world.Groups {
		group := &world.Groups[i]
		index, ready, old := int32(group.Index), group.Ready(world.Set), group.Leader.Labels[lwsv1.RevisionKey] != key
		switch {
		case index >= lws.Replicas(world.Set):
			if ready && !old {
				standIn++
			}
		case ready && old && index >= partition(sts) && index < was:
			givenUp++
		case ready && (!old || index < was):
			up++
		}
	}
	down, mayBe := lws.Replicas(world.Set)-up, rolling.MaxUnavailable.IntVal
	if mayBe == 0 && rolling.MaxSurge.IntVal == 0 {
		mayBe = 1
	}
	if givenUp > 0 && down > mayBe+standIn {
		w.t.Fatalf("partition %d to %d gives up %d ready groups: %d of %d are down then, %d may be, and %d stand in\n%s",
			was, partition(sts), givenUp, down, lws.Replicas(world.Set), mayBe, standIn, w.all())
	}
}

// checkKept checks that no revision was put away that leaders run (S5): nobody who
// lists those in use would find it, and in the end it would be dropped. Given are the keys
// that were in use before.
func (w *anyWorld) checkKept(a action.Action, before map[string]bool) {
	if a.Target().Kind != identity.KindControllerRevision || a.Why().Code != lws.CodeSuperseded {
		return
	}
	inUse := w.keysInUse()
	for _, pod := range fakeapi.All[*corev1.Pod](w.Objects) {
		key := pod.Labels[lwsv1.RevisionKey]
		if w.leads(pod) && before[key] && !inUse[key] {
			w.t.Fatalf("%s %s: %s, and leader %s runs %s", a.Verb(), a.Target(), a.Why().Sentence, pod.Name, key)
		}
	}
}

func (w *anyWorld) keysInUse() map[string]bool {
	keys := map[string]bool{}
	for _, revision := range revisions(w.cluster) {
		if lws.BearsName(revision, "w") {
			keys[revision.Labels[lwsv1.RevisionKey]] = true
		}
	}
	return keys
}

// leads tells whether a pod is a leader of the set as it lives now, and is to stay.
func (w *anyWorld) leads(pod *corev1.Pod) bool {
	group, worker := indexOf(pod.Name)
	set, sts := fakeapi.Find[*lwsv1.LeaderWorkerSet](w.Server, "w"), fakeapi.Find[*appsv1.StatefulSet](w.Server, "w")
	return set != nil && sts != nil && worker == 0 && int32(group) < lws.PodsOf(sts) && pod.DeletionTimestamp == nil && metav1.IsControlledBy(sts, set) && metav1.IsControlledBy(pod, sts)
}
