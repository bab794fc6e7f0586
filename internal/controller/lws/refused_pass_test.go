package lws

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/test/fakeapi"
)

// refusing is a client of an API server on which a policy refuses to create and
// to delete. Only a status can be written.
type refusing struct {
	client.Client
	statuses statuses
	// busy is what it answers instead, if anything.
	busy error
}

// statuses counts the statuses written.
type statuses struct {
	client.SubResourceWriter
	written int
}

func (s *statuses) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	s.written++
	return nil
}

func (r *refusing) refusal() error {
	if r.busy != nil {
		return r.busy
	}
	return apierrors.NewInvalid(schema.GroupKind{}, "x", nil)
}
func (r *refusing) Create(context.Context, client.Object, ...client.CreateOption) error {
	return r.refusal()
}
func (r *refusing) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return r.refusal()
}
func (r *refusing) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return r.refusal()
}
func (r *refusing) Status() client.SubResourceWriter { return &r.statuses }

// alive answers every live look with the owner of what is to be made.
type alive struct{ client.Reader }

func (alive) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	object.SetUID("owner")
	return nil
}

// refused carries out a plan that a policy stands against.
type refused struct {
	*pass
	client *refusing
	set    *lwsv1.LeaderWorkerSet
}

func newRefused() *refused {
	now := time.Unix(1000, 0)
	api := &refusing{}
	set := fakeapi.Set("w", 1, 2)
	set.UID, set.Generation = "w", 1
	memory := lwscache.NewMemory()
	return &refused{client: api, set: set, pass: &pass{
		memory:  memory,
		act:     apply.New(api, alive{}),
		narrate: report.New(events.NewFakeRecorder(100)),
		now:     func() time.Time { return now },
		wakeSet: func(client.Object) {},
	}}
}

func (r *refused) carry(waiting types.UID, actions ...action.Action) (ctrl.Result, error) {
	return r.carryOut(context.Background(), errand{set: r.set, waiting: waiting, leader: "w-0"}, lws.Plan{Actions: actions}, r.now())
}

func ghost(name string) action.Delete {
	return action.Delete{Object: identity.Ref{Kind: identity.KindPod, Namespace: fakeapi.Namespace, Name: name, UID: "g", ResourceVersion: "1"}}
}

// One ghost that a policy protects kept the whole set from going on and from
// telling of it, and the user was told to change a spec that nothing is wrong with.
func TestGarbageThatMayNotBeDeletedDoesNotHoldUpThePass(t *testing.T) {
	r := newRefused()
	result, err := r.carry(r.set.UID, ghost("w-0"), action.WriteStatus{Set: identity.RefOf(identity.KindLeaderWorkerSet, r.set)})
	if r.client.statuses.written != 1 {
		t.Error("the status was not written")
	}
	if err != nil || result.RequeueAfter != lws.RetryRefusedFirst {
		t.Errorf("no retry with a back-off, but %+v, %v", result, err)
	}
}

// A policy refuses with the same code as validation. Once it was lifted, the group
// had no workers for ever: nothing about it changed, so no event came.
func TestAGroupThatWasRefusedIsTriedAgain(t *testing.T) {
	r := newRefused()
	workers := action.Create{
		Kind:   identity.KindStatefulSet,
		Object: &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w-0"}},
		Owner:  identity.RefOf(identity.KindPod, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w-0", UID: "owner"}}),
	}
	result, err := r.carry("leader", workers)
	if err != nil || result.RequeueAfter != lws.RetryRefusedFirst {
		t.Errorf("got %+v, %v", result, err)
	}
}

// An error is tried again in its own time: a result beside it is ignored, with a
// complaint in the log each time.
func TestAnErrorIsReturnedAlone(t *testing.T) {
	r := newRefused()
	r.client.busy = apierrors.NewTooManyRequests("later", 1)
	until := lws.Wait{Reason: action.Reason{Code: "c"}, Until: r.now().Add(time.Minute)}
	plan := lws.Plan{Actions: []action.Action{ghost("w-0")}, Waits: []lws.Wait{until}}
	result, err := r.carryOut(context.Background(), errand{set: r.set, waiting: r.set.UID}, plan, r.now())
	if err == nil || !result.IsZero() {
		t.Errorf("got %+v, %v", result, err)
	}
}
