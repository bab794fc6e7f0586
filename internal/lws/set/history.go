package set

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/table"
)

// historyLimit is how many revisions are kept beside those in use, when a set does not say.
const historyLimit = 5

// keepHistory moves revisions that no group runs, and none can be created at, from the list of revisions in use to the
// history, which has a label of its own. The latest are kept, up to a limit.
func keepHistory(t *table.Table) (p lws.Plan) {
	if t.Held {
		return p
	}
	keys, known := t.Maker.Runnable()
	if !known {
		return p
	}
	var past []*appsv1.ControllerRevision
	superseded := 0
	for _, r := range t.Revisions.Owned {
		switch {
		case !revision.InUse(r, t.Set.Name):
			past = append(past, r)
		case revision.Genuine(r, t.Set.Name) && !keys[r.Labels[lwsv1.RevisionKey]]:
			past = append(past, r)
			superseded++
		}
	}
	if superseded > 0 && !t.HistoryRead {
		p.Needs = lws.NeedHistory // the limit counts all of them
		return p
	}
	slices.SortFunc(past, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(b.Revision, a.Revision), cmp.Compare(a.Name, b.Name))
	})
	limit := historyLimitOf(t.Set)
	for i, r := range past {
		ref := identity.RefOf(identity.KindControllerRevision, r)
		switch {
		case i >= limit:
			why := fmt.Sprintf("no group runs it, and %d revisions are kept", limit)
			p.Do(action.Delete{Object: ref, Relies: unrun(t, r), Because: lws.Because(lws.CodeSuperseded, why)})
		case revision.InUse(r, t.Set.Name):
			why := fmt.Sprintf("no group runs revision %s, nor is one made at it", r.Labels[lwsv1.RevisionKey])
			p.Do(action.Relabel{
				Object: ref, Labels: map[string]string{lwsv1.SetNameLabelKey: "", revision.HistoryLabelKey: t.Set.Name},
				Relies: unrun(t, r), Because: lws.Because(lws.CodeSuperseded, why),
			})
		}
	}
	return p
}

// unrun are the preconditions that no leader runs a revision, nor is created at it: the leader StatefulSet is
// unchanged, and no pod has the key of the revision. The cache of a replica that is no longer the leader may lag.
func unrun(t *table.Table, r *appsv1.ControllerRevision) []action.Standing {
	owner := t.LeadersOwner()
	pods := action.Standing{
		Kind: identity.KindPod, Namespace: t.Set.Namespace, Of: owner.GetUID(), None: true,
		Labels: map[string]string{lwsv1.RevisionKey: r.Labels[lwsv1.RevisionKey]},
	}
	if owner.Kind == identity.KindDeployment { // it controls no pod itself
		pods.Of, pods.Labels[lwsv1.SetNameLabelKey] = "", t.Set.Name
	}
	return []action.Standing{{
		Kind: owner.Kind, Namespace: t.Set.Namespace, Name: t.Set.Name, Unchanged: []identity.Ref{identity.RefOf(owner.Kind, owner)},
	}, pods}
}

func historyLimitOf(set *lwsv1.LeaderWorkerSet) int {
	if limit, err := strconv.Atoi(set.Annotations[lwsv1.HistoryLimitAnnotationKey]); err == nil && limit >= 0 {
		return limit
	}
	return historyLimit
}
