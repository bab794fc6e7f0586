package table

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Limit says how many pods of a set must stay. It is nil for a set that does not ask.
type Limit struct {
	workload.Allowance
	// MinAvailable is the number of the PodDisruptionBudget: all pods that exist or will, or one fewer.
	MinAvailable int32
	// Counts is how many of these are of groups that are not wanted.
	Counts int32
	// Lacks says why the set has no PodDisruptionBudget, or is nothing.
	Lacks action.Reason
	// Hold is the wait of a rollout while evictions may be admitted beside groups that it would replace, or nil.
	Hold *lws.Wait
}

// limit folds the rows. One eviction fewer than all pods is a semaphore of one: it is free while every group is ready.
func limit(t *Table) *Limit {
	wanted, others := t.podsNeeded()
	own, needed := t.Evictions.Budget.Own(), wanted+others
	l := &Limit{MinAvailable: max(0, needed-1), Counts: others, Lacks: t.lacksBudget(), Allowance: workload.Allowance{Budget: workload.BudgetName(t.Set)}}
	unavailable, _ := workload.Budget(t.Set)
	moves, unready := t.Maker.Moves(), slices.IndexFunc(t.Rows, func(r Row) bool { return r.isWanted && !r.IsReady })
	if unavailable < 1 || moves {
		l.MinAvailable = needed
	}
	switch {
	case l.Lacks.Code != "":
		l.Why = "not limited: " + l.Lacks.Sentence
	case own == nil:
		l.Why = "not limited: the set has not been ready yet"
	case unavailable < 1:
		l.Why = workload.Blocked + "maxUnavailable is 0"
	case moves:
		l.Why = workload.Blocked + fmt.Sprintf("rollout to %s in progress", t.Target.Key)
	case unready >= 0:
		l.Why = workload.Blocked + fmt.Sprintf("group %s is not ready", t.Rows[unready].Name())
	case t.WantedReady < workload.Replicas(t.Set):
		l.Why = workload.Blocked + fmt.Sprintf("%d of %d groups are ready", t.WantedReady, workload.Replicas(t.Set))
	default:
		l.Allowed, l.Why = 1, "1 group may go"
	}
	if own == nil || l.Lacks.Code != "" {
		return l
	}
	hold := &lws.Wait{Reason: lws.Because(lws.CodeRollout, "the rollout replaces groups once no eviction is admitted")}
	for _, at := range own.Status.DisruptedPods {
		if end := at.Add(2 * time.Minute); t.Now.Before(end) { // Kubernetes' controller counts an admitted eviction so long
			hold.Until, l.Hold = end, hold
		}
	}
	if ptr.Deref(own.Spec.MinAvailable, intstr.IntOrString{}).IntVal < needed {
		l.Hold = hold
	}
	return l
}

// podsNeeded counts the pods of all groups that exist or will: each with its size, or with its living pods if these are
// more. Living pods of any other group count as well: they are healthy, and would make up for one that was evicted.
func (t *Table) podsNeeded() (wanted, others int32) {
	places, isPlace := t.Maker.Places()
	largest, known := workload.Size(t.Set), map[string]bool{}
	for i := range t.Rows {
		r := &t.Rows[i]
		known[r.LeaderName] = true
		wanted += max(r.Size, t.Evictions.Living[r.LeaderName])
		largest = max(largest, r.Size)
		places -= lws.One(isPlace(r.LeaderName))
	}
	for leader, living := range t.Evictions.Living {
		if !known[leader] {
			others += max(0, living-largest*lws.One(isPlace(leader)))
		}
	}
	return wanted + max(0, places)*largest, others
}

// lacksBudget returns why a set that asks for a PodDisruptionBudget has none, and what to do, or nothing.
func (t *Table) lacksBudget() action.Reason {
	e, name := t.Evictions, workload.BudgetName(t.Set)
	const none = "delete it, or set " + workload.DisruptionBudgetAnnotationKey + "=" + workload.UnlimitedDisruption
	switch {
	case e.Missing != "":
		return lws.Because(lws.CodeRefused, e.Missing)
	case len(e.Others) > 0:
		return lws.Because("OtherBudget", fmt.Sprintf("PodDisruptionBudget %s also selects pods of this set, and evictions of pods with two budgets fail; %s",
			action.Listed(e.Others, ", "), none))
	case len(e.Budget.Foreign) > 0:
		return lws.Because(lws.CodeNameConflict, fmt.Sprintf("PodDisruptionBudget %s is not of this set, and evictions are not limited; %s", name, none))
	case t.budgetRefused != "":
		return lws.Because(lws.CodeRefused, t.budgetRefused)
	}
	return action.Reason{}
}

// takeRefused takes what is refused of the budget out of the snapshot: no group waits for it.
func (t *Table) takeRefused() {
	isBudget := func(r action.Refused) bool { return r.Kind == identity.KindPodDisruptionBudget }
	if i := slices.IndexFunc(t.Refused, isBudget); i >= 0 {
		t.budgetRefused = action.RefusedMessage(t.Refused[i].Refusal)
		t.Refused = slices.DeleteFunc(slices.Clone(t.Refused), isBudget)
	}
}
