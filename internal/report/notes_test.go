package report

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// regardings keeps what events are about, as the recorder compares it.
type regardings []corev1.ObjectReference

func (r *regardings) Eventf(regarding, _ runtime.Object, _, _, _, _ string, _ ...any) {
	switch about := regarding.(type) {
	case *corev1.ObjectReference:
		*r = append(*r, *about)
	case *lwsv1.LeaderWorkerSet:
		*r = append(*r, corev1.ObjectReference{
			APIVersion: "leaderworkerset.x-k8s.io/v1", Kind: "LeaderWorkerSet",
			Namespace: about.Namespace, Name: about.Name, UID: about.UID, ResourceVersion: about.ResourceVersion,
		})
	}
}

func TestNoNoteIsTakenForAnother(t *testing.T) {
	recorder := &regardings{}
	n := New(recorder)
	of := func(version string) *lwsv1.LeaderWorkerSet {
		return &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: "u", ResourceVersion: version}}
	}
	tell := func(version string, e action.Event) corev1.ObjectReference {
		n.event(of(version), e)
		return (*recorder)[len(*recorder)-1]
	}
	revision := &identity.Ref{Kind: identity.KindControllerRevision, Name: "w-x-1", UID: "r"}
	step := func(note string) action.Event {
		return action.Event{Reason: "GroupsUpdating", Action: "Update", Note: note, Related: revision}
	}
	first, second, third := tell("1", step("Updating replica 3")), tell("1", step("Updating replica 2")), tell("1", step("Updating replica 1"))
	if first == second || second == third || first == third {
		t.Errorf("three notes, told as of %v, %v, %v", first, second, third)
	}
	if again := tell("1", step("Updating replica 2")); again != second {
		t.Errorf("the same note is told as of %v, and then of %v", second, again)
	}
	if first.FieldPath != "" || tell("2", step("Updating replica 0")).FieldPath != "" {
		t.Error("the first note of a version is told of a part of the set")
	}
	other := step("Rolling Upgrade is in progress")
	other.Related = nil
	if about := tell("2", other); about.FieldPath != "" {
		t.Errorf("a note that differs in more than its words is told of %v", about)
	}
	second.FieldPath, third.FieldPath = "", ""
	if first != second || first != third {
		t.Errorf("told of %v, %v and %v: want one set", first, second, third)
	}
}

// What a server says in other words each time, as one that names a request, is not
// remembered without end, nor told as often as it is tried.
func TestNotesThatNeverRepeatAreBounded(t *testing.T) {
	recorder := &regardings{}
	n := New(recorder)
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: "u", ResourceVersion: "1"}}
	apart := map[corev1.ObjectReference]bool{}
	for request := range 10 * notesApart {
		n.event(set, action.Event{Warning: true, Reason: "FailedUpdate", Action: "Update", Note: fmt.Sprintf("request %d was refused", request)})
		apart[(*recorder)[request]] = true
	}
	if len(apart) != notesApart {
		t.Errorf("told as of %d, want %d", len(apart), notesApart)
	}
}
