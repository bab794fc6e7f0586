package controller

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
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

// Every recreate wrote its new StatefulSets once more, right after making them, to
// wake a controller that was at work on them already.
func TestARecreateIsNotNudged(t *testing.T) {
	for _, slow := range []time.Duration{0, time.Hour} {
		if c := recreated(t, slow); c.nudges() != 0 {
			t.Errorf("%s behind: %d nudges", slow, c.nudges())
		}
	}
}

// Where the operator's clock was behind the API server's, a leader's name that
// became free woke nobody: the leader was missing for up to 1,000 s.
func TestASquattersDepartureNudgesOnceWhateverTheClockSays(t *testing.T) {
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

// strangers is a set of one group in step, but that two of its workers' names are
// those of strangers' pods that bear none of our labels.
func strangers(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, 0, fakeapi.Set("w", 1, 4))
	c.live(5, "w-0")
	c.wait(time.Minute)
	c.squat("w-0-1", nil)
	c.squat("w-0-3", nil)
	c.Sync(fakeapi.Find[*appsv1.StatefulSet](c.Server, "w-0"))
	c.look("w-0")
	return c
}

// again waits for as long as a look at the group asked for, and looks again.
func (c *cluster) again(before time.Duration) time.Duration {
	c.t.Helper()
	if before == 0 {
		c.t.Fatal("nobody looks again")
	}
	c.wait(before)
	result, err := c.lookAtGroup("w-0")
	if err != nil {
		c.t.Fatal(err)
	}
	return result.RequeueAfter
}

// A group whose workers' names were taken by pods without labels had its workers
// missing, and nothing said why.
func TestStrangersWithoutLabelsOnWorkersNamesAreToldOf(t *testing.T) {
	c := strangers(t)
	woken := c.woken
	c.again(10 * time.Second)
	if c.woken == woken {
		t.Error("the set, which is to tell of them, does not look again")
	}
	result, err := c.lookAtSet()
	if err != nil {
		t.Fatal(err)
	}
	got := c.condition(lws.CodeNameConflict).Message
	want := "pod w-0-1 belongs to pod stranger: group 0 lacks worker 1; pod w-0-3 belongs to pod stranger: group 0 lacks worker 3; "
	if !strings.HasPrefix(got, want) || result.RequeueAfter == 0 {
		t.Errorf("told %q, another look in %s", got, result.RequeueAfter)
	}
	woken = c.woken
	c.again(10 * time.Second)
	if c.woken != woken {
		t.Error("the set is woken again for what it tells of already")
	}
}

// Once such pods had left, the workers were missing for up to 1,000 s more: no
// event told of their departure, and the StatefulSet waited out its back-off.
func TestTheDepartureOfStrangersWithoutLabelsWakesTheWorkersStatefulSet(t *testing.T) {
	c := strangers(t)
	next := c.again(10 * time.Second)
	for i, name := range []string{"w-0-1", "w-0-3"} {
		fakeapi.Drop[*corev1.Pod](c.Server, name)
		next = c.again(next)
		c.Sync(fakeapi.Find[*appsv1.StatefulSet](c.Server, "w-0"))
		if fakeapi.Find[*corev1.Pod](c.Server, name) == nil || c.nudges() != i+1 {
			t.Errorf("%s is missing still: %d nudges", name, c.nudges())
		}
		if _, err := c.lookAtSet(); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.condition(lws.CodeNameConflict); got.Type != "" {
		t.Errorf("still told: %s", got.Message)
	}
}
