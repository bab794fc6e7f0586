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
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// fakeRecorder keeps what it is told.
type fakeRecorder struct{ told, related []string }

func (r *fakeRecorder) Eventf(_, related runtime.Object, kind, reason, doing, note string, args ...any) {
	r.told = append(r.told, kind+" "+reason+"/"+doing+" "+fmt.Sprintf(note, args...))
	name := "nothing"
	if reference, ok := related.(*corev1.ObjectReference); ok {
		name = reference.APIVersion + " " + reference.Kind + " " + reference.Name + " " + string(reference.UID)
	} else if related != nil {
		name = fmt.Sprintf("%T", related)
	}
	r.related = append(r.related, name)
}

func told(a action.Action, err error) *fakeRecorder {
	recorder := &fakeRecorder{}
	New(recorder).Tell(context.Background(), &corev1.Pod{}, a, err)
	return recorder
}

func deletion() action.Delete {
	leader := identity.Ref{Kind: identity.KindPod, Name: "w-0", UID: "u"}
	revision := identity.Ref{Kind: identity.KindControllerRevision, Name: "w-x-1", UID: "r"}
	return action.Delete{
		Object:  leader,
		Because: action.Reason{Code: "Code", Sentence: "because"},
		Tell: action.Telling{
			Done: []action.Event{
				{Reason: "Gone", Action: "Delete", Note: "100% gone", Related: &leader},
				{Warning: true, Reason: "Loss", Action: "Delete", Note: "lost", Related: &revision},
			},
			Refused: &action.Event{Warning: true, Reason: "FailedDelete", Action: "Delete", Note: "Failed to delete"},
		},
	}
}

func TestTellOfWhatWasDone(t *testing.T) {
	got := told(deletion(), nil)
	if diff := cmp.Diff([]string{"Normal Gone/Delete 100% gone", "Warning Loss/Delete lost"}, got.told); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"v1 Pod w-0 u", "apps/v1 ControllerRevision w-x-1 r"}, got.related); diff != "" {
		t.Errorf("related (-want +got)\n%s", diff)
	}
}

func TestTellOfARefusal(t *testing.T) {
	got := told(deletion(), errors.New("it is held"))
	if diff := cmp.Diff([]string{"Warning FailedDelete/Delete Failed to delete: it is held"}, got.told); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"nothing"}, got.related); diff != "" {
		t.Errorf("related (-want +got)\n%s", diff)
	}
	silent := deletion()
	silent.Tell = action.Telling{}
	if got := told(silent, errors.New("it is held")); len(got.told) != 0 {
		t.Errorf("got %q", got.told)
	}
}

func TestNobodyHearsOfAnotherLook(t *testing.T) {
	for _, err := range []error{apply.ErrStale, fmt.Errorf("wrapped: %w", apply.ErrStale), &apply.TakenError{}} {
		if got := told(deletion(), err); len(got.told) != 0 {
			t.Errorf("%v: told %q", err, got.told)
		}
	}
}

// The end of the process cuts off what is on its way: nothing was refused, and it may
// well have been done.
func TestNobodyHearsOfWhatTheEndCutOff(t *testing.T) {
	cut := fmt.Errorf("create statefulset w: %w", &url.Error{Op: "Post", URL: "https://h", Err: context.Canceled})
	if got := told(deletion(), cut); len(got.told) != 0 {
		t.Errorf("told %q", got.told)
	}
}

// Two waits of one look were told with every look, each as news after the other.
func TestTwoWaitsOfOneLookAreToldOnceEach(t *testing.T) {
	recorder := &fakeRecorder{}
	n := New(recorder)
	for range 3 {
		var waits []lws.Wait
		for _, words := range []string{"one", "two"} {
			waits = append(waits, lws.Wait{Reason: action.Reason{Sentence: words}, Tell: &action.Event{Reason: "R", Action: "Wait", Note: words}})
		}
		n.Wait(&corev1.Pod{}, "owner", waits...)
	}
	if diff := cmp.Diff([]string{"Normal R/Wait one", "Normal R/Wait two"}, recorder.told); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAWaitIsToldOnceForEachWords(t *testing.T) {
	recorder := &fakeRecorder{}
	n := New(recorder)
	wait := func(waiting, words string) {
		n.Wait(&corev1.Pod{}, "owner", lws.Wait{Reason: action.Reason{Sentence: "silent"}})
		w := lws.Wait{Reason: action.Reason{Sentence: words}, Tell: &action.Event{Warning: true, Reason: "R", Action: "Wait", Note: words}}
		n.Wait(&corev1.Pod{}, types.UID(waiting), w)
	}
	for _, step := range [][2]string{{"a", "one"}, {"a", "one"}, {"b", "one"}, {"a", "two"}, {"a", "two"}, {"b", "one"}} {
		wait(step[0], step[1])
	}
	want := []string{"Warning R/Wait one", "Warning R/Wait one", "Warning R/Wait two"}
	if diff := cmp.Diff(want, recorder.told); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestFailuresAreCountedOnceTheyAreWrittenDown(t *testing.T) {
	write := action.WriteStatus{Tell: action.Telling{Failures: []string{"X", "X", "Y"}}}
	told(write, errors.New("boom"))
	told(write, nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(restarts)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, metric := range families[0].GetMetric() {
		counted[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
	}
	if diff := cmp.Diff(map[string]float64{"X": 2, "Y": 1}, counted); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestNotesFitTheEventsAPI(t *testing.T) {
	if got := clipped("short"); got != "short" {
		t.Errorf("got %q", got)
	}
	if exact := strings.Repeat("x", noteLimit); clipped(exact) != exact {
		t.Error("a note of the limit is clipped")
	}
	for _, unit := range []string{"x", "é", "…", "😀", "\xff"} {
		for shift := range 4 {
			checkClipped(t, strings.Repeat("a", shift)+strings.Repeat(unit, noteLimit))
		}
	}
}

func TestNotesFitWhateverIsInThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkClipped(t, string(rapid.SliceOfN(rapid.Byte(), 0, 3*noteLimit).Draw(t, "note")))
	})
}

// checkClipped checks that a note fits, also once JSON has replaced what is not
// UTF-8 in it, and begins as it did.
func checkClipped(t interface{ Fatalf(string, ...any) }, note string) {
	got := clipped(note)
	if len(got) > noteLimit {
		t.Fatalf("%d bytes of a limit of %d", len(got), noteLimit)
	}
	if !utf8.ValidString(got) {
		t.Fatalf("%q is not UTF-8", got)
	}
	if rest, cut := strings.CutSuffix(got, "…"); cut && len(note) > noteLimit && !strings.HasPrefix(strings.ToValidUTF8(note, "\uFFFD"), rest) {
		t.Fatalf("%q does not begin as it did", got)
	}
}
