// Package action is the closed set of writes that Lockstep makes, each with the
// preconditions that keep it safe and the reason it was decided for.
//
// It knows what a write must name: the exact incarnation it was decided for, and
// the owner that must still be alive, or certainly gone, at the moment of the
// write. It refuses to know how a write is carried out and how it is told.
package action

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// Action is one write. The set of its forms is closed: Create, Apply, Relabel,
// Tie, Annotate, Delete, WriteStatus and SetFinalizers; and, where only a judgement may
// make them, those of package pvc.
type Action interface {
	// Target is the object written. The UID of an object to be created is empty.
	Target() identity.Ref
	// Why is the reason that the write was decided for.
	Why() Reason
	// Telling is what users are to hear of it.
	Telling() Telling
	// Verb names the form, for logs, metrics and plans.
	Verb() string
}

// Reason is why something is done or waited for.
type Reason struct {
	// Code is stable, for machines.
	Code string `json:"code"`
	// Sentence is for people, with the names and numbers that made it true.
	Sentence string `json:"sentence"`
}

// Telling holds the events of one action. Events are told only after the fact.
type Telling struct {
	// Done is told when the write went through.
	Done []Event
	// Refused is told when it did not, with the error after the note.
	Refused *Event
	// Failures are the codes of failures of groups that it answers, to be counted
	// when it went through.
	Failures []string
}

// Event is one event about the owner of a plan (events.k8s.io/v1).
type Event struct {
	Warning bool
	Reason  string
	Action  string
	Note    string
	// Related is a second object that the event is about, or nil.
	Related *identity.Ref
}

// Object is anything that can be written.
type Object interface {
	metav1.Object
	runtime.Object
}

// Create makes an object that must not exist yet. A name that is taken ends the
// pass: what bears it has to be looked at first.
type Create struct {
	Kind   identity.Kind
	Object Object
	// Owner is read live before the write: same UID, not terminating.
	Owner   identity.Ref
	Because Reason
	Tell    Telling
}

// Apply makes the fields set in Object true on exactly the incarnation and
// version in Onto. It never creates.
type Apply struct {
	// Object holds the fields to own; it may be a part of an object.
	Object Object
	Onto   identity.Ref
	// FieldOwner is the server-side apply manager that owns the fields.
	FieldOwner string
	// Applied tells that FieldOwner holds fields of the version judged by applies
	// only. Without it, that is looked for first.
	Applied bool
	// Adopter, when set, is read live before the write: same UID, not terminating.
	Adopter *identity.Ref
	// Relies is looked for live before the write, after Onto was judged.
	Relies  []Standing
	Because Reason
	Tell    Telling
}

// Relabel changes labels of exactly the incarnation and version in Object, and
// nothing else but a revision's number. Whoever owns them, it takes labels away.
type Relabel struct {
	Object identity.Ref
	// Labels are those to change. An empty value takes the label away.
	Labels map[string]string
	// Number is what a revision is to be numbered, or zero to leave it.
	Number int64
	// Relies is looked for live before the write.
	Relies  []Standing
	Because Reason
	Tell    Telling
}

// Standing is what a write relies on of one kind, in one namespace.
type Standing struct {
	Kind      identity.Kind
	Namespace string
	// Name is set where it tells of the object of that name alone.
	Name string
	// Labels are those that all it tells of bear.
	Labels map[string]string
	// Of is set where it tells of those alone that the object with this UID controls.
	Of types.UID
	// None is set where nobody may be there but who is on his way out.
	None bool
	// There are those that must be there, and not on their way out.
	There []types.UID
	// Unchanged are those that must be as they were judged.
	Unchanged []identity.Ref
	// Specified are those whose specs must be of the generations that were judged.
	Specified map[types.UID]int64
	// Absent are names that nobody may bear but who is on his way out.
	Absent []string
}

// Broken tells what does not hold of all that stands now, or returns "".
func (s Standing) Broken(now []metav1.ObjectMeta) string {
	versions, names, generations := map[types.UID]string{}, map[string]bool{}, map[types.UID]int64{}
	for i := range now {
		if now[i].DeletionTimestamp != nil || !s.tellsOf(&now[i]) {
			continue
		}
		if s.None {
			return fmt.Sprintf("%s %s is there", s.Kind, now[i].Name)
		}
		versions[now[i].UID], names[now[i].Name] = now[i].ResourceVersion, true
		generations[now[i].UID] = now[i].Generation
	}
	for _, uid := range s.There {
		if _, there := versions[uid]; !there {
			return fmt.Sprintf("%s with uid %s is gone or going", s.Kind, uid)
		}
	}
	for _, ref := range s.Unchanged {
		if versions[ref.UID] != ref.ResourceVersion {
			return ref.String() + " changed"
		}
	}
	for uid, generation := range s.Specified {
		if generations[uid] != generation {
			return fmt.Sprintf("%s with uid %s is of another spec, gone or going", s.Kind, uid)
		}
	}
	for _, name := range s.Absent {
		if names[name] {
			return fmt.Sprintf("%s %s is there", s.Kind, name)
		}
	}
	return ""
}

func (s Standing) tellsOf(found *metav1.ObjectMeta) bool {
	if s.Of == "" {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(found)
	return owner != nil && owner.UID == s.Of
}

// Delete removes exactly the incarnation in Object.
type Delete struct {
	Object identity.Ref
	// OwnerGone, when set, is looked for live before the write and must be gone.
	OwnerGone *identity.Ref
	// Relies is looked for live before the write.
	Relies []Standing
	// AnyVersion is set where the reason holds whatever became of the object since
	// the look: its UID alone is the precondition.
	AnyVersion bool
	// After is set where everything that stands before it in the plan is to be gone
	// first: it does not go out together with its neighbours.
	After bool
	// Beside is set where it goes out together with the delete before it, of whatever
	// kind that is.
	Beside  bool
	Because Reason
	Tell    Telling
}

// WriteStatus replaces the status of a set at the version that was judged.
type WriteStatus struct {
	Set     identity.Ref
	Status  lwsv1.LeaderWorkerSetStatus
	Because Reason
	Tell    Telling
}

// Target implements Action.
func (a Create) Target() identity.Ref { return identity.RefOf(a.Kind, a.Object) }

// Target implements Action.
func (a Apply) Target() identity.Ref { return a.Onto }

// Target implements Action.
func (a Relabel) Target() identity.Ref { return a.Object }

// Target implements Action.
func (a Delete) Target() identity.Ref { return a.Object }

// Target implements Action.
func (a WriteStatus) Target() identity.Ref { return a.Set }

// Why implements Action.
func (a Create) Why() Reason { return a.Because }

// Why implements Action.
func (a Apply) Why() Reason { return a.Because }

// Why implements Action.
func (a Relabel) Why() Reason { return a.Because }

// Why implements Action.
func (a Delete) Why() Reason { return a.Because }

// Why implements Action.
func (a WriteStatus) Why() Reason { return a.Because }

// Telling implements Action.
func (a Create) Telling() Telling { return a.Tell }

// Telling implements Action.
func (a Apply) Telling() Telling { return a.Tell }

// Telling implements Action.
func (a Relabel) Telling() Telling { return a.Tell }

// Telling implements Action.
func (a Delete) Telling() Telling { return a.Tell }

// Telling implements Action.
func (a WriteStatus) Telling() Telling { return a.Tell }

// Verb implements Action.
func (Create) Verb() string { return "create" }

// Verb implements Action.
func (Apply) Verb() string { return "apply" }

// Verb implements Action.
func (Relabel) Verb() string { return "relabel" }

// Verb implements Action.
func (Delete) Verb() string { return "delete" }

// Verb implements Action.
func (WriteStatus) Verb() string { return "status" }
