package lws

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// historyLimit is how many revisions are kept beside those in use, when a set
// does not say.
const historyLimit = 5

// history files away revisions that no group runs and none can be made at: those at
// other keys, as soon as that is so, whatever the partition and whether or not groups are
// ready. They are kept under a label of their own, the latest up to a limit, so that
// whoever lists the revisions in use finds no others.
func (d *setDecision) history() {
	if d.held || !d.settled() || d.onlyCurrent() {
		return
	}
	keys, known := d.runnable()
	if !known {
		return
	}
	var past []*appsv1.ControllerRevision
	for _, revision := range d.Revisions.Members {
		filed := !inUse(revision, d.Set.Name) && inHistory(revision, d.Set.Name)
		switch {
		case filed, d.superseded(revision, keys):
			past = append(past, revision)
		case d.foreign(revision):
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
		Because: because(CodeSuperseded, fmt.Sprintf("no group runs revision %s, nor is one made at it", revision.Labels[lwsv1.RevisionKey])),
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
	if key == "" || shadowed(revision, d.counting()) {
		return relied // it stands for nothing at its key: leaders run what another says
	}
	return append(relied, action.Standing{
		Kind: identity.KindPod, Namespace: d.Set.Namespace, Labels: map[string]string{lwsv1.RevisionKey: key},
		Of: d.statefulSetUID(), None: true,
	})
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

// onlyCurrent tells whether no revision but the present one is in use, as at rest.
func (d *setDecision) onlyCurrent() bool {
	return !slices.ContainsFunc(d.Revisions.Members, func(r *appsv1.ControllerRevision) bool {
		return r.Labels[lwsv1.RevisionKey] != d.key || shadowed(r, d.counting())
	})
}

// superseded tells whether a revision of the set is none that groups run, whose keys are
// given.
func (d *setDecision) superseded(revision *appsv1.ControllerRevision, keys map[string]bool) bool {
	return Genuine(revision, d.Set.Name) && (!keys[revision.Labels[lwsv1.RevisionKey]] || shadowed(revision, d.counting()))
}

// foreign tells whether a revision is listed as one that groups run and is not what it
// says, when all groups run another. Nobody knows whose it is: until then it stays.
func (d *setDecision) foreign(revision *appsv1.ControllerRevision) bool {
	return inUse(revision, d.Set.Name) && !Genuine(revision, d.Set.Name) && revision.Labels[lwsv1.RevisionKey] != d.key && d.rolledOut()
}

// rolledOut tells whether every group runs the present revision, and none could be made
// again at another.
func (d *setDecision) rolledOut() bool {
	sts, counts := d.StatefulSet.Member(), d.count()
	return sts != nil && leadersKey(sts) == d.key && livePartition(sts) == 0 && strategyPartition(d.Set) == 0 &&
		counts.wantedUpdatedReady == Replicas(d.Set)
}

// runnable are the keys of the revisions that leaders run, or may be made at: below the
// partition the StatefulSet controller makes them of the template before this one. It is
// not known while that controller has yet to see the present template, nor while no leader
// tells which revision the one before stands for.
func (d *setDecision) runnable() (keys map[string]bool, known bool) {
	sts := d.StatefulSet.Member()
	if sts == nil || leadersKey(sts) != d.key || !observed(sts) {
		return nil, false
	}
	keys = runKeys(d.SetSnapshot)
	if livePartition(sts) == 0 || sts.Status.CurrentRevision == sts.Status.UpdateRevision {
		return keys, true
	}
	return keys, slices.ContainsFunc(d.Leaders.Members, func(leader *corev1.Pod) bool {
		return leader.Labels[lwsv1.RevisionKey] != "" && leader.Labels[appsv1.ControllerRevisionHashLabelKey] == sts.Status.CurrentRevision
	})
}

// WantsHistory tells whether the decision about a set depends on revisions that
// no group runs: when the spec says what no revision in use says, and when some
// of those in use are to join them.
func WantsHistory(w SetSnapshot) bool {
	d := &setDecision{SetSnapshot: &w}
	d.keptClaims()
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
	if d.onlyCurrent() {
		return false
	}
	keys, known := d.runnable()
	return known && slices.ContainsFunc(d.Revisions.Members, func(r *appsv1.ControllerRevision) bool {
		return d.superseded(r, keys) || d.foreign(r)
	})
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
