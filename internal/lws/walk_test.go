package lws_test

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// walks are events and the one reconcile that answers each, and the one read of a user. A function of the table brings a cluster to the event, and
// returns the reconcile and what must be true after it. internal/floors counts the functions that the reconcile touches.
var walks = map[string]func(*testing.T) (reconcile func() error, isDone func() bool){
	"failed worker":    failedWorker,
	"rolling update":   rollingUpdate,
	"hash replacement": hashReplacement,
	"survey":           survey,
}

// walkUnended is set in a run that ends before the reconcile: what it covers is not of the walk.
const walkUnended = "LOCKSTEP_WALK_UNENDED"

func TestWalk(t *testing.T) {
	for name, walk := range walks {
		t.Run(name, func(t *testing.T) {
			reconcile, isDone := walk(t)
			if os.Getenv(walkUnended) != "" {
				return
			}
			err := reconcile()
			expect.That(t, err == nil && isDone(), "the reconcile did not do what the walk is about: %v", err)
		})
	}
}

// failedWorker is a group of three, one of whose workers has a container that restarted.
func failedWorker(t *testing.T) (reconcile func() error, isDone func() bool) {
	c := begun(t, 0, restarting(3))
	c.run(20, "w-0")
	fakeapi.Edit(c.Server, "w-0-1", func(pod Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "w", RestartCount: 1}}
	})
	return func() error {
			_, err := c.tryGroup("w-0")
			return err
		}, func() bool {
			return isDeleted(c.leader())
		}
}

// rollingUpdate is a set of two groups whose StatefulSet has a new template, and may replace the first of them.
func rollingUpdate(t *testing.T) (reconcile func() error, isDone func() bool) {
	c := begun(t, 0, fakeapi.Set("w", 2, 2))
	c.run(20, "w-0", "w-1")
	fakeapi.Edit(c.Server, "w", func(set Set) {
		fakeapi.Image("new")(set)
		set.Generation++
	})
	c.reconcile()
	c.Sync(fakeapi.Find[StatefulSet](c.Server, "w"))
	return c.reconcileOnce, func() bool {
		partition := fakeapi.Find[StatefulSet](c.Server, "w").Spec.UpdateStrategy.RollingUpdate.Partition
		return partition != nil && *partition == 1
	}
}

// hashReplacement is a Hash set of one group whose outdated leader is gone, and whose new one waits at its gate.
func hashReplacement(t *testing.T) (reconcile func() error, isDone func() bool) {
	c := keyed(t, 1, 2)
	c.cached.Trim = nil
	c.reconcileSet()
	c.observed()
	leader := c.lead("w-1-abcde", keyOf("0"), func(pod Pod) { delete(pod.Annotations, corev1.PodDeletionCost) })
	return c.reconcileOnce, func() bool { return !workload.IsGated(fakeapi.Find[Pod](c.Server, leader.Name)) }
}

// survey is a set of two groups that a user looks at.
func survey(t *testing.T) (read func() error, isDone func() bool) {
	c := begun(t, 0, fakeapi.Set("w", 2, 2))
	c.run(20, "w-0", "w-1")
	session, found := &clilws.Session{Cached: c.Cached(), Live: c.Live()}, clilws.Survey{}
	return func() (err error) {
			found, err = session.Set(t.Context(), request("w").NamespacedName, c.Now)
			return err
		}, func() bool {
			return found.Standing.Ready == 2 && len(found.Groups) == 2
		}
}

func (c *cluster) reconcileOnce() error {
	_, err := c.trySet()
	return err
}
