package lws

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

// squat has a stranger's pod take the place of the named one.
func (c *cluster) squat(name string, labels map[string]string) {
	c.t.Helper()
	stranger := fakeapi.Find[*corev1.Pod](c.Server, "stranger")
	if stranger == nil {
		stranger = fakeapi.Add(c.Server, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "stranger"}})
		fakeapi.Edit(c.Server, "stranger", fakeapi.Up)
	}
	fakeapi.Drop[*corev1.Pod](c.Server, name)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: name, Labels: labels}}
	fakeapi.OwnedBy(pod, "v1", identity.RefOf(identity.KindPod, stranger))
	fakeapi.Add(c.Server, pod)
	fakeapi.Edit(c.Server, name, fakeapi.Up)
}

// recreated is a set that was deleted, waited for its former leaders, and stands
// again.
func recreated(t *testing.T, slow time.Duration) *cluster {
	t.Helper()
	c := newCluster(t, slow, fakeapi.Set("w", 2, 2))
	c.live(5, "w-0", "w-1")
	fakeapi.Drop[*lwsv1.LeaderWorkerSet](c.Server, "w")
	fakeapi.Add(c.Server, fakeapi.Set("w", 2, 2))
	c.live(2, "w-0", "w-1")
	if got := c.condition(string(lwsv1.LeaderWorkerSetProgressing)); got.Reason != lws.CodePreviousIncarnation {
		t.Fatalf("the former life is not waited for: %+v", got)
	}
	for name, object := range c.Objects {
		if fakeapi.KindOf(object) != identity.KindLeaderWorkerSet {
			delete(c.Objects, name)
		}
	}
	c.live(10, "w-0", "w-1")
	if c.condition(string(lwsv1.LeaderWorkerSetAvailable)).Type == "" {
		t.Fatalf("the next life does not come up: %+v", c.status())
	}
	return c
}

// A recreate must not touch StatefulSets that the StatefulSet controller is at work on.
func TestARecreateIsNotNudged(t *testing.T) {
	for _, slow := range []time.Duration{0, time.Hour} {
		if c := recreated(t, slow); c.nudges() != 0 {
			t.Errorf("%s behind: %d nudges", slow, c.nudges())
		}
	}
}

// When a foreign pod under a leader's name goes, the StatefulSet is touched once, whatever the
// operator's clock says.
func TestAForeignPodThatGoesTouchesTheStatefulSetOnce(t *testing.T) {
	for _, slow := range []time.Duration{0, time.Hour} {
		c := recreated(t, slow)
		c.squat("w-1", map[string]string{lwsv1.SetNameLabelKey: "w"})
		c.live(20, "w-0", "w-1")
		if got := c.condition(lws.CodeNameConflict); !strings.Contains(got.Message, "pod w-1 belongs to pod stranger") || c.nudges() != 0 {
			t.Errorf("%s behind: %d nudges, told %q", slow, c.nudges(), got.Message)
		}
		fakeapi.Drop[*corev1.Pod](c.Server, "w-1")
		c.live(20, "w-0", "w-1")
		if c.nudges() != 1 || c.condition(string(lwsv1.LeaderWorkerSetAvailable)).Type == "" {
			t.Errorf("%s behind: %d nudges, %+v", slow, c.nudges(), c.status())
		}
	}
}
