package lws_test

import (
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/lwstest"
)

// spare notes which groups were made under RecreateGroupAfterStart, by their leaders'
// revisions, and which of those have run together.
func (w *failingWorld) spare() {
	for _, pod := range lwstest.All[*corev1.Pod](w.Objects) {
		if pod.DeletionTimestamp != nil || w.leaderOf(pod) != pod {
			continue
		}
		before, known := w.spared[pod.UID]
		if !known {
			before = w.policyOf(pod) == lwsv1.RecreateGroupAfterStart
		}
		w.spared[pod.UID] = before && !w.runsTogether(pod)
	}
}

func (w *failingWorld) policyOf(leader *corev1.Pod) lwsv1.RestartPolicyType {
	set := find[*lwsv1.LeaderWorkerSet](w.cluster, "w")
	for _, revision := range revisions(w.cluster) {
		if revision.Labels[lwsv1.RevisionKey] != leader.Labels[lwsv1.RevisionKey] {
			continue
		}
		made, err := lws.Restore(set, revision.Data.Raw)
		if err != nil {
			w.t.Fatalf("%v", err)
		}
		return made.Spec.LeaderWorkerTemplate.RestartPolicy
	}
	w.t.Fatalf("leader %s runs revision %s, which is not there", leader.Name, leader.Labels[lwsv1.RevisionKey])
	return ""
}

func (w *failingWorld) runsTogether(leader *corev1.Pod) bool {
	var running int32
	for _, pod := range lwstest.All[*corev1.Pod](w.Objects) {
		if w.leaderOf(pod) == leader && pod.Status.Phase == corev1.PodRunning {
			running++
		}
	}
	return running == lws.Size(find[*lwsv1.LeaderWorkerSet](w.cluster, "w"))
}

// checkSpared checks that no group failed in its start that was made under
// RecreateGroupAfterStart, whatever the policy of its set is by now.
func (w *failingWorld) checkSpared() {
	for _, r := range w.status().Restarts {
		if w.spared[r.Leader] {
			w.t.Fatalf("group %d is said to have failed in its start: %+v", r.Index, r)
		}
	}
}
