package reconcile

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/memory"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// The tests of internal/lws carry out plans for sets and groups. These are about another wing.

// refusing is a writer that refuses what has a name here.
type refusing map[string]error

func (r refusing) Do(_ context.Context, a action.Action) (string, error) {
	return "", r[a.Target().Name]
}

// executor carries out plans at the epoch with a writer, and counts in woken how often it wakes an object.
func executor(w Writer, woken *int) *Executor {
	return &Executor{
		Memory: memory.New(), Writer: func() Writer { return w }, Together: apply.AtOnce, Report: report.New(&events.FakeRecorder{}),
		Now: func() time.Time { return fakeapi.Epoch }, Wake: func(client.Object) { *woken++ },
	}
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "1"}
}

func creates(name string) action.Create {
	return action.Create{Kind: identity.KindLeaderWorkerSet, Object: fakeapi.Set(name, 1, 1), Because: action.Because(action.CodeMissing, "no role")}
}

func TestARefusalThatStopsAPlanIsOfItsObject(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "leaderworkersets"}, "d-a", errors.New("no"))
	for name, tt := range map[string]struct {
		request Request
		result  ctrl.Result
		refused bool
		to      string
		fails   bool
	}{
		"the object":       {Request{}, ReadAgain, true, "", false},
		"a part of it":     {Request{Part: "a"}, ctrl.Result{RequeueAfter: action.RetryRefusedFirst}, false, "a", false},
		"what is left":     {Request{IsLeft: true}, ctrl.Result{}, false, "", true},
		"a part that left": {Request{IsLeft: true, Part: "a"}, ctrl.Result{}, false, "", true},
	} {
		woken := 0
		e := executor(refusing{"d-a": forbidden}, &woken)
		set := &dsv1.DisaggregatedSet{ObjectMeta: named("d")}
		tt.request.Object = set
		result, err := e.CarryOut(t.Context(), tt.request, action.Plan{Actions: []action.Action{creates("d-a"), creates("d-b")}})
		_, refusal := e.Memory.Recall(set)
		expect.That(t, result == tt.result && (err != nil) == tt.fails, "%s: got %v, %v", name, result, err)
		expect.That(t, (refusal.Sentence != "") == tt.refused && e.Memory.HasRefused(set, "a") == (tt.to == "a"), "%s: refused %+v", name, refusal)
		expect.Equalf(t, tt.to == "a", woken == 1, "%s: it is woken to report", name)
	}
}

// The cache of an API server that starts is late for up to a minute: a stale write is tried ever later.
func TestAStaleWriteIsRetriedAtALimitedRate(t *testing.T) {
	e := executor(refusing{"d-a": fmt.Errorf("d-a changed: %w", apply.ErrStale)}, new(int))
	result, err := e.CarryOut(t.Context(), Request{Object: &dsv1.DisaggregatedSet{ObjectMeta: named("d")}}, action.Plan{Actions: []action.Action{creates("d-a")}})
	expect.That(t, err == nil && result == ReadAgain, "got %v, %v", result, err)
}

func TestOnlyTheStatusOfTheObjectCountsAsWritten(t *testing.T) {
	woken := 0
	e, set := executor(refusing{}, &woken), &dsv1.DisaggregatedSet{ObjectMeta: named("d")}
	scaler := &dsv1.DisaggregatedSetRoleScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d", UID: "2"}}
	for _, step := range []struct {
		write   action.WriteStatus
		written bool
	}{
		{action.WriteStatus{Object: identity.RefOf(identity.KindDisaggregatedSetRoleScaler, scaler), Status: scaler}, false},
		{action.WriteStatus{Object: identity.RefOf(identity.KindDisaggregatedSet, set), Status: set}, true},
	} {
		expect.Value(e.CarryOut(t.Context(), Request{Object: set}, action.Plan{Actions: []action.Action{step.write}}))(t)
		at, _ := e.Memory.Recall(set)
		expect.Equalf(t, step.written, !at.IsZero(), "%s: written", step.write.Target())
	}
}
