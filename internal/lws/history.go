package lws

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// historyLimit is how many revisions are kept beside those in use, when a set
// does not say.
const historyLimit = 5

// history files away revisions that no group runs and none will run: those at
// another key, once every group is updated and ready. They are kept under a label
// of their own, the latest up to a limit, so that whoever lists the revisions in
// use finds no others.
func (d *setDecision) history() {
	if d.held || d.relabels || !d.settled() || !d.rolledOut() {
		return
	}
	var past []*appsv1.ControllerRevision
	for _, revision := range d.Revisions.Members {
		switch key := revision.Labels[lwsv1.RevisionKey]; {
		case !inUse(revision, d.Set.Name) && inHistory(revision, d.Set.Name), d.superseded(revision) && Genuine(revision, d.Set.Name):
			past = append(past, revision)
		case key != d.key && inUse(revision, d.Set.Name):
			d.drop(revision, fmt.Sprintf("it bears the name of set %s and is none of its revisions", d.Set.Name))
		}
	}
	slices.SortFunc(past, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(b.Revision, a.Revision), cmp.Compare(a.Name, b.Name))
	})
	limit := historyLimitOf(d.Set)
	for i, revision := range past {
		switch {
		case i >= limit:
			d.drop(revision, fmt.Sprintf("no group runs it, and %d revisions are kept", limit))
		case inUse(revision, d.Set.Name):
			d.fileAway(revision)
		}
	}
}

func (d *setDecision) drop(revision *appsv1.ControllerRevision, why string) {
	d.plan.do(action.Delete{
		Object:  identity.RefOf(identity.KindControllerRevision, revision),
		Relies:  d.unrun(revision),
		Because: because(CodeSuperseded, why),
	})
}

func (d *setDecision) fileAway(revision *appsv1.ControllerRevision) {
	d.plan.do(action.Relabel{
		Object:  identity.RefOf(identity.KindControllerRevision, revision),
		Labels:  map[string]string{lwsv1.SetNameLabelKey: "", HistoryLabelKey: d.Set.Name},
		Relies:  d.unrun(revision),
		Because: because(CodeSuperseded, fmt.Sprintf("every group runs revision %s, none runs %s", d.key, revision.Labels[lwsv1.RevisionKey])),
	})
}

// unrun is what has to be so that no leader runs a revision, nor is made at it: the leader
// StatefulSet is the one that was judged, and it has no pod at the revision's key. Caches
// that lag, of a replica that takes itself for the one that leads, would tell otherwise.
func (d *setDecision) unrun(revision *appsv1.ControllerRevision) []action.Standing {
	relied := []action.Standing{{
		Kind: identity.KindStatefulSet, Namespace: d.Set.Namespace, Name: d.Set.Name,
		Unchanged: []identity.Ref{identity.RefOf(identity.KindStatefulSet, d.StatefulSet.Member())},
	}}
	key := revision.Labels[lwsv1.RevisionKey]
	if key == "" || key == d.key {
		return relied // it stands for nothing at its key: leaders run what another says
	}
	return append(relied, action.Standing{
		Kind: identity.KindPod, Namespace: d.Set.Namespace, Labels: map[string]string{lwsv1.RevisionKey: key},
		Of: d.statefulSetUID(), None: true,
	})
}

// recall has what leaders run back from the history: whoever lists the revisions in use
// is to find it there, and below a partition it would be dropped in the end.
func (d *setDecision) recall() {
	if d.held {
		return
	}
	recalled := map[string]bool{d.key: true}
	for _, leader := range d.Leaders.Members {
		key := leader.Labels[lwsv1.RevisionKey]
		if leader.DeletionTimestamp != nil || recalled[key] {
			continue
		}
		recalled[key] = true
		if revision := d.revisionWithKey(key); revision != nil && !inUse(revision, d.Set.Name) {
			d.bringBack(revision, 0, fmt.Sprintf("leader %s runs revision %s", leader.Name, key))
		}
	}
}

// bringBack puts a revision of the history in use again, under a number if that
// is not zero.
func (d *setDecision) bringBack(revision *appsv1.ControllerRevision, number int64, why string) {
	d.plan.do(action.Relabel{
		Object:  identity.RefOf(identity.KindControllerRevision, revision),
		Labels:  map[string]string{lwsv1.SetNameLabelKey: d.Set.Name, HistoryLabelKey: ""},
		Number:  number,
		Because: because(CodeChanged, why),
	})
}

// superseded tells whether no group is to run a revision once all are updated.
func (d *setDecision) superseded(revision *appsv1.ControllerRevision) bool {
	return revision.Labels[lwsv1.RevisionKey] != d.key || shadowed(revision, d.counting())
}

// rolledOut tells whether no group runs another revision, nor could one be made
// again at it.
func (d *setDecision) rolledOut() bool {
	sts := d.StatefulSet.Member()
	return sts != nil && leadersKey(sts) == d.key && livePartition(sts) == 0 &&
		strategyPartition(d.Set) == 0 && d.updateDone()
}

func (d *setDecision) updateDone() bool {
	counts := d.count()
	return counts.updatedAndReady == Replicas(d.Set) && counts.seen == Replicas(d.Set)
}

// WantsHistory tells whether the decision about a set depends on revisions that
// no group runs: when the spec says what no revision in use says, and when some
// of those in use are to join them.
func WantsHistory(w SetSnapshot) bool {
	d := &setDecision{SetSnapshot: &w}
	d.paused()
	d.key = d.statefulSetKey()
	if d.key == "" && d.Set.Status.ObservedGeneration == 0 {
		return false // a set that was never looked after has no history
	}
	data, err := RevisionData(d.Set)
	if err != nil {
		return false
	}
	if current := d.revisionWithKey(d.key); current == nil || !sameRevision(d.Set, current.Data.Raw, data) {
		return d.revisionWithData(data) == nil
	}
	return slices.ContainsFunc(d.Revisions.Members, d.superseded) && d.rolledOut()
}

// Knows tells whether a set's revision with the key is among those found.
func Knows(revisions identity.Claim[*appsv1.ControllerRevision], setName, key string) bool {
	return revisionWithKey(countingRevisions(revisions, setName), key) != nil
}

// inUse tells whether a revision is listed among those that groups run.
func inUse(revision *appsv1.ControllerRevision, setName string) bool {
	return BearsName(revision, setName)
}

func inHistory(revision *appsv1.ControllerRevision, setName string) bool {
	return revision.Labels[HistoryLabelKey] == setName
}

func historyLimitOf(set *lwsv1.LeaderWorkerSet) int {
	limit, err := strconv.Atoi(set.Annotations[lwsv1.HistoryLimitAnnotationKey])
	if err != nil || limit < 0 {
		return historyLimit
	}
	return limit
}
