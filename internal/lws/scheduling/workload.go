// Package scheduling keeps the objects by which Kubernetes' own scheduler knows the groups of a set.
//
// It knows the Workload, its PodGroups and the condition about them. It refuses to know how leaders and workers are
// created, and what a PodGroup contains: package gang does.
package scheduling

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/status"
	"lockstep.dev/lockstep/internal/lws/table"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Scheduler places the pods of a set. It keeps the objects of the whole set: groups have PodGroups of their own.
type Scheduler interface {
	// Missing says why no group can be placed, or is empty.
	Missing() string
	// Keep keeps the objects by which the scheduler knows the set.
	Keep() lws.Plan
	// IsAwaited reports whether the first leaders wait for these objects.
	IsAwaited() bool
	// Mark gives the template of leaders what the scheduler knows them by.
	Mark(leaders *corev1.PodTemplateSpec)
	// Conditions are those about these objects.
	Conditions() []metav1.Condition
}

// kubernetes is Kubernetes' own scheduler: it knows a set by its Workload.
type kubernetes struct{ *table.Table }

// groupwise is Volcano, or a scheduler that knows no groups: neither knows a set.
type groupwise struct{ *table.Table }

// Of returns the scheduler of a set.
func Of(t *table.Table) Scheduler {
	if t.Scheduler == gang.Kubernetes && t.SetSnapshot.Set.Spec.Scheduling != nil {
		return kubernetes{t}
	}
	return groupwise{t}
}

func (s groupwise) Missing() string                { return s.GangMissing }
func (s groupwise) Keep() (p lws.Plan)             { return p }
func (s groupwise) IsAwaited() bool                { return false }
func (s groupwise) Mark(*corev1.PodTemplateSpec)   {}
func (s groupwise) Conditions() []metav1.Condition { return nil }

func (s kubernetes) Missing() string                      { return "" }
func (s kubernetes) Mark(leaders *corev1.PodTemplateSpec) { gang.HandTo(&leaders.ObjectMeta, s.Set) }

// IsAwaited implements Scheduler: the scheduler would not know the leaders.
func (s kubernetes) IsAwaited() bool { return s.AwaitsLeaders() && !hasWorkload(s.Table) }

// GangLook is how often a gang scheduler that is missing is looked for.
const GangLook = 10 * time.Second

// Reasons of the condition WorkloadSchedulingCreated.
const (
	reasonObjectsCreated  = "SchedulingObjectsCreated"
	reasonAPINotAvailable = "APINotAvailable"
	reasonInvalidSpec     = "InvalidSchedulingConfiguration"
	reasonNoWorkload      = "WorkloadCreateFailed"
	reasonNoPodGroup      = "PodGroupCreateFailed"
	reasonPodGroupRemains = "PodGroupCleanupBlocked"
)

// Keep implements Scheduler: it keeps the Workload of a set, and the PodGroup of all its pods. Pods may exist before
// their PodGroup: the scheduler holds them back.
func (s kubernetes) Keep() (p lws.Plan) {
	t := s.Table
	switch {
	case t.RefusalText != "" && t.PodGroup.Own() != nil && t.Workload.Own() != nil:
		return setPodGroup(t, t.Workload.Own()) // leaders that are refused are not waited for
	case t.Held:
		return p
	case t.GangMissing != "":
		p.Await(t.Now.Add(GangLook), lws.CodeWorkloadNotReady, t.GangMissing)
		return p
	}
	want, err := gang.Workload(t.Set)
	if err != nil {
		p.Await(t.Now.Add(lws.ConflictLook), lws.CodeWorkloadNotReady, err.Error())
		return p
	}
	KeepNative(&p, identity.KindWorkload, t.Workload, want, t.Set)
	if have := t.Workload.Own(); have != nil && gang.LevelOf(t.Set.Spec.Scheduling) == gang.SetLevel {
		p.Add(setPodGroup(t, have))
	}
	return p
}

// setPodGroup keeps the PodGroup of all pods of a set. A set without pods has none.
func setPodGroup(t *table.Table, described *unstructured.Unstructured) (p lws.Plan) {
	if workload.Replicas(t.Set) == 0 {
		return p
	}
	want, err := gang.SetPodGroup(t.Set, described, minCount(t))
	if err != nil {
		p.Await(t.Now.Add(lws.ConflictLook), lws.CodeWorkloadNotReady, err.Error())
		return p
	}
	KeepNative(&p, identity.KindPodGroup, t.PodGroup, want, t.Set)
	return p
}

// minCount is how many pods the PodGroup of all pods waits for, as they can exist now.
func minCount(t *table.Table) int32 {
	least := workload.Size(t.Set)
	for i := range t.Rows {
		least = min(least, t.Rows[i].Size)
	}
	sizes, room := t.Maker.InService()
	return gang.MinCount(workload.Replicas(t.Set), workload.Size(t.Set), sizes, room, least)
}

// hasWorkload reports whether the Workload exists, and the PodGroup of all pods if the set has one.
func hasWorkload(t *table.Table) bool {
	needsPodGroup := gang.LevelOf(t.Set.Spec.Scheduling) == gang.SetLevel && workload.Replicas(t.Set) > 0
	return t.Workload.Own() != nil && (!needsPodGroup || t.PodGroup.Own() != nil)
}

// KeepNative creates a Workload or a PodGroup, or patches its labels and counts: the API server refuses any other
// change. The object of another owner under the name stays: no object is adopted.
func KeepNative(p *lws.Plan, kind identity.Kind, found identity.Claim[*unstructured.Unstructured], want *unstructured.Unstructured, set *lwsv1.LeaderWorkerSet) {
	owner, name, ref := lws.SetRef(set), called(kind, want), identity.RefOf(kind, want)
	if have := found.Own(); have != nil {
		patchNative(p, kind, have, want)
	} else if found.Empty() { // else the set reports what is foreign, and an event tells when what terminates is gone
		p.Create(kind, want, owner, fmt.Sprintf("%s has no %s", owner, name), "Failed to create "+name, &ref)
	}
}

// called names an object by its kind and name.
func called(kind identity.Kind, object *unstructured.Unstructured) string {
	return strings.ToLower(string(kind)) + " " + object.GetName()
}

func patchNative(p *lws.Plan, kind identity.Kind, have, want *unstructured.Unstructured) {
	if text := difference(kind, have, want); text != "" {
		p.Wait(lws.Wait{Reason: lws.Because(lws.CodePodGroupDiffers, text), Tell: lws.Warning(lws.CodePodGroupDiffers, "Wait", text, new(identity.RefOf(kind, have)))})
		if field, _ := gang.Dropped(have, want); field == "" {
			return
		} // the rest of it can be kept
	}
	if name := called(kind, have); gang.IsOutdated(have, want) {
		p.Apply(gang.Part(want), identity.RefOf(kind, have), lws.ScaleFieldOwner,
			lws.Because(lws.CodeChanged, name+" has other labels or counts of pods"), "Failed to update "+name)
	}
}

// difference says what of an object cannot be changed and is not what the set says, or is empty.
func difference(kind identity.Kind, have, want *unstructured.Unstructured) string {
	name := called(kind, have)
	if field, gate := gang.Dropped(have, want); field != "" {
		return fmt.Sprintf("%s: the API server dropped %s; switch on its feature gate %s, delete the object, and another is created", name, field, gate)
	}
	if gang.HasOtherMembers(have, want) || !lws.Within(gang.Fixed(have), gang.Fixed(want)) {
		return name + " says what spec.scheduling does not, and cannot be changed: delete it, and another is created"
	}
	return ""
}

// DeleteUnused deletes the PodGroups of a set that no pod is in and no leader needs. The end of each pod leads here.
func DeleteUnused(t *table.Table) (p lws.Plan) {
	unused := slices.DeleteFunc(slices.Clone(t.PodGroups.Owned), func(object *unstructured.Unstructured) bool {
		return t.PodGroupsInUse[object.GetName()] || isWhole(t, object)
	})
	if len(unused) > 0 && !t.PodGroupsLive { // memory may lack pods
		p.Needs = lws.NeedPodGroupsInUse
		return p
	}
	for _, object := range unused {
		p.Do(action.Delete{
			Object:  identity.RefOf(identity.KindPodGroup, object),
			Because: lws.Because(lws.CodePodGroupUnused, fmt.Sprintf("no pod is in podgroup %s, and no leader needs it", object.GetName())),
		})
	}
	return p
}

// isWhole reports whether a PodGroup is that of all pods of a set that has pods, or has not ended them.
func isWhole(t *table.Table, object *unstructured.Unstructured) bool {
	if gang.LevelOf(t.Set.Spec.Scheduling) != gang.SetLevel || object.GetName() != gang.SetPodGroupName(t.Set) {
		return false
	}
	owner := t.LeadersOwner()
	return workload.Replicas(t.Set) > 0 || owner != nil && (!owner.IsObserved || owner.Wants+owner.Has > 0)
}

// Conditions implements Scheduler. While the objects of a set are being created, the condition stays what it was.
func (s kubernetes) Conditions() []metav1.Condition {
	reason, text := workloadFault(s.Table)
	lacksPodGroup := func(r table.Row) bool {
		return gang.IsHanded(r.Leader) && len(r.PodGroups.Owned) < min(len(gang.PodGroupNames(r.Leader)), int(r.Size))
	}
	created := status.Holding(lwsv1.LeaderWorkerSetWorkloadSchedulingCreated, reasonObjectsCreated, "the Workload and the PodGroups of this set exist")
	switch {
	case reason != "":
		created.Reason, created.Message = reason, text
		return []metav1.Condition{status.Ceased(created)}
	case hasWorkload(s.Table) && !slices.ContainsFunc(s.Rows, lacksPodGroup):
		return []metav1.Condition{created}
	}
	return nil
}

// workloadFault is why a Workload or a PodGroup cannot be had, or nothing.
func workloadFault(t *table.Table) (reason, text string) {
	if _, err := gang.Workload(t.Set); err != nil {
		return reasonInvalidSpec, err.Error()
	}
	if t.GangMissing != "" {
		return reasonAPINotAvailable, t.GangMissing
	}
	if t.Refusal.IsCreateOf(identity.KindWorkload) && t.Workload.Own() == nil {
		return reasonNoWorkload, action.RefusedMessage(t.Refusal)
	}
	if text := lws.ConflictMessage(lws.ObjectsOf(identity.KindWorkload, t.Workload.Foreign)); text != "" {
		return reasonNoWorkload, text
	}
	for _, r := range t.Refused {
		if r.IsCreateOf(identity.KindPodGroup) {
			return reasonNoPodGroup, action.RefusedMessage(r.Refusal)
		}
	}
	return podGroupFault(t)
}

// podGroupFault is the same of PodGroups that are there, and of another owner, terminating or of another spec.
func podGroupFault(t *table.Table) (reason, text string) {
	foreign, previous, drift := slices.Clone(t.PodGroup.Foreign), slices.Clone(t.PodGroup.Previous), driftText(t)
	for i := range t.Rows {
		foreign = append(foreign, t.Rows[i].PodGroups.Foreign...)
		previous = append(previous, t.Rows[i].PodGroups.Previous...)
	}
	switch {
	case drift != "":
		return reasonNoPodGroup, drift
	case len(foreign) > 0:
		return reasonNoPodGroup, lws.ConflictMessage(lws.ObjectsOf(identity.KindPodGroup, foreign))
	case len(previous) > 0:
		return reasonPodGroupRemains, "is being deleted, and its pods stay in it until they end: " + lws.Spelt(lws.Sorted(lws.ObjectsOf(identity.KindPodGroup, previous)), lws.Object.String, ", ")
	}
	return "", ""
}

// driftText names an object of the set that was created for another spec.scheduling, or is empty. Groups tell of theirs.
func driftText(t *table.Table) string {
	described, have, text := t.Workload.Own(), t.PodGroup.Own(), ""
	if want, err := gang.Workload(t.Set); described != nil && err == nil {
		text = difference(identity.KindWorkload, described, want)
	}
	if text != "" || described == nil || have == nil {
		return text
	}
	if want, err := gang.SetPodGroup(t.Set, described, 1); err == nil {
		text = difference(identity.KindPodGroup, have, want)
	}
	return text
}
