package lws_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/lwstest"
)

// Who scales the workers of a group that starts has them scaled back, and what becomes of
// those beyond its size is no failure of the group: it was recreated for that.
func TestWorkersBeyondTheSizeOfAGroupAreNoFailureInItsStart(t *testing.T) {
	for how, mishap := range map[string]func(*cluster, string){
		"goes":     func(c *cluster, pod string) { lwstest.Terminate[*corev1.Pod](c.FakeStore, pod) },
		"restarts": func(c *cluster, pod string) { lwstest.Edit(c.FakeStore, pod, crash) },
		"ends": func(c *cluster, pod string) {
			lwstest.Edit(c.FakeStore, pod, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		},
	} {
		for worker, fails := range map[string]bool{"w-0-2": true, "w-0-3": false} {
			c := running(t, 1, 3, onRestart)
			lwstest.Edit(c.FakeStore, "w", func(set *lwsv1.LeaderWorkerSet) { set.Status.Started = nil })
			c.awake()
			surplus := find[*corev1.Pod](c, "w-0-2").DeepCopy()
			surplus.Name, surplus.UID = "w-0-3", "surplus"
			lwstest.Add(c.FakeStore, surplus)
			lwstest.Edit(c.FakeStore, "w-0-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })
			mishap(c, worker)
			if found := c.decideGroup("w-0").Finding; (found != nil) != fails {
				t.Errorf("%s %s: found %+v", worker, how, found)
			}
		}
	}
}
