package lws

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

func forbidden(why string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "w", errors.New(why))
}

func invalid() error {
	return apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, "w", nil)
}

// The status is written in the same reconcile, once, and the write is tried again with a back-off.
func TestARefusedLeaderStatefulSetIsReportedAndRetried(t *testing.T) {
	for _, refusal := range []error{forbidden("exceeded quota"), invalid()} {
		c := newCluster(t, 0, fakeapi.Set("w", 1, 1))
		c.refuse("create", identity.KindStatefulSet, "", refusal)
		for try := range 3 {
			if _, err := c.reconcileSet(); !errors.Is(err, refusal) {
				t.Fatalf("no retry with a back-off: %v", err)
			}
			if got := c.progressing(); got.Reason != lws.CodeRefused || !strings.Contains(got.Message, refusal.Error()) || c.status().ObservedGeneration != 0 {
				t.Errorf("got %+v", c.status())
			}
			if tries, statuses := c.asked("create", identity.KindStatefulSet, ""), len(c.Asked("status")); tries != try+1 || statuses != 1 {
				t.Errorf("%d tries, %d statuses; want %d and 1", tries, statuses, try+1)
			}
			c.wait(time.Minute)
		}
		c.Refuse = nil
		c.run(5, "w-0")
		if c.status().ObservedGeneration != 1 || !c.isAvailable() {
			t.Errorf("no longer refused: %+v", c.status())
		}
	}
}

// A refused status is no refused spec.
func TestARefusedStatusIsRetried(t *testing.T) {
	for _, refusal := range []error{invalid(), forbidden("no")} {
		c := newCluster(t, 0, fakeapi.Set("w", 1, 1))
		c.refuse("status", identity.KindLeaderWorkerSet, "", refusal)
		if result, err := c.reconcileSet(); !errors.Is(err, refusal) {
			t.Errorf("no retry with a back-off, but %+v, %v", result, err)
		}
		c.Refuse = nil
		c.run(5, "w-0")
		if c.status().ObservedGeneration != 1 || !c.isAvailable() {
			t.Errorf("once it can be written: %+v", c.status())
		}
	}
}

// A webhook of the gang scheduler may refuse a PodGroup, as for a closed queue.
func TestARefusedPodGroupKeepsNoWorkersBack(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 2))
	c.Added = func(object client.Object) {
		if pod, ok := object.(*corev1.Pod); ok && pod.Labels[lwsv1.WorkerIndexLabelKey] == "0" {
			gang.Tie(pod, gang.NameOf(pod))
		}
	}
	c.refuse("create", identity.KindPodGroup, "", forbidden("queue is closed"))
	c.reconcile()
	c.Sync(fakeapi.Find[*appsv1.StatefulSet](c.Server, "w"))
	if _, err := c.reconcileGroup("w-0"); !lws.IsRefusal(err) || c.asked("create", identity.KindPodGroup, "") != 1 {
		t.Errorf("no retry with a back-off: %v", err)
	}
	if fakeapi.Find[*appsv1.StatefulSet](c.Server, "w-0") == nil {
		t.Error("the group has no workers")
	}
	c.Refuse = nil
	c.reconcile("w-0")
	if got := len(fakeapi.All[*unstructured.Unstructured](c.Objects)); got != 1 {
		t.Errorf("no longer refused: %d podgroups", got)
	}
}

func TestABusyAPIServerIsNoRefusal(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 2))
	c.run(2)
	busy := apierrors.NewTooManyRequests("too busy", 1)
	c.refuse("create", identity.KindStatefulSet, "w-0", busy)
	woken := c.woken
	if _, err := c.reconcileGroup("w-0"); !errors.Is(err, busy) {
		t.Errorf("got %v", err)
	}
	c.run(1)
	if got := c.progressing(); got.Reason == lws.CodeRefused || c.woken != woken {
		t.Errorf("got %+v", got)
	}
}
