package report

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// recorder keeps the events that it records.
type recorder struct {
	told      []string
	regarding []runtime.Object
}

func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, doing, note string, args ...any) {
	about := ""
	if reference, ok := related.(*corev1.ObjectReference); ok {
		about = " about " + reference.APIVersion + " " + reference.Kind + " " + reference.Name
	}
	r.told = append(r.told, kind+" "+reason+"/"+doing+" "+fmt.Sprintf(note, args...)+about)
	r.regarding = append(r.regarding, regarding)
}

func TestResultsOfActions(t *testing.T) {
	leader := identity.Ref{Kind: identity.KindPod, Name: "w-0", UID: "u"}
	revision := identity.Ref{Kind: identity.KindControllerRevision, Name: "w-x-1", UID: "r"}
	telling := action.Telling{
		Done: []action.Event{
			{Reason: "Gone", Action: "Delete", Note: "100% gone", Related: &leader},
			{Warning: true, Reason: "Loss", Action: "Delete", Note: "lost", Related: &revision},
		},
		Refused: &action.Event{Warning: true, Reason: "FailedDelete", Action: "Delete", Note: "Failed to delete"},
	}
	for name, tt := range map[string]struct {
		telling action.Telling
		err     error
		want    []string
	}{
		"done":            {telling, nil, []string{"Normal Gone/Delete 100% gone about v1 Pod w-0", "Warning Loss/Delete lost about apps/v1 ControllerRevision w-x-1"}},
		"refused":         {telling, errors.New("no"), []string{"Warning FailedDelete/Delete Failed to delete: no"}},
		"without events":  {action.Telling{}, errors.New("no"), nil},
		"stale":           {telling, fmt.Errorf("wrapped: %w", apply.ErrStale), nil},
		"taken":           {telling, &apply.TakenError{}, nil},
		"the process end": {telling, &url.Error{Op: "Post", URL: "https://h", Err: context.Canceled}, nil},
	} {
		r := &recorder{}
		New(r).Tell(t.Context(), &corev1.Pod{}, action.Delete{Object: leader, Tell: tt.telling}, tt.err)
		if diff := cmp.Diff(tt.want, r.told); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// An event may be about another object than the plan.
func TestEventsOnAPod(t *testing.T) {
	r := &recorder{}
	leader := identity.Ref{Kind: identity.KindPod, Namespace: "ns", Name: "w-0", UID: "u"}
	New(r).Wait(&lwsv1.LeaderWorkerSet{}, "w", lws.Wait{Reason: action.Reason{Sentence: "s"}, Tell: &action.Event{Reason: "R", Action: "Wait", On: &leader}})
	want := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: "w-0", UID: "u"}
	if diff := cmp.Diff([]runtime.Object{want}, r.regarding); diff != "" {
		t.Error(diff)
	}
}

func TestFailuresAreCountedOnceTheyAreWritten(t *testing.T) {
	write := action.WriteStatus{Tell: action.Telling{Failures: []action.Failure{{Code: "X"}, {Code: "X"}, {Code: "X", ExitCode: new(int32(137))}, {Code: "Y", ExitCode: new(int32(1))}}}}
	for _, err := range []error{errors.New("boom"), nil} {
		New(&recorder{}).Tell(t.Context(), &corev1.Pod{}, write, err)
	}
	if diff := cmp.Diff(map[string]float64{"group_restarts_total none X": 2, "group_restarts_total 137 X": 1, "group_restarts_total 1-127 Y": 1}, fakeapi.Metrics(t, restarts)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Two waits of one read are not reported with every read.
func TestWaitsAreReportedOnce(t *testing.T) {
	r := &recorder{}
	reporter := New(r)
	for _, step := range []struct{ waiting, sentences string }{
		{"a", "one two"}, {"a", "one two"}, {"b", "one"}, {"a", "three"}, {"a", "three"}, {"b", "one"},
	} {
		waits := []lws.Wait{{Reason: action.Reason{Sentence: "silent"}}}
		for sentence := range strings.FieldsSeq(step.sentences) {
			waits = append(waits, lws.Wait{Reason: action.Reason{Sentence: sentence}, Tell: &action.Event{Reason: "R", Action: "Wait", Note: step.waiting + sentence}})
		}
		reporter.Wait(&corev1.Pod{}, types.UID(step.waiting), waits...)
	}
	if want := "Normal R/Wait aone,Normal R/Wait atwo,Normal R/Wait bone,Normal R/Wait athree"; strings.Join(r.told, ",") != want {
		t.Errorf("got %v", r.told)
	}
}

// The recorder merges events that differ in their notes alone.
func TestNotesAboutASetAreKeptApart(t *testing.T) {
	r := &recorder{}
	reporter := New(r)
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: "u", ResourceVersion: "1"}}
	for _, note := range []string{"Updating replica 3", "Updating replica 2", "Updating replica 3"} {
		reporter.event(set, action.Event{Reason: "GroupsUpdating", Action: "Update", Note: note})
	}
	first, second, third := r.regarding[0].(*corev1.ObjectReference), r.regarding[1].(*corev1.ObjectReference), r.regarding[2].(*corev1.ObjectReference)
	if *first == *second || *first != *third || first.UID != "u" || first.ResourceVersion != "1" || first.Kind != "LeaderWorkerSet" {
		t.Errorf("got %v, %v, %v", first, second, third)
	}
	paths := map[string]bool{}
	for request := range 3 * notesApart {
		reporter.event(set, action.Event{Reason: "FailedUpdate", Action: "Update", Note: fmt.Sprintf("request %d was refused", request)})
		paths[r.regarding[len(r.regarding)-1].(*corev1.ObjectReference).FieldPath] = true
	}
	if len(paths) > notesApart {
		t.Errorf("%d events of one version of a set", len(paths))
	}
}

// A note is cut to the limit in bytes, between characters, and begins as it did.
func TestNotesFitTheEventsAPI(t *testing.T) {
	for _, short := range []string{"short", strings.Repeat("x", noteLimit)} {
		if got := clipped(short); got != short {
			t.Errorf("got %q", got)
		}
	}
	for _, unit := range []string{"x", "é", "…", "😀", "\xffa"} {
		for shift := range 4 {
			note := strings.Repeat("a", shift) + strings.Repeat(unit, noteLimit+1)
			got := clipped(note)
			rest, cut := strings.CutSuffix(got, "…")
			if len(got) > noteLimit || !utf8.ValidString(got) || !cut || !strings.HasPrefix(strings.ToValidUTF8(note, "\uFFFD"), rest) {
				t.Errorf("%d bytes of %q: %q", len(got), unit, got)
			}
		}
	}
}
