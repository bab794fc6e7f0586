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
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// historyLimit is how many revisions are kept beside those in use, when a set does not say.
const historyLimit = 5

// history moves revisions that no group runs, and none can be created at, from the list of revisions in use to the
// history, which has a label of its own. The latest are kept, up to a limit.
func (d *setDecision) history() (p Plan) {
	if d.held {
		return p
	}
	keys, known := d.maker.runnable()
	if !known {
		return p
	}
	var past []*appsv1.ControllerRevision
	superseded := 0
	for _, r := range d.Revisions.Owned {
		switch {
		case !revision.InUse(r, d.Set.Name):
			past = append(past, r)
		case revision.Genuine(r, d.Set.Name) && !keys[r.Labels[lwsv1.RevisionKey]]:
			past = append(past, r)
			superseded++
		}
	}
	if superseded > 0 && !d.HistoryRead {
		p.Needs = NeedHistory // the limit counts all of them
		return p
	}
	slices.SortFunc(past, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(b.Revision, a.Revision), cmp.Compare(a.Name, b.Name))
	})
	limit := historyLimitOf(d.Set)
	for i, r := range past {
		switch {
		case i >= limit:
			p.do(d.drop(r, limit))
		case revision.InUse(r, d.Set.Name):
			p.do(d.fileAway(r))
		}
	}
	return p
}

func (d *setDecision) drop(r *appsv1.ControllerRevision, limit int) action.Delete {
	return action.Delete{
		Object:  identity.RefOf(identity.KindControllerRevision, r),
		Relies:  d.unrun(r),
		Because: because(CodeSuperseded, fmt.Sprintf("no group runs it, and %d revisions are kept", limit)),
	}
}

func (d *setDecision) fileAway(r *appsv1.ControllerRevision) action.Relabel {
	return action.Relabel{
		Object:  identity.RefOf(identity.KindControllerRevision, r),
		Labels:  map[string]string{lwsv1.SetNameLabelKey: "", revision.HistoryLabelKey: d.Set.Name},
		Relies:  d.unrun(r),
		Because: because(CodeSuperseded, fmt.Sprintf("no group runs revision %s, nor is one made at it", r.Labels[lwsv1.RevisionKey])),
	}
}

// unrun are the preconditions that no leader runs a revision, nor is created at it: the leader StatefulSet is
// unchanged, and no pod has the key of the revision. The cache of a replica that is no longer the leader may lag.
func (d *setDecision) unrun(r *appsv1.ControllerRevision) []action.Standing {
	owner := d.leadersOwner()
	pods := action.Standing{
		Kind: identity.KindPod, Namespace: d.Set.Namespace, Of: owner.GetUID(), None: true,
		Labels: map[string]string{lwsv1.RevisionKey: r.Labels[lwsv1.RevisionKey]},
	}
	if owner.kind == identity.KindDeployment { // it controls no pod itself
		pods.Of, pods.Labels[lwsv1.SetNameLabelKey] = "", d.Set.Name
	}
	return []action.Standing{{
		Kind: owner.kind, Namespace: d.Set.Namespace, Name: d.Set.Name, Unchanged: []identity.Ref{identity.RefOf(owner.kind, owner)},
	}, pods}
}

// runnable are the keys of the revisions that leaders run or may be created at: below the partition the StatefulSet
// controller uses its previous template. The keys are unknown until that controller has observed the present template,
// and until a leader shows the key of the previous one.
func (d *statefulSetMaker) runnable() (keys map[string]bool, known bool) {
	sts := d.StatefulSet.Own()
	if sts == nil || d.leadersKey() != d.target.key || !workload.Observed(sts) {
		return nil, false
	}
	keys = map[string]bool{d.target.key: true}
	for _, leader := range d.Leaders.Owned {
		keys[leader.Labels[lwsv1.RevisionKey]] = true
	}
	if livePartition(sts) == 0 || sts.Status.CurrentRevision == sts.Status.UpdateRevision {
		return keys, true
	}
	return keys, slices.ContainsFunc(d.Leaders.Owned, func(leader *corev1.Pod) bool {
		return leader.Labels[lwsv1.RevisionKey] != "" && leader.Labels[appsv1.ControllerRevisionHashLabelKey] == sts.Status.CurrentRevision
	})
}

// runnable implements maker: the keys of the Deployment, and of all pods.
func (d *deploymentMaker) runnable() (keys map[string]bool, known bool) {
	keys = map[string]bool{d.target.key: true}
	for _, leader := range d.leadersAndLeaving() {
		keys[leader.Labels[lwsv1.RevisionKey]] = true
	}
	for i := range d.Vacant {
		pods := &d.Vacant[i].Pods
		for _, pod := range slices.Concat(pods.Owned, pods.Previous, pods.Orphans, pods.Foreign) {
			keys[pod.Labels[lwsv1.RevisionKey]] = true
		}
	}
	return keys, d.isObserved() && d.toUpdate() == 0
}

func historyLimitOf(set *lwsv1.LeaderWorkerSet) int {
	limit, err := strconv.Atoi(set.Annotations[lwsv1.HistoryLimitAnnotationKey])
	if err != nil || limit < 0 {
		return historyLimit
	}
	return limit
}
