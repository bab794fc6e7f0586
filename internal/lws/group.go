package lws

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// groupDecision is a plan in the making for one group.
type groupDecision struct {
	*GroupSnapshot
	plan Plan
	// restored is the set at the leader's revision, once known.
	restored *lwsv1.LeaderWorkerSet
}

// DecideGroup decides about one group. Rules are in order of precedence; each reports whether those after it go on.
func DecideGroup(w GroupSnapshot) Plan {
	d := &groupDecision{GroupSnapshot: &w}
	if len(w.Beyond) > 0 { // the set's reconcile looks again, and wakes its groups
		d.plan.wait(Wait{Reason: because(CodeUnsupported, unsupportedText(w.Beyond))})
		return d.plan
	}
	if w.Set == nil || w.Set.DeletionTimestamp != nil { // the garbage collector deletes what is left
		d.parallel()
		d.plan.add(Release(w.Kept, w.LeaderName, "its set is deleted"))
		return d.plan
	}
	w.Set = AsLed(volumes.AsCreated(w.Set, w.LeaderSet), w.Leader)
	rules := []func(*groupDecision) bool{
		(*groupDecision).exhausted,
		(*groupDecision).retained,
		(*groupDecision).restart,
		(*groupDecision).ended,
		(*groupDecision).writtenPolicy,
		(*groupDecision).previous,
		(*groupDecision).strayed,
		(*groupDecision).ungate,
		(*groupDecision).foreign,
		(*groupDecision).mistakenAnnotation,
		(*groupDecision).ownService,
		(*groupDecision).scheduledAsGang,
		(*groupDecision).admitted,
		(*groupDecision).standing,
		(*groupDecision).adoption,
		(*groupDecision).revision,
		(*groupDecision).startup,
		(*groupDecision).workers,
	}
	for _, rule := range rules {
		if goOn := rule(d); !goOn {
			break
		}
	}
	d.readiness()
	return d.plan
}

// previous creates nothing in the group while objects of a previous incarnation have its names,
// and deletes those that are garbage.
func (d *groupDecision) previous() bool {
	others := append(bearersOf(identity.KindService, d.Service.Previous), bearersOf(identity.KindPodGroup, d.Gang.Previous)...)
	others = append(others, bearersOf(identity.KindPodGroup, d.PodGroups.Previous)...)
	d.plan.helpAlong(d.Now, d.Vigil, d.Lives, slices.Concat(
		bearersOf(identity.KindStatefulSet, d.Workers.Previous), bearersOf(identity.KindPod, d.Pods.Previous), others))
	if d.Leader == nil {
		return false
	}
	blocking := d.Group.previous(workload.SizeOf(d.Leader, d.Set))
	if waited := slices.Concat(blocking, others); len(waited) > 0 { // no event tells when an object without our labels is gone
		d.plan.wait(goneWait(d.Set, fmt.Sprintf("group %s waits for ", d.name()), waited, d.Now.Add(conflictLook)))
	}
	return len(blocking) == 0
}

// foreign reads the group again while foreign objects have its names: the operator does not
// watch them. The set reports them.
func (d *groupDecision) foreign() bool {
	if found := d.conflicts(d.Set); len(found) > 0 {
		d.plan.wait(Wait{Reason: because(CodeNameConflict, conflictMessage(found)), Until: d.Now.Add(conflictLook)})
	}
	return true
}

// mistakenAnnotation stops at a leader with the annotation of a worker: an API server
// without start ordinals would otherwise create groups of groups for ever.
func (d *groupDecision) mistakenAnnotation() bool {
	if _, mistaken := d.Leader.Annotations[lwsv1.LeaderPodNameAnnotationKey]; !mistaken {
		return true
	}
	note := fmt.Sprintf(
		"leader pod %s/%s contains mistake annotation '%s': requires Kubernetes ≥v1.27 or v1.26 with StatefulSetStartOrdinal feature",
		d.Leader.Namespace, d.Leader.Name, lwsv1.LeaderPodNameAnnotationKey)
	d.plan.wait(Wait{Reason: because(CodeMistakenAnnotation, note), Tell: warning("FailedCreate", "Create", note, new(identity.RefOf(identity.KindPod, d.Leader)))})
	return false
}

// revision restores the set as it was when the leader was created: workers have their leader's revision.
func (d *groupDecision) revision() bool {
	if d.restored != nil {
		return true
	}
	restored, err := revision.RestoredAt(d.Set, d.Revisions, d.Leader.Labels[lwsv1.RevisionKey])
	if err != nil {
		d.plan.wait(Wait{Reason: because(CodeRevisionNotVisible, fmt.Sprintf("leader %s waits for its revision: %v", d.Leader.Name, err))})
		return false
	}
	d.restored = restored
	return true
}

// startup holds back workers until their leader is ready, where the set asks.
func (d *groupDecision) startup() bool {
	if d.Set.Spec.StartupPolicy != lwsv1.LeaderReadyStartupPolicy || StartsWorkers(d.Leader) || !d.Workers.Empty() {
		return true
	}
	d.plan.wait(Wait{Reason: because(CodeLeaderNotReady, fmt.Sprintf("workers of group %s start once leader %s is ready", d.name(), d.Leader.Name))})
	return false
}

// standing leaves an existing worker StatefulSet as it is: its pods have the revision that it
// was created for. It is only touched when a name is free again, and scaled back.
func (d *groupDecision) standing() bool {
	sts := d.Workers.Own()
	if sts == nil {
		return true
	}
	if d.apart(sts) {
		return false
	}
	if workers, told := workload.AnnotatedWorkers(sts); told && ptr.Deref(sts.Spec.Replicas, 1) != workers {
		d.scaleBack(sts, workers)
		return false
	}
	if !workload.LacksPods(sts) {
		return false
	}
	d.plan.touchStalled(sts, d.Now, d.Stalled, d.isFirstFree(sts))
	return false
}

// scaleBack gives a StatefulSet the number of workers that its pods know of. A user who
// scales it has a group that waits for pods which never come. The template stays.
func (d *groupDecision) scaleBack(sts *appsv1.StatefulSet, workers int32) {
	part := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: &workers}}
	why := fmt.Sprintf("statefulset %s was scaled to %d workers, and its pods are told of %d", sts.Name, workload.PodsOf(sts), workers)
	d.plan.apply(part, identity.RefOf(identity.KindStatefulSet, sts), scaleFieldOwner, because(CodeChanged, why),
		"Failed to scale back worker statefulset "+sts.Name)
}

// adoption adopts the worker StatefulSet that a leader deleted with --cascade=orphan left,
// whether or not its revision still exists.
func (d *groupDecision) adoption() bool {
	sts := d.Workers.Orphan()
	if sts == nil {
		return true
	}
	d.plan.do(adopt(identity.RefOf(identity.KindStatefulSet, sts), identity.RefOf(identity.KindPod, d.Leader), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{OwnerReferences: workload.OwnedByLeader(d.Leader)},
	}))
	return false
}

// workers creates the worker StatefulSet.
func (d *groupDecision) workers() bool {
	leader := identity.RefOf(identity.KindPod, d.Leader)
	if workload.Size(d.restored) <= 1 || !d.Workers.Empty() {
		return false
	}
	nodeSelector, placed := d.placement()
	if !placed {
		return false
	}
	d.plan.do(action.Create{
		Kind:    identity.KindStatefulSet,
		Object:  workload.WorkerStatefulSet(d.Set, d.restored, d.Leader, nodeSelector),
		Owner:   leader,
		Because: because(CodeMissing, fmt.Sprintf("group %s has no worker statefulset %s", d.name(), d.LeaderName)),
		Tell: action.Telling{
			Done: []action.Event{{
				Reason: "GroupsProgressing", Action: "Create",
				Note: "Created worker statefulset for leader pod " + d.LeaderName, Related: &leader,
			}},
			Refused: warning("FailedCreate", "Create", "Failed to create worker statefulset for leader pod "+d.LeaderName, &leader),
		},
	})
	return true
}

// placement returns the node selector that keeps workers in their leader's topology domain, and whether it is known.
func (d *groupDecision) placement() (map[string]string, bool) {
	topology := workload.SharedPlacement(d.Set, d.restored, d.Leader, lwsv1.ExclusiveKeyAnnotationKey)
	if topology == "" {
		return nil, true
	}
	if d.Leader.Spec.NodeName == "" {
		d.plan.wait(Wait{
			Reason: because(CodeLeaderNotScheduled, fmt.Sprintf("workers of group %s go where leader %s is scheduled", d.name(), d.Leader.Name)),
			Tell:   unschedulable(d.Leader, topology),
		})
		return nil, false
	}
	domain, known := d.NodeLabels[topology]
	if !known { // an empty domain is one for a scheduler, too
		note := fmt.Sprintf("node %s of leader %s has no label %s", d.Leader.Spec.NodeName, d.Leader.Name, topology)
		d.plan.wait(Wait{
			Reason: because(CodeNoTopology, note),
			Until:  d.Now.Add(slowLook),
			Tell:   warning(CodeNoTopology, "Wait", note+": workers cannot be placed beside it", new(identity.RefOf(identity.KindPod, d.Leader))),
		})
		return nil, false
	}
	return map[string]string{topology: domain}, true
}
