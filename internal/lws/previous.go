package lws

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

const (
	// helpAfter is how long the garbage collector has, once the owner of an object is gone, before the operator deletes it.
	helpAfter = 3 * time.Second
	// GoOnAfter is how long no object may have come or gone before groups whose names are free are created.
	GoOnAfter = 3 * time.Second
	// reportAfter is how long an object that is not older than the set may take before it is reported.
	reportAfter = 10 * time.Second
	// stuckAfter is how long no object may have come or gone before they count as stuck.
	stuckAfter = time.Minute
	// SlowLook is how soon a node is read again that lacks the label of a topology.
	SlowLook = 30 * time.Second
	// inUseFinalizer is the finalizer of PVCs that pods use.
	inUseFinalizer = "kubernetes.io/pvc-protection"
	// stuckPhrase is in every message about objects that count as stuck.
	stuckPhrase = "none has left for a minute"
)

// Object is an object under a name that is needed.
type Object struct {
	identity.Ref
	Object metav1.Object
}

// ObjectsOf returns objects of a kind with their references.
func ObjectsOf[T metav1.Object](kind identity.Kind, objects []T) (all []Object) {
	for _, object := range objects {
		all = append(all, Object{Ref: identity.RefOf(kind, object), Object: object})
	}
	return all
}

// Below returns the objects whose ordinals are in the range.
func Below(all []Object, first int, end int32) []Object {
	return slices.DeleteFunc(all, func(p Object) bool {
		ordinal := identity.Ordinal(p.Name)
		return ordinal < first || int32(ordinal) >= end
	})
}

// PreviousWait is what is reported about the objects that a set waits for. It has no message if there is none.
type PreviousWait struct {
	Message string
	Until   time.Time
	Stuck   bool
	// Quiet is the wait for objects that no condition reports yet, or nil.
	Quiet *Wait
}

// Previous returns what holds back this group's workers. Once their StatefulSet exists, it deals
// with its own pods. PVCs of a StatefulSet to adopt end with its pods.
func (g *Group) Previous(size int32) []Object {
	if g.Workers.Own() != nil {
		return nil
	}
	found := ObjectsOf(identity.KindStatefulSet, g.Workers.Previous)
	if g.Workers.Orphan() == nil {
		found = append(found, Below(ObjectsOf(identity.KindPersistentVolumeClaim, g.Volumes.Previous), 1, size)...)
	}
	return append(found, Below(ObjectsOf(identity.KindPod, g.Pods.Previous), 1, size)...)
}

// OrdinalsOf returns the ordinals in the names of objects.
func OrdinalsOf(all []Object) map[int]bool {
	ordinals := map[int]bool{}
	for _, p := range all {
		ordinals[identity.Ordinal(p.Name)] = true
	}
	return ordinals
}

// HelpAlong deletes garbage that the collector has not deleted in time. The owner is read live before the delete.
// Objects without the label of a set are left to the collector: a policy refuses the operator their deletion.
func (p *Plan) HelpAlong(now time.Time, vigil Vigil, lives identity.Lives, all []Object) {
	for _, g := range all {
		if !identity.IsGarbage(g.Object, lives) || g.Object.GetLabels()[lwsv1.SetNameLabelKey] == "" {
			continue
		}
		owner := identity.OwnerRef(g.Namespace, g.Object.GetOwnerReferences()[0])
		due := cmp.Or(vigil.Gone[owner.UID], now).Add(helpAfter)
		if now.Before(due) {
			p.Wait(Wait{Reason: Because(CodeGarbage, g.String()+" has no owner and is left to the garbage collector"), Until: due})
			continue
		}
		p.Do(action.Delete{
			Object:    g.Ref,
			OwnerGone: &owner,
			Because:   Because(CodeGarbage, g.String()+" belongs to "+owner.String()+", which is gone"),
		})
	}
}

// Report names the objects that are older than the set, or have been there for a while. The
// message depends on the objects alone, not on the time: the next reconcile writes nothing.
func (w *SetSnapshot) Report(blocking []Object) PreviousWait {
	told := slices.DeleteFunc(blocking, func(p Object) bool {
		return w.Now.Before(cmp.Or(w.Vigil.Seen[p.UID], w.Now).Add(reportAfter)) && !p.isOlder(w.Set)
	})
	if len(told) == 0 {
		return PreviousWait{}
	}
	wait := PreviousWait{Message: "waiting for " + named(w.Set, Sorted(told)), Stuck: !w.Now.Before(w.Vigil.Moved.Add(stuckAfter))}
	if wait.Stuck {
		wait.Message += "; " + stuckPhrase + ": " + Spelt(told, Remedy, "; ")
	}
	return wait
}

// isOlder reports whether an object was created before a set, or in the same second.
func (p Object) isOlder(set *lwsv1.LeaderWorkerSet) bool {
	return !p.Object.GetCreationTimestamp().After(set.CreationTimestamp.Time)
}

// Sorted sorts objects by kind and ordinal: a cache lists them in any order, and a message must not change with it.
func Sorted(all []Object) []Object {
	slices.SortFunc(all, func(a, b Object) int {
		return cmp.Or(-cmp.Compare(a.Kind, b.Kind), len(a.Name)-len(b.Name), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// GoneWait waits until objects are gone.
func GoneWait(set *lwsv1.LeaderWorkerSet, begins string, all []Object, until time.Time) Wait {
	return Wait{Reason: Because(CodePreviousIncarnation, begins+named(set, Sorted(all))), Until: until, Ordinary: !anyOlder(all, set)}
}

// anyOlder reports whether any of the objects is of a previous incarnation of a set. Objects that the set itself had end in each
// step of a rollout.
func anyOlder(all []Object, set *lwsv1.LeaderWorkerSet) bool {
	return slices.ContainsFunc(all, func(p Object) bool { return p.isOlder(set) })
}

// named counts objects that must be gone, and names the first of them.
func named(set *lwsv1.LeaderWorkerSet, all []Object) string {
	noun := "object"
	if len(all) > 1 {
		noun += "s"
	}
	if anyOlder(all, set) {
		noun += " of the previous incarnation"
	} else {
		noun = "terminating " + noun
	}
	return fmt.Sprintf("%d %s: %s", len(all), noun, Spelt(all, Object.String, ", "))
}

// Spelt joins what is said of the first of many, and counts the others.
func Spelt[T any](all []T, says func(T) string, separator string) string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = says(p)
	}
	return action.Listed(texts, separator)
}

// Remedy says what holds an object, and what would release it.
func Remedy(p Object) string {
	finalizers := p.Object.GetFinalizers()
	pod, isPod := p.Object.(*corev1.Pod)
	switch {
	case p.Kind == identity.KindPersistentVolumeClaim && slices.Equal(finalizers, []string{inUseFinalizer}):
		return fmt.Sprintf("%s goes when no pod uses it", p)
	case len(finalizers) > 0:
		return fmt.Sprintf("%s is held by finalizer %s and goes when that is removed", p, action.Clipped(strings.Join(finalizers, ", ")))
	case isPod && pod.DeletionTimestamp != nil && pod.Spec.NodeName != "":
		// Not a forced deletion: a machine that is cut off, but runs, would go on to write on
		// its volumes beside the next pod.
		return fmt.Sprintf("%s goes when node %s confirms that it ended. If %s is powered off: kubectl taint nodes %s %s=nodeshutdown:NoExecute",
			p, pod.Spec.NodeName, pod.Spec.NodeName, pod.Spec.NodeName, corev1.TaintNodeOutOfService)
	case p.Object.GetDeletionTimestamp() == nil:
		return fmt.Sprintf("%s goes when the garbage collector deletes it", p)
	}
	return fmt.Sprintf("%s goes when its own dependents are gone", p)
}

// ToldStuck reports whether the set's status says that nothing has left for a minute.
func ToldStuck(set *lwsv1.LeaderWorkerSet) bool {
	told, ok := condition.Of(set.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	return ok && told.Status == metav1.ConditionTrue && told.Reason == CodePreviousIncarnation &&
		strings.Contains(told.Message, stuckPhrase)
}

// ConflictLook is how soon foreign objects are read again: objects without our labels are not watched.
const ConflictLook = 10 * time.Second

const (
	// PVCsAgain is how soon PVCs that were written are read again.
	PVCsAgain = 50 * time.Millisecond
	// RetainAgain is how soon a StatefulSet is read again that is to say Retain.
	RetainAgain = time.Second
	// ScaledAgain is how soon PVCs of groups scaled away are read again that are to go.
	ScaledAgain = 5 * time.Second
)

// Conflicts returns the foreign objects under names of the group's workers, Service and PodGroup.
func (g Group) Conflicts(set *lwsv1.LeaderWorkerSet) []Object {
	found := ObjectsOf(identity.KindPodGroup, g.Gang.Foreign)
	found = append(found, ObjectsOf(identity.KindPodGroup, g.PodGroups.Foreign)...)
	found = append(found, ObjectsOf(identity.KindPod, g.Misspelt)...)
	size := workload.SizeOf(g.Leader, set)
	if size > 1 {
		found = append(found, ObjectsOf(identity.KindStatefulSet, g.Workers.Foreign)...)
	}
	if len(g.Workers.Foreign) == 0 { // else they are those of the StatefulSet
		found = append(found, slices.DeleteFunc(Below(ObjectsOf(identity.KindPod, g.Pods.Foreign), 1, size), func(p Object) bool {
			return g.Workers.Orphan() != nil && metav1.IsControlledBy(p.Object, g.Workers.Orphan()) // is adopted
		})...)
	}
	if g.HasOwnSubdomain(set) {
		found = append(found, ObjectsOf(identity.KindService, g.Service.Foreign)...)
	}
	return found
}

// ConflictMessage is one message about all conflicts, with the next step, or empty.
func ConflictMessage(found []Object) string {
	if len(found) == 0 {
		return ""
	}
	return "names are taken: " + Spelt(Sorted(found), taken, "; ") + "; remove what is in the way, or give this set another name"
}

// taken names an object that has a name of ours, and its controller.
func taken(p Object) string {
	if parent, ordinal := identity.ParentAndOrdinal(p.Name); p.Kind == identity.KindPod && IsMisspelt(p.Name) {
		return fmt.Sprintf("%s counts as %s", p, identity.LeaderName(parent, ordinal))
	}
	if owner := metav1.GetControllerOfNoCopy(p.Object); owner != nil {
		return fmt.Sprintf("%s belongs to %s %s", p, strings.ToLower(owner.Kind), owner.Name)
	}
	return p.String() + " has no controller"
}

// IsMisspelt reports whether a pod has a name that a StatefulSet reads as one of its own and never gives: w-01.
func IsMisspelt(name string) bool {
	parent, ordinal := identity.ParentAndOrdinal(name)
	return ordinal != identity.NoOrdinal && name != identity.LeaderName(parent, ordinal)
}

// ScaledAway are the groups beyond the StatefulSet's replicas that have PVCs which are to
// go, by rising index. There are none at rest.
func ScaledAway(w SetSnapshot, created *lwsv1.LeaderWorkerSet) []int {
	sts := w.StatefulSet.Own()
	var found []int
	for _, pvc := range slices.Concat(w.PVCs.Owned, w.PVCs.Orphans) {
		index := volumes.GroupIndex(pvc, created)
		if volumes.IsMarked(pvc, w.Set) && sts != nil && int32(index) >= workload.PodsOf(sts) {
			found = append(found, index)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
