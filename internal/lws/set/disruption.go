package set

import (
	"fmt"
	"math"
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/table"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// ConditionBudgetMissing is the type of the condition for a set that asks for a PodDisruptionBudget and has none.
const ConditionBudgetMissing = "DisruptionBudgetMissing"

// limitEvictions keeps the PodDisruptionBudget of the set. It creates one once every group is ready, so that a set which
// never ran blocks no drain. A higher number is written before the leaders, and a lower one once the pods are gone.
func limitEvictions(t *table.Table) (p lws.Plan) {
	e, limit, unwanted := t.Evictions, t.Limit, unwantedBudget(t)
	own, orphan := e.Budget.Own(), e.Budget.Orphan()
	switch {
	case own != nil && unwanted != "":
		p.Do(action.Delete{
			Object: identity.RefOf(identity.KindPodDisruptionBudget, own), AnyVersion: true, Because: lws.Because(lws.CodeGarbage, unwanted),
		})
	case unwanted != "", e.Missing != "", len(e.Budget.Foreign)+len(e.Budget.Previous) > 0:
		return p
	case own != nil:
		p.Add(repairBudget(t, own))
	case orphan != nil:
		part := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{OwnerReferences: workload.OwnedBySet(t.Set)}}
		p.Do(lws.Adopt(identity.RefOf(identity.KindPodDisruptionBudget, orphan), lws.SetRef(t.Set), part))
	case t.WantedReady == workload.Replicas(t.Set):
		p.Do(action.Create{
			Kind: identity.KindPodDisruptionBudget, Object: workload.DisruptionBudget(t.Set, limit.MinAvailable), Owner: lws.SetRef(t.Set),
			Because: lws.Because(lws.CodeMissing, "all groups are ready, and one may be evicted at a time"),
		})
	}
	if limit != nil && limit.Hold != nil {
		p.Wait(*limit.Hold)
	}
	if limit != nil && limit.Counts > 0 && own != nil { // no event tells when workers of a group that was scaled away are gone
		p.Await(t.Now.Add(lws.ConflictLook), lws.CodeScaledAway, fmt.Sprintf("%d pods end that the budget counts", limit.Counts))
	}
	return p
}

// unwantedBudget says why a set is to have no budget, or is empty.
func unwantedBudget(t *table.Table) string {
	switch {
	case t.Limit == nil:
		return "the set asks for none"
	case len(t.Evictions.Others) > 0:
		return t.Limit.Lacks.Sentence
	case workload.Replicas(t.Set) == 0:
		return "the set has no groups"
	}
	return ""
}

// repairBudget applies what the budget of the set is to be onto one that differs.
func repairBudget(t *table.Table, own *policyv1.PodDisruptionBudget) (p lws.Plan) {
	desired := workload.DisruptionBudget(t.Set, t.Limit.MinAvailable)
	if lws.Contains(&own.Spec, &desired.Spec) && labels.SelectorFromSet(desired.Labels).Matches(labels.Set(own.Labels)) {
		return p
	}
	write := action.Apply{
		Object: desired, Onto: identity.RefOf(identity.KindPodDisruptionBudget, own), FieldOwner: lws.FieldOwner, Applied: true,
		Because: lws.Because(lws.CodeChanged, fmt.Sprintf("%d pods are to stay", t.Limit.MinAvailable)),
	}
	if minAvailable := own.Spec.MinAvailable; minAvailable != nil && minAvailable.IntVal > t.Limit.MinAvailable {
		write.Relies = []action.Standing{countedLeaders(t)}
	}
	p.Do(write)
	return p
}

// countedLeaders requires that no leader lives beside those that were counted: a cache may not show one yet.
func countedLeaders(t *table.Table) action.Standing {
	counted := action.Standing{
		Kind: identity.KindPod, Namespace: t.Set.Namespace, Labels: workload.LeaderSelector(t.Set.Name),
		NoOther: []action.Names{{Base: t.Set.Name, End: math.MaxInt32}},
	}
	for _, leader := range slices.Concat(t.Leaders.Owned, t.Leaders.Previous, t.Leaders.Orphans, t.Leaders.Foreign) {
		if leader.DeletionTimestamp == nil && workload.IsLeader(leader, t.Set.Name) {
			counted.There = append(counted.There, leader.UID)
		}
	}
	return counted
}
