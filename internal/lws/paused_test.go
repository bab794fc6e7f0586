package lws_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

func pause(c *cluster) {
	fakeapi.Edit(c.Server, "w", fakeapi.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue))
}

func resume(c *cluster) {
	fakeapi.Edit(c.Server, "w", fakeapi.Annotation(lwsv1.PausedAnnotationKey, "false"))
}

func edited(c *cluster, change func(*lwsv1.LeaderWorkerSet)) {
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Generation++; change(set) })
}

// runningImages are the images of all pods.
func runningImages(c *cluster) map[string]int {
	images := map[string]int{}
	for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
		images[pod.Spec.Containers[0].Image]++
	}
	return images
}

func TestATemplateWaitsWhileTheRolloutIsPaused(t *testing.T) {
	c := running(t, 3, 2)
	first := c.status()
	pause(c)
	edited(c, fakeapi.Image("image:2"))
	c.settleAll()
	if got := runningImages(c); got["image:1"] != 6 {
		t.Errorf("pods run %v", got)
	}
	if got := len(fakeapi.All[*appsv1.ControllerRevision](c.Objects)); got != 1 {
		t.Errorf("%d revisions", got)
	}
	status := c.status()
	key := find[*appsv1.StatefulSet](c, "w").Labels[lwsv1.RevisionKey]
	want := "Rollout is paused with 3 of 3 groups at revision " + key +
		", and a change of the template waits; resume it with: kubectl lockstep rollout resume w -n ns"
	for _, kind := range []string{progressing, string(lwsv1.LeaderWorkerSetUpdateInProgress)} {
		if got := condition(status, kind); got.Status != metav1.ConditionTrue || got.Reason != "RolloutPaused" || got.Message != want {
			t.Errorf("%s: got %+v", kind, got)
		}
	}
	if condition(status, available).Status == metav1.ConditionTrue || status.UpdatedReplicas != 0 || status.ReadyReplicas != 3 {
		t.Errorf("got %+v", status)
	}
	if wait, ok := waitFor(c.decideSet(), lws.CodePaused); !ok || wait.Sentence != want {
		t.Errorf("waits for %+v", wait)
	}

	edited(c, fakeapi.Image("image:1"))
	c.settleAll()
	if got := brief(c.status())[available]; got != brief(first)[available] {
		t.Errorf("taken back, it is %v", brief(c.status()))
	}
	edited(c, fakeapi.Image("image:3"))
	resume(c)
	c.settleAll()
	if got := runningImages(c); got["image:3"] != 6 || brief(c.status())[available] != isAvailable {
		t.Errorf("resumed, pods run %v: %v", got, brief(c.status()))
	}
	if got := len(fakeapi.All[*appsv1.ControllerRevision](c.Objects)); got != 2 {
		t.Errorf("%d revisions: what was never rolled needs none", got)
	}
}

func TestAPausedSetIsScaledAtItsOwnRevision(t *testing.T) {
	c := running(t, 2, 2)
	pause(c)
	edited(c, func(set *lwsv1.LeaderWorkerSet) {
		fakeapi.Image("image:2")(set)
		set.Spec.Replicas = fakeapi.Ptr[int32](4)
		set.Spec.LeaderWorkerTemplate.Size = fakeapi.Ptr[int32](3)
	})
	c.settleAll()
	if got := runningImages(c); got["image:1"] != 8 || got["image:2"] != 0 {
		t.Errorf("pods run %v, want 4 groups of 2", got)
	}
}

func TestAPausedSetIsMendedAtItsOwnRevision(t *testing.T) {
	tests := []struct {
		name string
		harm func(*cluster)
	}{
		{"a leader", func(c *cluster) {
			c.Remove(find[*corev1.Pod](c, "w-1"), metav1.DeletePropagationBackground)
		}},
		{"a worker statefulset", func(c *cluster) {
			fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-1")
			fakeapi.Drop[*corev1.Pod](c.Server, "w-1-1")
		}},
		{"a group's service", func(c *cluster) { fakeapi.Drop[*corev1.Service](c.Server, "w-1") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := running(t, 2, 2, fakeapi.UniquePerReplica)
			pause(c)
			edited(c, func(set *lwsv1.LeaderWorkerSet) {
				fakeapi.Image("image:2")(set)
				set.Spec.NetworkConfig.SubdomainPolicy = fakeapi.Ptr(lwsv1.SubdomainShared)
			})
			c.settleAll()
			tt.harm(c)
			c.settleAll()
			c.pass(time.Minute)
			c.settleAll()
			if got := runningImages(c); got["image:1"] != 4 || got["image:2"] != 0 {
				t.Errorf("pods run %v", got)
			}
			if got := c.status(); got.ReadyReplicas != 2 || condition(got, progressing).Reason != lws.CodePaused {
				t.Errorf("got %v, %d ready", brief(got), got.ReadyReplicas)
			}
			for _, name := range []string{"w-0", "w-1"} {
				service := fakeapi.Find[*corev1.Service](c.Server, name)
				if workers := find[*appsv1.StatefulSet](c, name); workers.Spec.ServiceName != name || service == nil {
					t.Errorf("the workers of %s hang from %q; service: %v", name, workers.Spec.ServiceName, service)
				}
			}
		})
	}
}

// The new StatefulSet adopts leaders of whatever revision: it is granted none.
func TestALeaderStatefulSetLostWhilePausedReplacesNobody(t *testing.T) {
	c := running(t, 2, 2)
	pause(c)
	edited(c, fakeapi.Image("image:2"))
	c.settleAll()
	c.Remove(find[*appsv1.StatefulSet](c, "w"), metav1.DeletePropagationOrphan)
	c.settleAll()
	sts := find[*appsv1.StatefulSet](c, "w")
	if image, at := sts.Spec.Template.Spec.Containers[0].Image, partition(sts); image != "image:1" || at != 2 {
		t.Errorf("it is made with %s and partition %d", image, at)
	}
	for _, name := range []string{"w-0", "w-1"} {
		fakeapi.Edit(c.Server, name, func(leader *corev1.Pod) {
			fakeapi.OwnedBy(leader, "apps/v1", identity.RefOf(identity.KindStatefulSet, sts))
		})
	}
	before := find[*corev1.Pod](c, "w-1").UID
	c.settleAll()
	if got := runningImages(c); got["image:1"] != 4 || find[*corev1.Pod](c, "w-1").UID != before {
		t.Errorf("pods run %v", got)
	}
	resume(c)
	c.settleAll()
	if got := runningImages(c); got["image:2"] != 4 || brief(c.status())[available] != isAvailable {
		t.Errorf("resumed, pods run %v: %v", got, brief(c.status()))
	}
}

// A change of the exclusive topology is in no revision, and replaces leaders all
// the same.
func TestATopologyWaitsWhileTheRolloutIsPaused(t *testing.T) {
	c := running(t, 2, 1, fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, "rack"))
	before := find[*appsv1.StatefulSet](c, "w").Spec.Template
	pause(c)
	fakeapi.Edit(c.Server, "w", fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, "zone"))
	c.settleAll()
	if got := find[*appsv1.StatefulSet](c, "w").Spec.Template; got.Annotations[lwsv1.ExclusiveKeyAnnotationKey] != before.Annotations[lwsv1.ExclusiveKeyAnnotationKey] {
		t.Errorf("the leaders' template has %v", got.Annotations)
	}
	if got := condition(c.status(), progressing); got.Reason != lws.CodePaused {
		t.Errorf("it does not say that something waits: %v", brief(c.status()))
	}
	resume(c)
	c.settleAll()
	if got := find[*appsv1.StatefulSet](c, "w").Spec.Template.Annotations[lwsv1.ExclusiveKeyAnnotationKey]; got != "zone" {
		t.Errorf("resumed, the leaders' template has %q", got)
	}
}

// A leader that was placed by no topology stays where it is, and so do its workers,
// whatever the set has come to say.
func TestWorkersMadeWhilePausedGoWhereTheirLeaderIs(t *testing.T) {
	c := running(t, 2, 2)
	fakeapi.Add(c.Server, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"zone": "z1"}}})
	fakeapi.Edit(c.Server, "w-1", func(leader *corev1.Pod) { leader.Spec.NodeName = "node-1" })
	pause(c)
	fakeapi.Edit(c.Server, "w", fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, "zone"))
	fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-1")
	fakeapi.Drop[*corev1.Pod](c.Server, "w-1-1")
	c.do(c.decideGroup("w-1"))
	template := find[*appsv1.StatefulSet](c, "w-1").Spec.Template
	if got := template.Annotations[lwsv1.ExclusiveKeyAnnotationKey]; got != "" || len(template.Spec.NodeSelector) > 0 {
		t.Errorf("the workers' topology is %q: they go to %v", got, template.Spec.NodeSelector)
	}
}

func TestANetworkThatWaitsMakesNoServices(t *testing.T) {
	c := running(t, 2, 2)
	pause(c)
	edited(c, fakeapi.UniquePerReplica)
	c.settleAll()
	if got := fakeapi.All[*corev1.Service](c.Objects); len(got) != 1 {
		t.Errorf("there are %d services", len(got))
	}
	resume(c)
	c.settleAll()
	if find[*corev1.Service](c, "w-1") == nil {
		t.Error("resumed, the groups have no services")
	}
}

// Who cannot tell what the groups run makes nothing.
func TestAPausedSetWhoseRevisionIsGoneStandsStill(t *testing.T) {
	c := running(t, 2, 2)
	pause(c)
	edited(c, fakeapi.Image("image:2"))
	c.settleAll()
	revision := fakeapi.All[*appsv1.ControllerRevision](c.Objects)[0]
	delete(c.Objects, fakeapi.NameOf(revision))
	edited(c, func(set *lwsv1.LeaderWorkerSet) { set.Spec.Replicas = fakeapi.Ptr[int32](3) })
	c.pass(time.Minute)
	plan := c.decideSet()
	for _, a := range plan.Actions {
		if _, status := a.(action.WriteStatus); !status {
			t.Errorf("%s %s", a.Verb(), a.Target())
		}
	}
	if wait, ok := waitFor(plan, lws.CodeRevisionNotVisible); !ok || !strings.Contains(wait.Sentence, "resume it") {
		t.Errorf("waits %v", plan.Waits)
	}
	resume(c)
	c.settleAll()
	if got := runningImages(c); got["image:2"] != 6 {
		t.Errorf("resumed, pods run %v", got)
	}
}

func TestASetThatIsBornPausedIsMade(t *testing.T) {
	c := running(t, 2, 2, fakeapi.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue))
	if got := brief(c.status())[available]; got != isAvailable {
		t.Errorf("got %v", brief(c.status()))
	}
	resume(c)
	c.settleAll()
	if got := runningImages(c); got["image:1"] != 4 {
		t.Errorf("pods run %v", got)
	}
}

func TestAPausedPlanReadsNoHistoryEachTime(t *testing.T) {
	c := running(t, 2, 2)
	pause(c)
	edited(c, fakeapi.Image("image:2"))
	c.settleAll()
	if c.set("w").HistoryRead {
		t.Error("the history is wanted for a template that waits")
	}
}

// Leaders that the StatefulSet controller does not get to are left to it.
func TestNoLeaderIsReplacedWhileTheRolloutIsPaused(t *testing.T) {
	c := newCluster(t)
	c.WithoutMaxUnavailable = true
	fakeapi.Add(c.Server, fakeapi.Set("w", 4, 1, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.FromInt32(3)}
	}))
	c.settleAll()
	edited(c, fakeapi.Image("image:2"))
	for round := 0; round < 9 && len(of[action.Delete](c.decideSet())) == 0; round++ {
		c.do(c.decideSet())
		c.Sync(find[*appsv1.StatefulSet](c, "w"))
	}
	if len(of[action.Delete](c.decideSet())) == 0 {
		t.Fatalf("invalid run: no leader would be replaced directly: %s", spelled(c.decideSet()))
	}
	pause(c)
	for range 3 {
		plan := c.decideSet()
		if got := of[action.Delete](plan); len(got) != 0 {
			t.Errorf("it deletes %v", got)
		}
		c.do(plan)
	}
}
