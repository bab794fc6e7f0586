package lws_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
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

// A template that waits changes no pod and creates no revision. It is reported, may be
// taken back, and is rolled out once the rollout is resumed.
func TestATemplateWaitsWhileTheRolloutIsPaused(t *testing.T) {
	c := running(t, 3, 2)
	pause(c)
	edited(c, fakeapi.Image("image:2"))
	c.settleAll()
	if got := runningImages(c); got["image:1"] != 6 || len(revisions(c)) != 1 {
		t.Errorf("pods run %v; %d revisions", got, len(revisions(c)))
	}
	status := c.status()
	for _, kind := range []string{progressing, updating} {
		got := condition(status, kind)
		if got.Status != metav1.ConditionTrue || got.Reason != lws.CodePaused || !strings.Contains(got.Message, "kubectl lockstep rollout resume w -n ns") {
			t.Errorf("%s: got %+v", kind, got)
		}
	}
	if condition(status, available).Status == metav1.ConditionTrue || status.UpdatedReplicas != 0 || status.ReadyReplicas != 3 {
		t.Errorf("got %+v", status)
	}
	if wait, ok := waitFor(c.decideSet(), lws.CodePaused); !ok || wait.Sentence != condition(status, progressing).Message {
		t.Errorf("waits for %+v", wait)
	}
	if c.set("w").HistoryRead {
		t.Error("the history is read for a template that waits")
	}
	edited(c, fakeapi.Image("image:1"))
	c.settleAll()
	if got := brief(c.status())[available]; got != isAvailable {
		t.Errorf("taken back: %v", brief(c.status()))
	}
	edited(c, fakeapi.Image("image:3"))
	resume(c)
	c.settleAll()
	if got := runningImages(c); got["image:3"] != 6 || brief(c.status())[available] != isAvailable || len(revisions(c)) != 2 {
		t.Errorf("resumed: pods run %v, %v, %d revisions", got, brief(c.status()), len(revisions(c)))
	}
}

// What is lost or scaled while a template waits is created at the revision that runs.
func TestAPausedSetIsRepairedAtItsOwnRevision(t *testing.T) {
	for name, tt := range map[string]struct {
		harm func(*cluster)
		pods int
	}{
		"scaled": {func(c *cluster) {
			edited(c, func(set *lwsv1.LeaderWorkerSet) {
				set.Spec.Replicas, set.Spec.LeaderWorkerTemplate.Size = fakeapi.Ptr[int32](4), fakeapi.Ptr[int32](3)
			})
		}, 8},
		"a leader": {func(c *cluster) { c.Remove(find[*corev1.Pod](c, "w-1"), metav1.DeletePropagationBackground) }, 4},
		"a worker StatefulSet": {func(c *cluster) {
			fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-1")
			fakeapi.Drop[*corev1.Pod](c.Server, "w-1-1")
		}, 4},
		"a group's Service":      {func(c *cluster) { fakeapi.Drop[*corev1.Service](c.Server, "w-1") }, 4},
		"the leader StatefulSet": {func(c *cluster) { c.Remove(find[*appsv1.StatefulSet](c, "w"), metav1.DeletePropagationOrphan) }, 4},
	} {
		t.Run(name, func(t *testing.T) {
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
			if got := runningImages(c); got["image:1"] != tt.pods || got["image:2"] != 0 {
				t.Errorf("pods run %v", got)
			}
			if got := c.status(); int(got.ReadyReplicas) != tt.pods/2 || condition(got, progressing).Reason != lws.CodePaused {
				t.Errorf("got %v, %d ready", brief(got), got.ReadyReplicas)
			}
			for _, name := range []string{"w-0", "w-1"} {
				service := fakeapi.Find[*corev1.Service](c.Server, name)
				if workers := find[*appsv1.StatefulSet](c, name); workers.Spec.ServiceName != name || service == nil {
					t.Errorf("workers of %s use Service %q; found: %v", name, workers.Spec.ServiceName, service)
				}
			}
			resume(c)
			c.settleAll()
			if got := runningImages(c); got["image:1"] != 0 || brief(c.status())[available] != isAvailable {
				t.Errorf("resumed: pods run %v, %v", got, brief(c.status()))
			}
		})
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
