package lws_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

var restarts = scenario{
	changes:   []string{"workers", "another restart policy"},
	harms:     []string{"restarts", "ends", "is deleted in the background", "vanishes", "loses its statefulset"},
	mostEdits: 2, mostHarms: 4, faults: true, restarts: true, operators: true,
}

// failing is a world whose pods fail.
type failing struct {
	*world
	// failed are the leaders of groups in which a pod failed, and owed those of them
	// whose group had started according to the status.
	failed, owed map[types.UID]string
	// removed are the leaders that others deleted, and deleted those that the operator did.
	removed, deleted map[types.UID]bool
	// spared are the leaders whose groups were created under RecreateGroupAfterStart and
	// never ran as a whole: no failure counts.
	spared map[types.UID]bool
}

// TestRestarts: each group that failed after it started is recreated, no other group is,
// and none twice for one leader (S3).
func TestRestarts(t *testing.T) {
	inWorlds(t, 1, func(t *rapid.T, m *met) {
		set := fakeapi.Set("w", rapid.Int32Range(1, 4).Draw(t, "replicas"), rapid.Int32Range(1, 3).Draw(t, "size"),
			fakeapi.Policy(rapid.SampledFrom(recreating).Draw(t, "policy")))
		w := &failing{newWorld(t, m, restarts, set), map[types.UID]string{}, map[types.UID]string{},
			map[types.UID]bool{}, map[types.UID]bool{}, map[types.UID]bool{}}
		if rapid.Bool().Draw(t, "started") {
			w.settle(groupNames...)
		}
		w.lag()
		w.judge, w.world.fails = w.judgeRestart, w.fail
		w.after = func() { w.spare(); w.checkSpared() }
		w.after()
		w.run(rapid.IntRange(0, 150).Draw(t, "steps"))
		w.settleAfter(30 * time.Second)
		w.checkSpared()
		w.checkRecreated()
	}, "a group recreated", "a group fails after it started", "a crash before a write", "a write refused", "workers", "two operators", "another restart policy")
}

// fail records that a pod fails. A group whose leader goes is recreated by that.
func (w *failing) fail(pod *corev1.Pod, how string) {
	leader := w.leaderOf(pod)
	if leader == pod && (how == "is deleted in the background" || how == "vanishes") {
		w.removed[pod.UID] = true
		return
	}
	if leader == nil || leader.DeletionTimestamp != nil {
		return
	}
	w.failed[leader.UID] = how
	for _, s := range w.status().Started {
		if s.Leader == leader.UID {
			w.met.when("a group fails after it started", true)
			w.owed[leader.UID] = how + " " + pod.Name
		}
	}
}

// judgeRestart checks a delete against the state of the cluster at that moment.
func (w *failing) judgeRestart(a action.Action) error {
	deletion, ok := a.(action.Delete)
	if !ok || deletion.Because.Code != lws.CodeRestart || deletion.Object.Kind != identity.KindPod {
		return nil
	}
	pod := fakeapi.Find[*corev1.Pod](w.Server, deletion.Object.Name)
	if pod == nil || pod.UID != deletion.Object.UID {
		return nil
	}
	if w.leaderOf(pod) != pod {
		return w.judgeWorker(pod)
	}
	if pod.DeletionTimestamp != nil {
		return nil // it goes already
	}
	switch {
	case w.failed[pod.UID] == "":
		return fmt.Errorf("no pod of its group failed")
	case w.deleted[pod.UID]:
		return fmt.Errorf("it is deleted twice")
	}
	if pod.ResourceVersion == deletion.Object.ResourceVersion || deletion.AnyVersion {
		w.deleted[pod.UID] = true
		w.met.when("a group recreated", true)
	}
	return nil
}

// judgeWorker: a worker goes only if its leader failed, is leaving or is gone.
func (w *failing) judgeWorker(pod *corev1.Pod) error {
	parent, _ := identity.ParentAndOrdinal(pod.Name)
	leader := fakeapi.Find[*corev1.Pod](w.Server, parent)
	if leader == nil || leader.DeletionTimestamp != nil || w.failed[leader.UID] != "" {
		return nil
	}
	owner := metav1.GetControllerOf(pod)
	sts := fakeapi.Find[*appsv1.StatefulSet](w.Server, parent)
	if sts == nil || owner == nil || owner.UID != sts.UID {
		return nil
	}
	return fmt.Errorf("its leader %s did not fail", leader.Name)
}

func (w *failing) checkRecreated() {
	truth := w.live()
	if got := brief(w.status())[available]; got != isAvailable {
		w.t.Fatalf("not available: %v", brief(w.status()))
	}
	for _, g := range truth.Groups {
		if how := w.owed[g.Leader.UID]; how != "" {
			w.t.Fatalf("group %d was not recreated: %s; %+v", g.Index, how, w.status().Restarts)
		}
	}
	for _, pod := range fakeapi.All[*corev1.Pod](w.Objects) {
		if leader := w.leaderOf(pod); leader == nil || leader.Spec.Containers[0].Image != pod.Spec.Containers[0].Image {
			w.t.Fatalf("pod %s does not have its leader's revision", pod.Name)
		}
	}
	for _, r := range w.status().Restarts {
		last := r.Failures[len(r.Failures)-1].Reason
		if w.failed[r.Leader] == "" && !w.removed[r.Leader] && (last != restart.CodeLeaderReplaced || w.stands(r.Leader)) {
			w.t.Fatalf("group %d is said to have failed under a leader that did not: %+v", r.Index, r)
		}
	}
}

func (w *failing) stands(uid types.UID) bool {
	return slices.ContainsFunc(fakeapi.All[*corev1.Pod](w.Objects), func(pod *corev1.Pod) bool { return pod.UID == uid })
}

// spare records which groups were created under RecreateGroupAfterStart, by their leaders'
// revisions, and did not run as a whole yet.
func (w *failing) spare() {
	for _, pod := range fakeapi.All[*corev1.Pod](w.Objects) {
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

func (w *failing) policyOf(leader *corev1.Pod) lwsv1.RestartPolicyType {
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

func (w *failing) runsTogether(leader *corev1.Pod) bool {
	var running int32
	for _, pod := range fakeapi.All[*corev1.Pod](w.Objects) {
		if w.leaderOf(pod) == leader && pod.Status.Phase == corev1.PodRunning {
			running++
		}
	}
	return running == workload.Size(find[*lwsv1.LeaderWorkerSet](w.cluster, "w"))
}

// checkSpared: no group that was created under RecreateGroupAfterStart fails in its
// start, whatever the policy of the set is by now.
func (w *failing) checkSpared() {
	for _, r := range w.status().Restarts {
		if w.spared[r.Leader] {
			w.t.Fatalf("group %d is said to have failed in its start: %+v", r.Index, r)
		}
	}
}
