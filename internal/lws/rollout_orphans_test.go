package lws_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// The leader StatefulSet is deleted in mid-rollout and leaves its pods behind. The one
// made in its place was free to replace them all: it took leader after leader, while
// workers were still on their way, and surge groups away at once.
func TestARolloutKeepsItsBudgetWhenItsStatefulSetIsMadeAgain(t *testing.T) {
	for _, tt := range []struct{ unavailable, surge, partition, running int32 }{{1, 0, 2, 4}, {1, 1, 2, 5}, {0, 1, 3, 5}} {
		t.Run(fmt.Sprint(tt.unavailable, "+", tt.surge), func(t *testing.T) {
			c := running(t, 4, 2, func(set *lwsv1.LeaderWorkerSet) {
				rollingOf(set).MaxUnavailable, rollingOf(set).MaxSurge = intstr.FromInt32(tt.unavailable), intstr.FromInt32(tt.surge)
			})
			image(c, "image:2")
			for range 40 {
				if c.turnSlowly(); partition(leadersOf(c)) == tt.partition {
					break
				}
			}
			before := leadersOf(c)
			if partition(before) != tt.partition || lws.PodsOf(before) != tt.running {
				t.Fatalf("invalid run: partition %d of %d", partition(before), lws.PodsOf(before))
			}
			c.Remove(before, metav1.DeletePropagationOrphan)
			c.collect()
			fewest := 4
			for range 120 {
				c.turnSlowly()
				fewest = min(fewest, c.whole())
			}
			if least := 4 - int(tt.unavailable); fewest < least {
				t.Errorf("%d of 4 groups were whole at least, want %d", fewest, least)
			}
			after := leadersOf(c)
			if after == nil || after.UID == before.UID || partition(after) != 0 || lws.PodsOf(after) != 4 {
				t.Fatalf("got %+v", after)
			}
			if got := brief(c.status())[available]; got != isAvailable {
				t.Errorf("got %v", brief(c.status()))
			}
			for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
				if got := pod.Spec.Containers[0].Image; got != "image:2" {
					t.Errorf("pod %s has %s", pod.Name, got)
				}
			}
		})
	}
}

// turnSlowly has everybody act once. Leaders come up at once, workers take a while.
func (c *cluster) turnSlowly() {
	c.t.Helper()
	c.do(c.decideSet())
	for _, group := range allGroups {
		c.do(c.decideGroup(group))
	}
	for _, sts := range fakeapi.All[*appsv1.StatefulSet](c.Objects) {
		c.Sync(sts)
	}
	for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
		if lws.IsLeader(pod, "w") || pod.DeletionTimestamp != nil || c.Now.Sub(pod.CreationTimestamp.Time) > 20*time.Second {
			c.Run(pod)
		}
	}
	c.collect()
	c.pass(3 * time.Second)
}

// whole counts the groups of two all of whose pods are up.
func (c *cluster) whole() int {
	whole := 0
	for _, name := range allGroups {
		leader, worker := fakeapi.Find[*corev1.Pod](c.Server, name), fakeapi.Find[*corev1.Pod](c.Server, name+"-1")
		if leader != nil && worker != nil && fakeapi.Ready(leader) && fakeapi.Ready(worker) {
			whole++
		}
	}
	return whole
}
