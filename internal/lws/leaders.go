package lws

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// leaders creates the StatefulSet or Deployment of the leaders, or applies it onto the version that was judged if it differs
// from the spec.
func (d *setDecision) leaders() (p Plan) {
	desired := d.wantedLeaders()
	if desired == nil || d.awaitsWorkload() {
		return p
	}
	applied, live := Fingerprint(desired), d.leadersOwner()
	desired.GetAnnotations()[AppliedAnnotationKey] = applied
	switch {
	case live == nil && d.StatefulSet.Empty() && d.Deployment.Empty():
		p.do(d.createLeaders(desired))
	case live == nil:
	case d.StatefulSet.Own() == nil && d.Deployment.Own() == nil:
		owner, why := setRef(d.Set), fmt.Sprintf("%s %s has no controller and has the labels of this set", live.noun(), d.Set.Name)
		desired.GetAnnotations()[AppliedAnnotationKey] = d.maker.record(desired, applied)
		p.do(d.applyLeaders(live, desired, &owner, because(CodeOrphan, why)))
	case d.maker.differs(desired, applied):
		desired.GetAnnotations()[AppliedAnnotationKey] = d.maker.record(desired, applied)
		p.do(d.applyLeaders(live, desired, nil, d.maker.whyApply()))
	}
	return p
}

// wantedLeaders returns that object as it is applied, without the record of the apply, or nil while none is wanted.
func (d *setDecision) wantedLeaders() action.Object {
	if d.held || d.target.key == "" {
		return nil
	}
	desired, template := d.maker.desired()
	if d.isNative() {
		gang.HandTo(template, d.Set)
	}
	d.asFound(desired, template)
	delete(desired.GetAnnotations(), AppliedAnnotationKey)
	return desired
}

func (d *statefulSetMaker) differs(desired action.Object, applied string) bool {
	sts := d.StatefulSet.Own()
	return !d.leadersWait(sts) && !inStep(sts, desired.(*appsv1.StatefulSet), applied)
}

func (d *statefulSetMaker) record(desired action.Object, applied string) string {
	return appliedOnto(d.leaderStatefulSet(), desired.(*appsv1.StatefulSet), applied)
}

// leadersWait reports whether the leader StatefulSet stays as it is until PVCs are safe from the garbage collector.
func (d *setDecision) leadersWait(sts *appsv1.StatefulSet) bool {
	return d.pvcsPending && (volumes.AreDeletedBy(sts) || d.rollout.Lowers(d.course) || d.course.Replicas < workload.PodsOf(sts))
}

// desired implements maker. A StatefulSet refuses other templates of claims, even with the same meaning.
func (d *statefulSetMaker) desired() (action.Object, *corev1.PodTemplateSpec) {
	desired := workload.LeaderStatefulSet(d.Set, d.target.key, d.course.Replicas, d.course.Partition)
	live := d.leaderStatefulSet()
	if live != nil && (d.otherClaims != "" || workload.SameClaimTemplates(desired.Namespace, live.Spec.VolumeClaimTemplates, desired.Spec.VolumeClaimTemplates)) {
		desired.Spec.VolumeClaimTemplates = live.Spec.VolumeClaimTemplates
	}
	d.asLabelled(desired)
	return desired, &desired.Spec.Template
}

// asLabelled gives a new StatefulSet the label of its role, on which users select. An apply would remove the label
// from a StatefulSet that has it; one from before is not written for it.
func (d *statefulSetMaker) asLabelled(desired *appsv1.StatefulSet) {
	role := lwsv1.LeaderRole
	if sts := d.leaderStatefulSet(); sts != nil {
		role = sts.Labels[lwsv1.RoleLabelKey]
	}
	if role != "" {
		desired.Labels[lwsv1.RoleLabelKey] = role
	}
}

// WantedLeaders returns the leader StatefulSet that a decided snapshot wants, or nil. Its Fingerprint is what
// an apply of it records.
func WantedLeaders(w SetSnapshot) *appsv1.StatefulSet {
	if w.Set.DeletionTimestamp != nil || len(w.Beyond) > 0 {
		return nil
	}
	d, plan := derive(w)
	if plan.Needs != "" {
		return nil
	}
	wanted, _ := d.wantedLeaders().(*appsv1.StatefulSet)
	return wanted
}

func (d *setDecision) createLeaders(desired action.Object) action.Create {
	kind := identity.KindStatefulSet
	if _, is := desired.(*appsv1.Deployment); is {
		kind = identity.KindDeployment
	}
	noun := strings.ToLower(string(kind))
	return action.Create{
		Kind:    kind,
		Object:  desired,
		Owner:   setRef(d.Set),
		Because: because(CodeMissing, fmt.Sprintf("the set has no leader %s %s", noun, d.Set.Name)),
		Tell: action.Telling{
			Done: []action.Event{{
				Reason: "GroupsProgressing", Action: "Create",
				Note: "Created leader " + noun + " " + d.Set.Name, Related: d.target.revision,
			}},
			Refused: warning("FailedCreate", "Create", "Failed to create leader "+noun+" "+d.Set.Name, nil),
		},
	}
}

func (d *setDecision) applyLeaders(live *leadersOwner, desired action.Object, adopter *identity.Ref, reason action.Reason) action.Apply {
	return action.Apply{
		Object:     desired,
		Onto:       identity.RefOf(live.kind, live),
		FieldOwner: FieldOwner,
		Applied:    !leftByCreate(live),
		Adopter:    adopter,
		Relies:     d.maker.relied(),
		Because:    reason,
		Tell: action.Telling{
			Done:    d.maker.rolloutEvents(),
			Refused: warning("FailedUpdate", "Update", "Failed to update leader "+live.noun()+" "+d.Set.Name, nil),
		},
	}
}

func (d *statefulSetMaker) whyApply() action.Reason {
	if d.rollout.Lowers(d.course) {
		return because(CodeRollout, fmt.Sprintf("groups from %d on go to revision %s: %d of %d are down, and %d may be",
			d.course.Partition, d.target.title(), d.rollout.Down(), d.rollout.Replicas, d.rollout.Budget(d.course.Replicas)))
	}
	return because(CodeChanged, fmt.Sprintf("statefulset %s differs from the spec", d.Set.Name))
}

// appliedOnto is the annotation of an apply: the hash of the fields that it sets, and the
// generation and UID that the StatefulSet has afterwards.
func appliedOnto(live, desired *appsv1.StatefulSet, fingerprint string) string {
	generation := live.Generation
	if !wasUndone(live, fingerprint) && !contains(&live.Spec, attainable(live, desired)) {
		generation++
	}
	return fmt.Sprintf("%s.%d.%s", fingerprint, generation, live.UID)
}

// wasUndone reports whether a webhook undid the same write: it was the create, or an apply that did not reach the
// generation that it recorded. A record that is too low costs one more apply; one that is too high hides a change.
func wasUndone(live *appsv1.StatefulSet, fingerprint string) bool {
	generation, isRecorded := recordedGeneration(live, fingerprint)
	return live.Annotations[AppliedAnnotationKey] == fingerprint || isRecorded && generation > live.Generation
}

// recordedGeneration returns the generation that the last apply recorded, if it was an apply of
// the same fields onto the same StatefulSet.
func recordedGeneration(live *appsv1.StatefulSet, fingerprint string) (generation int64, isRecorded bool) {
	applied, record, _ := strings.Cut(live.Annotations[AppliedAnnotationKey], ".")
	_, err := fmt.Sscanf(record, "%d."+string(live.UID), &generation)
	return generation, applied == fingerprint && err == nil
}

// inStep reports whether a StatefulSet needs no apply: what was applied last is wanted, and the spec was not changed
// since. A webhook may have changed what was applied: another apply would change nothing and never end.
func inStep(live, desired *appsv1.StatefulSet, fingerprint string) bool {
	if !isLabelledAs(live, desired) {
		return false
	}
	if wanted := lwsv1.ReplicasAnnotationKey; live.Annotations[wanted] != desired.Annotations[wanted] {
		return false // a rollout goes by it
	}
	if applied, _, _ := strings.Cut(live.Annotations[AppliedAnnotationKey], "."); applied != fingerprint {
		return false
	}
	generation, isRecorded := recordedGeneration(live, fingerprint)
	return isRecorded && live.Generation == generation || contains(&live.Spec, attainable(live, desired))
}

// isLabelledAs reports whether an object has the labels that the readers of a set go by.
func isLabelledAs(live, desired metav1.Object) bool {
	for _, key := range []string{lwsv1.SetNameLabelKey, lwsv1.RevisionKey} {
		if live.GetLabels()[key] != desired.GetLabels()[key] {
			return false
		}
	}
	return true
}

// attainable leaves out what a write cannot change: volumeClaimTemplates, and the maxUnavailable
// that an API server drops whose feature gate is off.
func attainable(live, desired *appsv1.StatefulSet) *appsv1.StatefulSetSpec {
	spec := desired.Spec
	spec.VolumeClaimTemplates = nil
	if dropsMaxUnavailable(live) {
		rolling := *spec.UpdateStrategy.RollingUpdate
		rolling.MaxUnavailable = nil
		spec.UpdateStrategy.RollingUpdate = &rolling
	}
	return &spec
}

// adopt makes owner the controller of an orphan. part holds the ownerReference alone.
func adopt(orphan, owner identity.Ref, part action.Object) action.Apply {
	return action.Apply{
		Object:     part,
		Onto:       orphan,
		FieldOwner: adoptionFieldOwner,
		Adopter:    &owner,
		Because:    because(CodeOrphan, orphan.String()+" has no controller and bears the labels of "+owner.String()),
	}
}

// LeftByCreate reports whether a create or an update left an entry of managed fields to the manager of our applies. An
// apply removes only fields that applies own: the others are turned into applied ones first.
func LeftByCreate(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == FieldOwner && entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == ""
}

func leftByCreate(object metav1.Object) bool {
	return slices.ContainsFunc(object.GetManagedFields(), LeftByCreate)
}

// replace deletes outdated leaders that the StatefulSet controller does not replace. It has
// observed the spec, so the next pods are of the current template. The partition covers all of
// them. If others broke since, only those that are down are deleted.
func (d *statefulSetMaker) replace() (p Plan) {
	sts := d.StatefulSet.Own()
	if sts == nil || d.held || d.pvcsPending || !workload.Observed(sts) || d.rollout.Changed || d.rollout.Paused {
		return p
	}
	outdated := d.outdatedLeaders(sts)
	if len(outdated) == 0 || !d.leavesOutdated(sts, d.rows[outdated[0]].Index) {
		return p
	}
	covered := d.rollout.Down() <= d.rollout.Budget(d.rollout.Running)
	for _, up := range []bool{false, true} { // those that are down first
		for _, i := range outdated {
			if d.rollout.Places[i].Ready == up && (covered || !up) {
				p.do(d.replaceLeader(d.rows[i].Group, !covered))
			}
		}
	}
	return p
}

// replaceLeader deletes a leader if the spec of its StatefulSet is the one that was judged: the
// cache of an operator that is no longer the leader may lag. A leader whose group is down is
// deleted only if its workers did not change either.
func (d *statefulSetMaker) replaceLeader(g *Group, onlyIfDown bool) action.Delete {
	relied := []action.Standing{specified(identity.KindStatefulSet, d.StatefulSet.Own())}
	workers := action.Standing{Kind: identity.KindStatefulSet, Namespace: d.Set.Namespace, Labels: map[string]string{lwsv1.SetNameLabelKey: d.Set.Name}}
	if onlyIfDown {
		g.reliedWorkers(&workers)
	}
	if len(workers.Unchanged)+len(workers.NoOther) > 0 {
		relied = append(relied, workers)
	}
	return action.Delete{
		Object:  identity.RefOf(identity.KindPod, g.Leader),
		Relies:  relied,
		Because: because(CodeOutdated, fmt.Sprintf("leader %s is to be replaced at revision %s, and the statefulset controller waits for leaders that are down", g.LeaderName, d.target.title())),
	}
}

// specified is the spec of a StatefulSet or Deployment as it was judged.
func specified(kind identity.Kind, object metav1.Object) action.Standing {
	return action.Standing{
		Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(), Specified: map[types.UID]int64{object.GetUID(): object.GetGeneration()},
	}
}

// outdatedLeaders are the positions of groups whose leaders the StatefulSet is to replace, from the top.
func (d *statefulSetMaker) outdatedLeaders(sts *appsv1.StatefulSet) (outdated []int) {
	for i, p := range slices.Backward(d.rollout.Places) {
		granted := p.Index >= livePartition(sts) && p.Index < workload.PodsOf(sts)
		made := d.rows[i].Leader.Labels[appsv1.ControllerRevisionHashLabelKey]
		if granted && p.Outdated && made != sts.Status.UpdateRevision {
			outdated = append(outdated, i)
		}
	}
	return outdated
}

// leavesOutdated reports whether leaders that are down keep the StatefulSet controller from replacing
// the highest outdated leader. A server without maxUnavailable replaces one at a time, from the top.
func (d *statefulSetMaker) leavesOutdated(sts *appsv1.StatefulSet, highest int) bool {
	budget := workload.MaxUnavailable(d.Set)
	if dropsMaxUnavailable(sts) {
		return budget > 1 || d.leadersDown(int32(highest)+1, workload.PodsOf(sts)) > 0
	}
	return d.leadersDown(0, workload.PodsOf(sts)) >= budget
}

// dropsMaxUnavailable reports whether the API server drops maxUnavailable, as with its feature
// gate off: every leader StatefulSet is written with one.
func dropsMaxUnavailable(sts *appsv1.StatefulSet) bool {
	rolling := sts.Spec.UpdateStrategy.RollingUpdate
	return rolling != nil && rolling.MaxUnavailable == nil
}

// leadersDown counts the leaders in the range that are not ready.
func (d *statefulSetMaker) leadersDown(first, end int32) int32 {
	down := max(0, end-first)
	for i := range d.rows {
		index := int32(d.rows[i].Index)
		down -= one(index >= first && index < end && PodReady(d.rows[i].Leader))
	}
	return down
}
