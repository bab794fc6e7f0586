package reconcile_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// occupy replaces the named pod by a foreign one.
func (c *cluster) occupy(name string) {
	c.t.Helper()
	owner := fakeapi.Find[*corev1.Pod](c.Server, "stranger")
	if owner == nil {
		owner = fakeapi.Add(c.Server, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "stranger"}})
		fakeapi.Edit(c.Server, "stranger", fakeapi.Up)
	}
	fakeapi.Drop[*corev1.Pod](c.Server, name)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: name, Labels: map[string]string{lwsv1.SetNameLabelKey: "w"}}}
	fakeapi.OwnedBy(pod, "v1", identity.RefOf(identity.KindPod, owner))
	fakeapi.Add(c.Server, pod)
	fakeapi.Edit(c.Server, name, fakeapi.Up)
}

// recreated is a set that was deleted, waited for its previous leaders, and runs again.
func recreated(t *testing.T, slow time.Duration) *cluster {
	t.Helper()
	c := newCluster(t, slow, fakeapi.Set("w", 2, 2))
	c.run(5, "w-0", "w-1")
	fakeapi.Drop[*lwsv1.LeaderWorkerSet](c.Server, "w")
	fakeapi.Add(c.Server, fakeapi.Set("w", 2, 2))
	c.run(2, "w-0", "w-1")
	if got := c.progressing(); got.Reason != lws.CodePreviousIncarnation {
		t.Fatalf("the set does not wait for the previous incarnation: %+v", got)
	}
	for name, object := range c.Objects {
		if fakeapi.KindOf(object) != identity.KindLeaderWorkerSet {
			delete(c.Objects, name)
		}
	}
	c.Requests = nil
	c.run(10, "w-0", "w-1")
	if !c.isAvailable() {
		t.Fatalf("the next incarnation is not available: %+v", c.status())
	}
	return c
}

func (c *cluster) touches() int {
	return c.asked("apply", identity.KindStatefulSet, lws.NudgeAnnotationKey)
}

// When a foreign pod with a leader's name goes, the StatefulSet is touched once, whatever the
// operator's clock says. A recreated set is not touched.
func TestAForeignPodThatGoesTouchesTheStatefulSetOnce(t *testing.T) {
	for _, slow := range []time.Duration{0, time.Hour} {
		c := recreated(t, slow)
		if c.touches() != 0 {
			t.Errorf("%s behind: %d touches after a recreate", slow, c.touches())
		}
		c.occupy("w-1")
		c.run(20, "w-0", "w-1")
		if got := c.condition(nameConflict); got.Status != metav1.ConditionTrue || !strings.Contains(got.Message, "pod w-1 ") || !strings.Contains(got.Message, "pod stranger") || c.touches() != 0 {
			t.Errorf("%s behind: %d touches, condition %+v", slow, c.touches(), got)
		}
		fakeapi.Drop[*corev1.Pod](c.Server, "w-1")
		c.run(20, "w-0", "w-1")
		if c.touches() != 1 || !c.isAvailable() {
			t.Errorf("%s behind: %d touches, %+v", slow, c.touches(), c.status())
		}
	}
}
