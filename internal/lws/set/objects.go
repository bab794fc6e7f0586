package set

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
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
