package lws

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/status"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// isNative reports whether Kubernetes' own scheduler places the set.
func (w *SetSnapshot) isNative() bool {
	return w.Scheduler == gang.Kubernetes && w.Set.Spec.Scheduling != nil
}

// volcanoMissing says why Volcano cannot place the groups of the set, or is empty.
func (w *SetSnapshot) volcanoMissing() string {
	if w.isNative() {
		return ""
	}
	return w.GangMissing
}

// workloadObjects keeps the Workload of a set, and the PodGroup of all its pods. Groups keep theirs. Pods may
// come before their PodGroup: the scheduler holds them back.
func (d *setDecision) workloadObjects() (p Plan) {
	switch {
	case d.isNative() && d.refusal != "" && d.PodGroup.Own() != nil && d.Workload.Own() != nil:
		return d.setPodGroup(d.Workload.Own()) // leaders that are refused are not waited for
	case !d.isNative() || d.held:
		return p
	case d.GangMissing != "":
		p.await(d.Now.Add(gangLook), CodeWorkloadNotReady, d.GangMissing)
		return p
	}
	want, err := gang.Workload(d.Set)
	if err != nil {
		p.await(d.Now.Add(conflictLook), CodeWorkloadNotReady, err.Error())
		return p
	}
	have := d.Workload.Own()
	if have == nil {
		p.createNative(identity.KindWorkload, want, d.Workload, setRef(d.Set))
		return p
	}
	p.keepNative(identity.KindWorkload, have, want)
	if gang.LevelOf(d.Set.Spec.Scheduling) == gang.SetLevel {
		p.add(d.setPodGroup(have))
	}
	return p
}

// setPodGroup keeps the PodGroup of all pods of a set. A set without pods has none.
func (d *setDecision) setPodGroup(described *unstructured.Unstructured) (p Plan) {
	have := d.PodGroup.Own()
	if workload.Replicas(d.Set) == 0 {
		return p
	}
	want, err := gang.SetPodGroup(d.Set, described, d.minCount())
	switch {
	case err != nil:
		p.await(d.Now.Add(conflictLook), CodeWorkloadNotReady, err.Error())
	case have == nil:
		p.createNative(identity.KindPodGroup, want, d.PodGroup, setRef(d.Set))
	default:
		p.keepNative(identity.KindPodGroup, have, want)
	}
	return p
}

// minCount is how many pods the PodGroup of all pods waits for, as they can exist now.
func (d *setDecision) minCount() int32 {
	least := workload.Size(d.Set)
	for i := range d.rows {
		least = min(least, d.rows[i].size)
	}
	sizes, room := d.maker.inService()
	return gang.MinCount(workload.Replicas(d.Set), workload.Size(d.Set), sizes, room, least)
}

// podsInGang is how many pods of the group are in the PodGroup.
func (r *row) podsInGang() int32 {
	if r.isStopped || !gang.IsHanded(r.Leader) {
		return 0
	}
	return r.size
}

func (d *statefulSetMaker) inService() (sizes []int32, room int32) {
	serving := d.course.Replicas
	if sts := d.leaderStatefulSet(); sts != nil {
		serving = workload.PodsOf(sts)
		if d.Refusal.Sentence == "" && !d.held && !d.leadersWait(sts) { // the count goes first, or a part is placed alone
			serving = max(serving, d.course.Replicas)
		}
	}
	for _, r := range d.all() {
		switch {
		case int32(r.Index) >= serving:
		case r.Leader != nil:
			sizes = append(sizes, r.podsInGang())
		case r.isStopped:
			sizes = append(sizes, 0)
		}
	}
	return sizes, serving - int32(len(sizes))
}

func (d *deploymentMaker) inService() (sizes []int32, room int32) {
	allowed, holding := workload.Replicas(d.Set), d.gated.room.Holding
	if live := d.leadersOwner(); live != nil {
		allowed = max(allowed, d.gated.room.Allowed)
		if d.Refusal.Sentence != "" {
			allowed = min(allowed, live.wants)
		}
	}
	if d.gated.room.Immediate {
		holding = d.gated.room.Stopped
	}
	for i := range d.rows {
		r := &d.rows[i]
		if isAdmitted := !workload.IsGated(r.Leader) || slices.Contains(d.gated.admitted, r.Leader); isAdmitted && !workload.HasEnded(r.Leader) {
			sizes = append(sizes, r.podsInGang())
		}
	}
	return sizes, allowed - int32(len(sizes)) - holding
}

// AwaitsLeaders reports whether a set is to get its first leaders.
func (w *SetSnapshot) AwaitsLeaders() bool {
	owner := w.leadersOwner()
	return workload.Replicas(w.Set) > 0 && (owner == nil || owner.wants == 0)
}

// awaitsWorkload reports whether a set gets no first leaders yet: their scheduler would not know them.
func (d *setDecision) awaitsWorkload() bool {
	if !d.isNative() || !d.AwaitsLeaders() {
		return false
	}
	return !d.hasWorkload()
}

// hasWorkload reports whether the Workload exists, and the PodGroup of all pods if the set has one.
func (d *setDecision) hasWorkload() bool {
	needsPodGroup := gang.LevelOf(d.Set.Spec.Scheduling) == gang.SetLevel && workload.Replicas(d.Set) > 0
	return d.Workload.Own() != nil && (!needsPodGroup || d.PodGroup.Own() != nil)
}

// createNative creates a Workload or a PodGroup. The object of another owner under the name stays: no object
// is adopted.
func (p *Plan) createNative(kind identity.Kind, want *unstructured.Unstructured, found identity.Claim[*unstructured.Unstructured], owner identity.Ref) {
	if !found.Empty() {
		return // the set reports what is foreign, and an event tells when what terminates is gone
	}
	noun := strings.ToLower(string(kind))
	p.do(action.Create{
		Kind: kind, Object: want, Owner: owner,
		Because: because(CodeMissing, fmt.Sprintf("%s has no %s %s", owner, noun, want.GetName())),
		Tell:    action.Telling{Refused: warning("FailedCreate", "Create", fmt.Sprintf("Failed to create %s %s", noun, want.GetName()), new(identity.RefOf(kind, want)))},
	})
}

// keepNative patches labels and counts. The API server refuses any other change.
func (p *Plan) keepNative(kind identity.Kind, have, want *unstructured.Unstructured) {
	if text := difference(kind, have, want); text != "" {
		p.wait(Wait{Reason: because(CodePodGroupDiffers, text), Tell: warning(CodePodGroupDiffers, "Wait", text, new(identity.RefOf(kind, have)))})
		if field, _ := gang.Dropped(have, want); field == "" {
			return
		} // the rest of it can be kept
	}
	if !gang.IsOutdated(have, want) {
		return
	}
	p.apply(gang.Part(want), identity.RefOf(kind, have), scaleFieldOwner,
		because(CodeChanged, fmt.Sprintf("%s %s has other labels or counts of pods", strings.ToLower(string(kind)), have.GetName())),
		fmt.Sprintf("Failed to update %s %s", strings.ToLower(string(kind)), have.GetName()))
}

// difference says what of an object cannot be changed and is not what the set says, or is empty.
func difference(kind identity.Kind, have, want *unstructured.Unstructured) string {
	name := fmt.Sprintf("%s %s", strings.ToLower(string(kind)), have.GetName())
	if field, gate := gang.Dropped(have, want); field != "" {
		return fmt.Sprintf("%s: the API server dropped %s; switch on its feature gate %s, delete the object, and another is created", name, field, gate)
	}
	if gang.HasOtherMembers(have, want) || !within(gang.Fixed(have), gang.Fixed(want)) {
		return name + " says what spec.scheduling does not, and cannot be changed: delete it, and another is created"
	}
	return ""
}

// keepPodGroups keeps the PodGroups of a leader that belongs to a Workload.
func (d *groupDecision) keepPodGroups() {
	if d.Set.Spec.Scheduling == nil {
		return
	}
	described := d.Workload.Own()
	if described == nil {
		d.plan.wait(Wait{Reason: because(CodeWorkloadNotReady, fmt.Sprintf("the podgroups of group %s are created once workload %s exists", d.name(), gang.WorkloadName(d.Set)))})
		return
	}
	wanted, err := gang.GroupPodGroups(d.Set, described, d.Leader, workload.SizeOf(d.Leader, d.Set))
	if err != nil {
		d.plan.await(d.Now.Add(conflictLook), CodeWorkloadNotReady, err.Error())
		return
	}
	for _, want := range wanted {
		found := d.PodGroups.Named(want.GetName())
		if len(found.Foreign) > 0 {
			d.plan.wait(Wait{
				Reason: because(CodePodGroupOwner, conflictMessage(bearersOf(identity.KindPodGroup, found.Foreign))),
				Tell: &action.Event{
					Warning: true, Reason: CodePodGroupOwner, Action: "Wait", On: new(identity.RefOf(identity.KindPod, d.Leader)),
					Note: "PodGroup " + want.GetName() + " has another owner: remove it, and one for this group is created",
				},
			})
		}
		if have := found.Own(); have != nil {
			d.plan.keepNative(identity.KindPodGroup, have, want)
			continue
		}
		d.plan.createNative(identity.KindPodGroup, want, found, setRef(d.Set))
	}
}

// strayed deletes workers that a leader deleted with --cascade=orphan left behind, if their PodGroup is not that of the
// next leader: adopted, they would keep it waiting for ever.
func (d *groupDecision) strayed() bool {
	sts := d.Workers.Orphan()
	if sts == nil || !workload.AreApart(d.Leader, sts) {
		return true
	}
	d.plan.do(action.Delete{
		Object:  identity.RefOf(identity.KindStatefulSet, sts),
		Because: because(CodeOrphan, fmt.Sprintf("the workers of statefulset %s are in the podgroup of a former leader, and leader %s waits for others", sts.Name, d.LeaderName)),
	})
	return false
}

// apart deletes a leader whose workers are in other PodGroups, and reports whether it does: an operator that did not
// know the field created them. Workers that have a node run, and stay.
func (d *groupDecision) apart(sts *appsv1.StatefulSet) bool {
	hasNode := func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" }
	if !workload.AreApart(d.Leader, sts) || slices.ContainsFunc(slices.Concat(d.Pods.Owned, d.Pods.Previous), hasNode) {
		return false
	}
	if !d.Live {
		d.plan.Needs = NeedLivePods
		return true
	}
	leader := identity.RefOf(identity.KindPod, d.Leader)
	d.plan.do(action.Delete{
		Object: leader, AnyVersion: true, Foreground: true,
		Because: because(CodeOutdated, fmt.Sprintf("the workers of statefulset %s are in other podgroups than leader %s", sts.Name, d.LeaderName)),
		Tell: action.Telling{Done: []action.Event{{
			Reason: "RecreateGroup", Action: "Delete", Related: &leader,
			Note: fmt.Sprintf("Worker statefulset %s was created by a previous LWS version and its workers do not join the PodGroups of leader pod %s, deleted the leader pod to recreate group %s",
				sts.Name, d.LeaderName, d.name()),
		}}},
	})
	return true
}

// wasApart reports whether a terminating leader has such workers: its end is no failure.
func (d *groupDecision) wasApart() bool {
	return slices.ContainsFunc(WorkersOf(&d.Group, d.Leaving), func(sts *appsv1.StatefulSet) bool { return workload.AreApart(d.Leaving, sts) })
}

// unusedPodGroups deletes the PodGroups of a set that no pod is in and no leader needs. The end of each pod leads here.
func (d *setDecision) unusedPodGroups() (p Plan) {
	unused := slices.DeleteFunc(slices.Clone(d.PodGroups.Owned), func(object *unstructured.Unstructured) bool {
		return d.PodGroupsInUse[object.GetName()] || d.isWhole(object)
	})
	if len(unused) > 0 && !d.PodGroupsLive { // memory may lack pods
		p.Needs = NeedPodGroupsInUse
		return p
	}
	for _, object := range unused {
		p.do(action.Delete{
			Object:  identity.RefOf(identity.KindPodGroup, object),
			Because: because(CodePodGroupUnused, fmt.Sprintf("no pod is in podgroup %s, and no leader needs it", object.GetName())),
		})
	}
	return p
}

// isWhole reports whether a PodGroup is that of all pods of a set that has pods, or has not ended them.
func (d *setDecision) isWhole(object *unstructured.Unstructured) bool {
	if gang.LevelOf(d.Set.Spec.Scheduling) != gang.SetLevel || object.GetName() != gang.SetPodGroupName(d.Set) {
		return false
	}
	return workload.Replicas(d.Set) > 0 || !d.hasNoLeaders()
}

// hasNoLeaders reports whether no leader exists, and none is created.
func (d *setDecision) hasNoLeaders() bool {
	owner := d.leadersOwner()
	return owner == nil || owner.isObserved && owner.wants+owner.has == 0
}

// Reasons of the condition WorkloadSchedulingCreated.
const (
	reasonObjectsCreated  = "SchedulingObjectsCreated"
	reasonAPINotAvailable = "APINotAvailable"
	reasonInvalidSpec     = "InvalidSchedulingConfiguration"
	reasonNoWorkload      = "WorkloadCreateFailed"
	reasonNoPodGroup      = "PodGroupCreateFailed"
	reasonPodGroupRemains = "PodGroupCleanupBlocked"
)

// workloadCreated is the condition of a set that Kubernetes' own scheduler places. While its objects are being
// created, it stays what it was.
func (d *setDecision) workloadCreated() []metav1.Condition {
	if !d.isNative() {
		return nil
	}
	reason, text := d.workloadFault()
	created := status.Holding(lwsv1.LeaderWorkerSetWorkloadSchedulingCreated, reasonObjectsCreated, "the Workload and the PodGroups of this set exist")
	switch {
	case reason != "":
		created.Reason, created.Message = reason, text
		return []metav1.Condition{status.Ceased(created)}
	case d.hasPodGroups():
		return []metav1.Condition{created}
	}
	return nil
}

// hasPodGroups reports whether the Workload, and the PodGroups of all leaders, exist.
func (d *setDecision) hasPodGroups() bool {
	if !d.hasWorkload() {
		return false
	}
	for i := range d.rows {
		r := &d.rows[i]
		if gang.IsHanded(r.Leader) && len(r.PodGroups.Owned) < r.podGroups() {
			return false
		}
	}
	return true
}

// podGroups is how many PodGroups a group needs.
func (r *row) podGroups() int { return min(len(gang.PodGroupNames(r.Leader)), int(r.size)) }

// workloadFault is why a Workload or a PodGroup cannot be had, or nothing.
func (d *setDecision) workloadFault() (reason, text string) {
	if _, err := gang.Workload(d.Set); err != nil {
		return reasonInvalidSpec, err.Error()
	}
	if d.GangMissing != "" {
		return reasonAPINotAvailable, d.GangMissing
	}
	if d.Refusal.IsCreateOf(identity.KindWorkload) && d.Workload.Own() == nil {
		return reasonNoWorkload, refusedMessage(d.Refusal)
	}
	if text := conflictMessage(bearersOf(identity.KindWorkload, d.Workload.Foreign)); text != "" {
		return reasonNoWorkload, text
	}
	for _, r := range d.Refused {
		if r.IsCreateOf(identity.KindPodGroup) {
			return reasonNoPodGroup, refusedMessage(r.Refusal)
		}
	}
	return d.podGroupFault()
}

// podGroupFault is the same of PodGroups that are there, and of another owner, terminating or of another spec.
func (d *setDecision) podGroupFault() (reason, text string) {
	foreign, previous, drift := slices.Clone(d.PodGroup.Foreign), slices.Clone(d.PodGroup.Previous), d.drift()
	for i := range d.rows {
		foreign = append(foreign, d.rows[i].PodGroups.Foreign...)
		previous = append(previous, d.rows[i].PodGroups.Previous...)
	}
	switch {
	case drift != "":
		return reasonNoPodGroup, drift
	case len(foreign) > 0:
		return reasonNoPodGroup, conflictMessage(bearersOf(identity.KindPodGroup, foreign))
	case len(previous) > 0:
		return reasonPodGroupRemains, "is being deleted, and its pods stay in it until they end: " + listed(spelt(sorted(bearersOf(identity.KindPodGroup, previous)), bearer.String), ", ")
	}
	return "", ""
}

// drift names an object of the set that was created for another spec.scheduling, or is empty. Groups tell of theirs.
func (d *setDecision) drift() string {
	described := d.Workload.Own()
	if described == nil {
		return ""
	}
	if want, err := gang.Workload(d.Set); err == nil {
		if text := difference(identity.KindWorkload, described, want); text != "" {
			return text
		}
	}
	have := d.PodGroup.Own()
	if have == nil {
		return ""
	}
	want, err := gang.SetPodGroup(d.Set, described, 1)
	if err != nil {
		return ""
	}
	return difference(identity.KindPodGroup, have, want)
}
