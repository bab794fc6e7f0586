package lws

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// overQuota is what a quota answers that has no room for an object.
func overQuota(resource, name string, used int) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, name,
		fmt.Errorf("exceeded quota: few, used: %d", used))
}

// progressing is the condition, whatever it says.
func (c *cluster) progressing() metav1.Condition {
	for _, condition := range c.status().Conditions {
		if condition.Type == string(lwsv1.LeaderWorkerSetProgressing) {
			return condition
		}
	}
	return metav1.Condition{}
}

// Of a group whose workers could not be made only events told: its set said for ever
// that it was progressing.
func TestAGroupThatIsRefusedItsWorkersIsToldOfByItsSet(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 3, 2))
	c.api.taboo = map[string]error{"w-1": overQuota("statefulsets", "w-1", 2)}
	c.live(5, "w-0", "w-1", "w-2")
	got := c.progressing()
	if got.Status != metav1.ConditionTrue || got.Reason != lws.CodeRefused || !strings.Contains(got.Message, "create statefulset w-1: ") || !strings.Contains(got.Message, "exceeded quota") {
		t.Errorf("got %+v", got)
	}
	if ready := c.status().ReadyReplicas; ready != 2 {
		t.Errorf("%d groups are ready beside it", ready)
	}

	c.api.taboo = nil
	c.live(5, "w-1")
	if got := c.progressing(); got.Status != metav1.ConditionFalse || got.Reason == lws.CodeRefused || c.condition(string(lwsv1.LeaderWorkerSetAvailable)).Type == "" {
		t.Errorf("with room for it: %+v", c.status().Conditions)
	}
}

// A Service that was refused kept the group from its workers, and its set from all
// that came after it.
func TestAServiceThatIsRefusedCostsNothingElse(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 2, 2))
	c.api.refuse = func(kind identity.Kind) error {
		if kind == identity.KindService {
			return overQuota("services", "w", 0)
		}
		return nil
	}
	c.live(8, "w-0", "w-1")
	got := c.progressing()
	if c.condition(string(lwsv1.LeaderWorkerSetAvailable)).Type == "" {
		t.Errorf("its groups are not ready: %+v", c.status())
	}
	if got.Status != metav1.ConditionFalse || got.Reason != lws.CodeRefused || !strings.Contains(got.Message, "create service w: ") {
		t.Errorf("got %+v", got)
	}
	c.api.refuse = nil
	c.live(20, "w-0", "w-1")
	if got := c.progressing(); got.Reason == lws.CodeRefused || fakeapi.Find[*corev1.Service](c.Server, "w") == nil {
		t.Errorf("no longer refused: %+v", got)
	}
}

// A refusal that is told in other words each time had its set look again at once, and
// so try again at once, without end.
func TestARefusalInOtherWordsEachTimeIsTriedInItsTime(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 1))
	tries := 0
	c.api.refuse = func(kind identity.Kind) error {
		if kind != identity.KindService {
			return nil
		}
		tries++
		return overQuota("services", strings.Repeat("x", tries), 0)
	}
	for i := range 4 {
		result, err := c.lookAtSet()
		if err != nil || result.RequeueAfter < lws.RetryRefusedFirst || c.woken > 0 {
			t.Fatalf("try %d: got %+v, %v, woken %d times", i+1, result, err, c.woken)
		}
		c.wait(result.RequeueAfter)
	}
	if tries != 4 {
		t.Errorf("invalid run: %d tries", tries)
	}
	if got := c.progressing(); got.Reason != lws.CodeRefused {
		t.Errorf("it is not told: %+v", got)
	}
	c.api.refuse = nil
	if _, err := c.lookAtSet(); err != nil || c.woken != 1 {
		t.Errorf("nobody tells that it is over: %v", err)
	}
}

// What passes by itself is tried again, and nobody is told.
func TestAServerThatHasTooMuchToDoIsNoRefusal(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 2))
	c.live(2)
	busy := apierrors.NewTooManyRequests("too busy", 1)
	c.api.taboo = map[string]error{"w-0": busy}
	if _, err := c.lookAtGroup("w-0"); !errors.Is(err, busy) {
		t.Errorf("got %v", err)
	}
	woken := c.woken
	c.live(1)
	if got := c.progressing(); got.Reason == lws.CodeRefused || c.woken != woken {
		t.Errorf("got %+v", got)
	}
}
