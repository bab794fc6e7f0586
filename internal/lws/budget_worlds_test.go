package lws_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

var budgets = scenario{
	changes:   []string{"workers", "replicas"},
	harms:     []string{"restarts", "restarts", "restarts", "ends", "is deleted in the background"},
	mostEdits: 2, mostHarms: 8, deletions: true,
}

// limited is a world whose groups are recreated a limited number of times.
type limited struct {
	*world
	limit int
	// tried are the leaders that the operator tried to delete for a restart, and recreated those that
	// it did, by group and revision. A user who recovers a group, or scales it away, ends the list.
	tried     map[types.UID]bool
	recreated map[string][]types.UID
	// stopped are the pods that stay, by name, and free those that a cause lets go.
	stopped map[string]types.UID
	free    map[types.UID]bool
	// markedBy is the set of each pod that is to stay. The pod may go once that set is gone, also where the next set
	// of the name takes the group in.
	markedBy map[types.UID]types.UID
}

// TestBudgets: no group is recreated more often at a revision than maxGroupRestarts allows, and pods of
// a group that was stopped stay the same until a cause of the contract.
func TestBudgets(t *testing.T) {
	inWorlds(t, 2, func(t *rapid.T, m *met) {
		limit := rapid.Int32Range(0, 2).Draw(t, "limit")
		set := fakeapi.Set("w", rapid.Int32Range(1, 3).Draw(t, "replicas"), rapid.Int32Range(1, 3).Draw(t, "size"), onRestart, atMost(limit))
		w := &limited{newWorld(t, m, budgets, set), int(limit), map[types.UID]bool{}, map[string][]types.UID{}, map[string]types.UID{}, map[types.UID]bool{}, map[types.UID]types.UID{}}
		w.settle()
		w.lag()
		w.judge, w.after = w.judgeBudget, w.checkBudget
		for range rapid.IntRange(1, 4).Draw(t, "recoveries") {
			w.run(rapid.IntRange(0, 60).Draw(t, "steps"))
			w.recover()
		}
		w.settleAfter(30 * time.Second)
		w.after()
	}, "a group recreated within its budget", "a group stopped", "a group recovered", "a stopped group let go",
		"a crash before a write", "a crash after a write", "a set deleted", "workers", "replicas", lws.CodeBudgetExceeded)
}

// budgetOf names the budget that a leader's group has.
func budgetOf(leader Pod) string { return leader.Name + " " + leader.Labels[lwsv1.RevisionKey] }

// recover has a user recover one of the groups that were stopped.
func (w *limited) recover() {
	for _, pod := range fakeapi.All[Pod](w.Objects) {
		if _, worker := indexOf(pod.Name); worker == 0 && pod.DeletionTimestamp != nil && lws.IsExhausted(pod) {
			w.met.when("a group recovered", true)
			annotated(pod.Name, recover, "true")(w.cluster)
			delete(w.recreated, budgetOf(pod))
			return
		}
	}
}

// judgeBudget notes the leaders that are deleted for a restart, and requires a cause to let pods go.
func (w *limited) judgeBudget(a action.Action) error {
	pod := fakeapi.Find[Pod](w.Server, a.Target().Name)
	if pod == nil || pod.UID != a.Target().UID {
		return nil
	}
	switch a := a.(type) {
	case action.Delete:
		if _, worker := indexOf(pod.Name); worker == 0 && a.Because.Code == lws.CodeRestart && pod.DeletionTimestamp == nil {
			w.tried[pod.UID] = true
		}
	case action.SetFinalizers:
		if pod.DeletionTimestamp != nil && lws.IsExhausted(pod) && !slices.Contains(a.Finalizers, budgetFinalizer) {
			if !w.mayGo(pod) {
				return fmt.Errorf("nothing lets it go: %+v\n%s", pod.ObjectMeta, w.all())
			}
			w.met.when("a stopped group let go", true)
			w.free[pod.UID] = true
		}
	}
	return nil
}

// mayGo reports whether the cluster has a cause to let a retained pod go.
func (w *limited) mayGo(pod Pod) bool {
	index, worker := indexOf(pod.Name)
	set, sts, leader := fakeapi.Find[Set](w.Server, "w"), fakeapi.Find[StatefulSet](w.Server, "w"), pod
	if worker > 0 {
		leader = fakeapi.Find[Pod](w.Server, identity.LeaderName("w", index))
	}
	switch {
	case set == nil, set.DeletionTimestamp != nil, set.UID != w.markedBy[pod.UID]:
		return true
	case leader == nil, leader.DeletionTimestamp == nil, !lws.IsExhausted(leader):
		return true
	case sts == nil, sts.DeletionTimestamp != nil, !metav1.IsControlledBy(leader, sts):
		return true
	case leader.Annotations[recover] == "true", int32(index) >= workload.PodsOf(sts):
		return true
	}
	return leader.Labels[lwsv1.RevisionKey] != sts.Labels[lwsv1.RevisionKey] && int32(index) >= partition(sts)
}

// checkBudget counts what was recreated, and compares the pods that stay.
func (w *limited) checkBudget() {
	set := fakeapi.Find[Set](w.Server, "w")
	for _, pod := range fakeapi.All[Pod](w.Objects) {
		if _, worker := indexOf(pod.Name); worker == 0 && pod.DeletionTimestamp != nil && w.tried[pod.UID] {
			delete(w.tried, pod.UID)
			w.met.when("a group recreated within its budget", true)
			w.recreated[budgetOf(pod)] = append(w.recreated[budgetOf(pod)], pod.UID)
			if got := w.recreated[budgetOf(pod)]; len(got) > w.limit {
				w.t.Fatalf("group of %s was recreated %d times, and may be %d times: %+v", pod.Name, len(got), w.limit, w.status().Restarts)
			}
		}
		if _, known := w.markedBy[pod.UID]; !known && set != nil && lws.IsExhausted(pod) {
			w.markedBy[pod.UID] = set.UID
		}
		if pod.DeletionTimestamp != nil && lws.IsExhausted(pod) {
			w.met.when("a group stopped", true)
			w.stopped[pod.Name] = pod.UID
		}
	}
	for name, uid := range w.stopped {
		if pod := fakeapi.Find[Pod](w.Server, name); pod != nil && pod.UID == uid {
			continue
		}
		if delete(w.stopped, name); !w.free[uid] {
			w.t.Fatalf("pod %s, which stayed as evidence, is gone or another", name)
		}
	}
	for budget := range w.recreated { // a group that is scaled away, or whose set goes, begins anew
		var name, key string
		_, _ = fmt.Sscan(budget, &name, &key)
		if leader := fakeapi.Find[Pod](w.Server, name); set == nil || leader == nil && !w.wants(set, name) {
			delete(w.recreated, budget)
		}
	}
}

func (w *limited) wants(set Set, leader string) bool {
	_, index := identity.ParentAndOrdinal(leader)
	return int32(index) < workload.Replicas(set)
}
