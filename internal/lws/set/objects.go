package set

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/table"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// helpPrevious waits for objects of a previous incarnation, and deletes those that the garbage
// collector has not deleted in time.
func helpPrevious(t *table.Table) (p lws.Plan) {
	p.HelpAlong(t.Now, t.Vigil, t.Lives, slices.Concat(
		lws.ObjectsOf(identity.KindStatefulSet, t.StatefulSet.Previous),
		lws.ObjectsOf(identity.KindPod, t.Leaders.Previous),
		lws.ObjectsOf(identity.KindService, t.Service.Previous),
		lws.ObjectsOf(identity.KindControllerRevision, t.Revisions.Previous),
		lws.ObjectsOf(identity.KindPodDisruptionBudget, ptr.Deref(t.Evictions, workload.Evictions{}).Budget.Previous),
	))
	if t.Waiting.Message != "" {
		p.Await(t.Waiting.Until, lws.CodePreviousIncarnation, t.Waiting.Message)
	} else if t.Waiting.Quiet != nil {
		p.Wait(*t.Waiting.Quiet)
	}
	return p
}

// deleteScaled deletes the PVCs of groups that were scaled away under whenScaled Delete. Only
// this reconcile raises the StatefulSet.
func deleteScaled(t *table.Table) (p lws.Plan) {
	sts := t.StatefulSet.Own()
	if sts == nil || t.Held || volumes.KeepsScaled(t.Live) {
		return p
	}
	found := 0
	for _, pvc := range t.LivePVCs() {
		index := volumes.GroupIndex(pvc, t.Live)
		if !volumes.IsMarked(pvc, t.Live) || int32(index) < max(workload.PodsOf(sts), workload.Replicas(t.Live)) {
			continue
		}
		found++
		if !workload.Observed(sts) || sts.Status.Replicas > workload.PodsOf(sts) || t.Draining[index] {
			continue
		}
		p.Do(action.Delete{
			Object: identity.RefOf(identity.KindPersistentVolumeClaim, pvc),
			Relies: []action.Standing{
				{Kind: identity.KindStatefulSet, Namespace: sts.Namespace, Name: sts.Name, Specified: map[types.UID]int64{sts.UID: sts.Generation}},
				{Kind: identity.KindPod, Namespace: sts.Namespace, None: true, Labels: map[string]string{
					lwsv1.SetNameLabelKey: t.Set.Name, lwsv1.GroupIndexLabelKey: strconv.Itoa(index),
				}},
			},
			Because: lws.Because(lws.CodeScaledAway, fmt.Sprintf("group %d was scaled away, and whenScaled is Delete", index)),
		})
	}
	if found > 0 {
		p.Wait(lws.Wait{Reason: lws.Because(lws.CodeTie, fmt.Sprintf("%d PVCs of groups that were scaled away are to go", found)), Until: t.Now.Add(lws.ScaledAgain)})
	}
	return p
}

// keepService keeps the Shared headless Service what it should be, for as long as pods
// hang from it. A previous or foreign object under its name costs only the Service.
func keepService(t *table.Table) (p lws.Plan) {
	if !t.Held && t.WantsShared() {
		p.KeepService(t.Service, workload.SharedService(t.Set), lws.SetRef(t.Set))
	}
	return p
}

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
