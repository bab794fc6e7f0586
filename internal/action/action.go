// Package action is the closed set of writes that Lockstep makes, each with the preconditions that
// keep it safe and the reason it was decided for.
//
// It knows what a write must name: the incarnation it was decided for, and the owner that must still exist, or be gone,
// at the moment of the write. It refuses to know how a write is carried out and reported.
package action

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// Action is one write. Its forms are those of this package, and of package pvc those that only a
// decision there may make.
type Action interface {
	// Target is the object written. The UID of an object to be created is empty.
	Target() identity.Ref
	// About is what is said of the write.
	About() About
}

// About is what is said of a write.
type About struct {
	// Verb names the form, for logs, metrics and plans.
	Verb string
	// Because is the reason that the write was decided for.
	Because Reason
	// Tell is what users are told about it.
	Tell Telling
	// Relies says what must hold of other objects. They are read live before the write.
	Relies []Standing
}

// Reason is why something is done or waited for.
type Reason struct {
	// Code is stable, for machines.
	Code string `json:"code"`
	// Sentence is for people, with the names and numbers that made it true.
	Sentence string `json:"sentence"`
}

// Telling holds the events of one action. They are reported after the write.
type Telling struct {
	// Done is reported when the write succeeded.
	Done []Event
	// Refused is reported when it did not, with the error after the note.
	Refused *Event
	// Failures are failures of groups, to be counted when the write succeeded.
	Failures []Failure
}

// Failure is a failure of a group.
type Failure struct {
	Code string
	// ExitCode is that of the container that failed, or nil.
	ExitCode *int32
}

// Event is one event about the owner of a plan (events.k8s.io/v1).
type Event struct {
	Warning bool
	Reason  string
	Action  string
	Note    string
	// On is the object that the event is about, in place of the owner of the plan, or nil.
	On *identity.Ref
	// Related is a second object that the event is about, or nil.
	Related *identity.Ref
}

// Object is anything that can be written.
type Object interface {
	metav1.Object
	runtime.Object
}

// Create creates an object. If its name is taken, the reconcile ends: the object with that name must be read first.
type Create struct {
	Kind   identity.Kind
	Object Object
	// Uncached is set where no read waits for the cache to show the object.
	Uncached bool
	// Owner is read live before the write: same UID, not terminating.
	Owner   identity.Ref
	Because Reason
	Tell    Telling
}

// AppliedAnnotationKey is the annotation of an object that records what was last applied to it, whole.
const AppliedAnnotationKey = "lockstep.dev/applied"

// Apply applies the fields set in Object onto the incarnation and version in Onto. It never creates.
type Apply struct {
	// Object holds the fields to own; it may be a part of an object.
	Object Object
	Onto   identity.Ref
	// FieldOwner is the server-side apply manager that owns the fields.
	FieldOwner string
	// Applied is set if FieldOwner owns fields of that version by applies only. Otherwise the object is read first.
	Applied bool
	// Adopter, when set, is read live before the write: same UID, not terminating.
	Adopter *identity.Ref
	// Relies is read live before the write, after Onto was judged.
	Relies  []Standing
	Because Reason
	Tell    Telling
}

// Relabel changes labels of the incarnation and version of an object, the number of a revision, and the selector of a
// Service. It removes labels whatever manager owns them.
type Relabel struct {
	Object identity.Ref
	// Labels are those to change. An empty value removes the label.
	Labels map[string]string
	// Selector has what changes of the selector in the same way.
	Selector map[string]string
	// Number is the new number of the revision, or zero to keep it.
	Number int64
	// Uncached is set where no read waits for the cache to show the change.
	Uncached bool
	// Relies is read live before the write.
	Relies  []Standing
	Because Reason
	Tell    Telling
}

// Annotate changes annotations of the incarnation and version in Object.
type Annotate struct {
	Object identity.Ref
	// Annotations are those to change. An empty value removes the annotation.
	Annotations map[string]string
	Because     Reason
	Tell        Telling
}

// SetFinalizers replaces the finalizers of the version of an object.
type SetFinalizers struct {
	Object     identity.Ref
	Finalizers []string
	// Annotations are changed with them. An empty value removes the annotation.
	Annotations map[string]string
	// Relies is read live before the write.
	Relies  []Standing
	Because Reason
	Tell    Telling
}

// Ungate removes one scheduling gate of the incarnation of a pod, at any version: a scheduler writes the status of a
// gated pod.
type Ungate struct {
	Pod  identity.Ref
	Gate string
	// Annotations are changed with it, at the version in Pod. An empty value removes the annotation.
	Annotations map[string]string
	// Relies is read live before the write.
	Relies  []Standing
	Because Reason
	Tell    Telling
}

// SetCondition sets one condition in the status of the incarnation of a pod or a PVC. Without a status, the condition
// is removed.
type SetCondition struct {
	Object    identity.Ref
	Condition corev1.PodCondition
	Because   Reason
}

// Target implements Action.
func (a SetCondition) Target() identity.Ref { return a.Object }

// About implements Action.
func (a SetCondition) About() About { return About{"condition", a.Because, Telling{}, nil} }

// Target implements Action.
func (a Ungate) Target() identity.Ref { return a.Pod }

// About implements Action.
func (a Ungate) About() About { return About{"remove-gate", a.Because, a.Tell, a.Relies} }

// SetOwner replaces the ownerReferences of the version of a PVC in Object. They decide when the garbage
// collector deletes the PVC.
type SetOwner struct {
	Object identity.Ref
	Owners []metav1.OwnerReference
	// To, when set, is an owner that the PVC did not have. It is read live before the write: same
	// UID, not terminating. A PVC whose owner is gone would be deleted.
	To *identity.Ref
	// Annotations are set, or removed where they are empty.
	Annotations map[string]string
	Because     Reason
	Tell        Telling
}

// Delete deletes the incarnation in Object.
type Delete struct {
	Object identity.Ref
	// OwnerGone, when set, is read live before the write and must be gone.
	OwnerGone *identity.Ref
	// Relies is read live before the write.
	Relies []Standing
	// AnyVersion is set if the reason holds whatever changed since the read: the UID alone is the precondition.
	AnyVersion bool
	// After is set if everything before it in the plan is to be gone first: it does not go out
	// together with its neighbours.
	After bool
	// Foreground is set if the object stays until the garbage collector deleted what it owns.
	Foreground bool
	Because    Reason
	Tell       Telling
}

// Scale sets the replicas of the version of a LeaderWorkerSet. Groups end by it: a new version is judged again.
type Scale struct {
	Object   identity.Ref
	Replicas int32
	// GroupReplacementPolicy is set with it, unless it is empty.
	GroupReplacementPolicy lwsv1.GroupReplacementPolicyType
	// Annotations are changed with it.
	Annotations map[string]string
	Because     Reason
	Tell        Telling
}

// Target implements Action.
func (a Scale) Target() identity.Ref { return a.Object }

// About implements Action.
func (a Scale) About() About { return About{"scale", a.Because, a.Tell, nil} }

// WriteStatus replaces the status of an object at the version that was judged.
type WriteStatus struct {
	Object identity.Ref
	// Status is an object of the kind. Nothing but its status is written.
	Status  Object
	Because Reason
	Tell    Telling
}

// Target implements Action.
func (a Create) Target() identity.Ref { return identity.RefOf(a.Kind, a.Object) }

// About implements Action.
func (a Create) About() About { return About{"create", a.Because, a.Tell, nil} }

// Target implements Action.
func (a Apply) Target() identity.Ref { return a.Onto }

// About implements Action.
func (a Apply) About() About { return About{"apply", a.Because, a.Tell, a.Relies} }

// Target implements Action.
func (a Relabel) Target() identity.Ref { return a.Object }

// About implements Action.
func (a Relabel) About() About { return About{"relabel", a.Because, a.Tell, a.Relies} }

// Target implements Action.
func (a Annotate) Target() identity.Ref { return a.Object }

// About implements Action.
func (a Annotate) About() About { return About{"annotate", a.Because, a.Tell, nil} }

// Target implements Action.
func (a SetFinalizers) Target() identity.Ref { return a.Object }

// About implements Action.
func (a SetFinalizers) About() About { return About{"set-finalizers", a.Because, a.Tell, a.Relies} }

// Target implements Action.
func (a SetOwner) Target() identity.Ref { return a.Object }

// About implements Action.
func (a SetOwner) About() About { return About{"set-owner", a.Because, a.Tell, nil} }

// Target implements Action.
func (a Delete) Target() identity.Ref { return a.Object }

// About implements Action.
func (a Delete) About() About { return About{"delete", a.Because, a.Tell, a.Relies} }

// Target implements Action.
func (a WriteStatus) Target() identity.Ref { return a.Object }

// About implements Action.
func (a WriteStatus) About() About { return About{"status", a.Because, a.Tell, nil} }

// Standing is what a write relies on: objects of one kind, in one namespace. Objects with a
// deletionTimestamp count as gone.
type Standing struct {
	Kind      identity.Kind
	Namespace string
	// Name, when set, is the name of the only object meant.
	Name string
	// Labels are those of all objects meant.
	Labels map[string]string
	// Of, when set, is the UID of the controller of all objects meant.
	Of types.UID
	// None is set if no object may exist.
	None bool
	// There are the objects that must exist.
	There []types.UID
	// Unchanged are the objects that must be the versions that were judged.
	Unchanged []identity.Ref
	// Specified are the objects whose specs must be of the generations that were judged.
	Specified map[types.UID]int64
	// NoOther are names that no object may have beside those of There and Unchanged.
	NoOther []Names
}

// String says what must hold.
func (s Standing) String() string {
	kind, others := strings.ToLower(string(s.Kind)), ""
	if len(s.NoOther) > 0 {
		others = ", and no other has one of their names"
	}
	switch {
	case s.None:
		return fmt.Sprintf("no %s with %s exists", kind, labels.Set(s.Labels))
	case s.Name != "":
		return fmt.Sprintf("%s %s did not change since it was read", kind, s.Name)
	}
	return fmt.Sprintf("the judged %ss exist (%d, unchanged: %d)%s", kind, len(s.There)+len(s.Unchanged), len(s.Unchanged), others)
}

// Names are the names of leaders of a set from the first index up to, and without, the end.
type Names struct {
	Base       string
	First, End int32
}

// Has reports whether a name is in the range, spelt as a StatefulSet spells it.
func (n Names) Has(name string) bool {
	parent, index := identity.ParentAndOrdinal(name)
	return parent == n.Base && int32(index) >= n.First && int32(index) < n.End && name == identity.LeaderName(parent, index)
}

// Broken returns what does not hold of the objects that exist now, or "".
func (s Standing) Broken(now []metav1.ObjectMeta) string {
	objects, judged := map[types.UID]*metav1.ObjectMeta{}, map[types.UID]bool{}
	for i := range now {
		if now[i].DeletionTimestamp != nil || !s.means(&now[i]) {
			continue
		}
		if s.None {
			return fmt.Sprintf("%s %s is there", s.Kind, now[i].Name)
		}
		objects[now[i].UID] = &now[i]
	}
	for _, uid := range s.There {
		if judged[uid] = true; objects[uid] == nil {
			return fmt.Sprintf("%s with uid %s is gone or going", s.Kind, uid)
		}
	}
	for _, ref := range s.Unchanged {
		judged[ref.UID] = true
		if found := objects[ref.UID]; found == nil || found.ResourceVersion != ref.ResourceVersion {
			return ref.String() + " changed"
		}
	}
	for uid, generation := range s.Specified {
		if found := objects[uid]; found == nil || found.Generation != generation {
			return fmt.Sprintf("%s with uid %s is of another spec, gone or going", s.Kind, uid)
		}
	}
	for uid, found := range objects {
		if !judged[uid] && slices.ContainsFunc(s.NoOther, func(n Names) bool { return n.Has(found.Name) }) {
			return fmt.Sprintf("%s %s is there", s.Kind, found.Name)
		}
	}
	return ""
}

func (s Standing) means(found *metav1.ObjectMeta) bool {
	owner := metav1.GetControllerOfNoCopy(found)
	return s.Of == "" || owner != nil && owner.UID == s.Of
}
