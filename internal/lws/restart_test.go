package lws_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/lwstest"
)

var onRestart, whenStarted = lwstest.Policy(lwsv1.RecreateGroupOnPodRestart), lwstest.Policy(lwsv1.RecreateGroupAfterStart)

// crash restarts a container of a pod, as the kubelet tells it.
func crash(pod *corev1.Pod) {
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "worker", RestartCount: 1,
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", Message: "out of memory"}},
	}}
	if statuses := pod.Status.ContainerStatuses; pod.Annotations["crashes"] != "" {
		statuses[0].RestartCount++
	}
}

// noted is what a set has been told of its groups.
func (c *cluster) noted(groups ...string) *cluster {
	c.t.Helper()
	for _, group := range groups {
		c.memory.Found(c.decideGroup(group).Finding)
	}
	return c
}

func leaderUID(c *cluster, name string) string { return string(find[*corev1.Pod](c, name).UID) }

// recreated settles the cluster, with the garbage collector, and tells which of
// the leaders are others then.
func (c *cluster) recreated(groups ...string) []string {
	c.t.Helper()
	before := map[string]string{}
	for _, name := range groups {
		if pod := lwstest.Find[*corev1.Pod](c.FakeStore, name); pod != nil {
			before[name] = string(pod.UID)
		}
	}
	for range 3 {
		c.collect()
		c.settle(groups...)
	}
	others := []string{}
	for _, name := range groups {
		if leaderUID(c, name) != before[name] {
			others = append(others, name)
		}
	}
	return others
}

// failures are the ways in which a group of three that has started can fail.
var failures = map[string]func(*cluster){
	"WorkerRestarts": func(c *cluster) { lwstest.Edit(c.FakeStore, "w-1-2", crash) },
	"LeaderRestarts": func(c *cluster) { lwstest.Edit(c.FakeStore, "w-1", func(p *corev1.Pod) { crash(p) }) },
	"WorkerDeleted":  func(c *cluster) { lwstest.Terminate[*corev1.Pod](c.FakeStore, "w-1-2") },
	"WorkerGone":     func(c *cluster) { lwstest.Drop[*corev1.Pod](c.FakeStore, "w-1-2") },
	"WorkerReplaced": replaceWorker,
	"WorkerFails": func(c *cluster) {
		lwstest.Edit(c.FakeStore, "w-1-2", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	},
	"LeaderFails": func(c *cluster) {
		lwstest.Edit(c.FakeStore, "w-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	},
	"WorkersetDeleted": func(c *cluster) { lwstest.Drop[*appsv1.StatefulSet](c.FakeStore, "w-1") },
}

func replaceWorker(c *cluster) {
	lwstest.Drop[*corev1.Pod](c.FakeStore, "w-1-2")
	c.Sync(find[*appsv1.StatefulSet](c, "w-1"))
	c.Run(find[*corev1.Pod](c, "w-1-2"))
}

var three = []string{"w-0", "w-1", "w-2"}

// TestFailureModes holds what becomes of a group that has started, by failure and
// policy; see docs/failure-modes.md.
func TestFailureModes(t *testing.T) {
	for name, fail := range failures {
		for policy, want := range map[lwsv1.RestartPolicyType][]string{
			lwsv1.NoneRestartPolicy: {}, lwsv1.DeprecatedDefaultRestartPolicy: {},
			lwsv1.RecreateGroupOnPodRestart: {"w-1"}, lwsv1.RecreateGroupAfterStart: {"w-1"},
		} {
			if name == "LeaderFails" { // whose StatefulSet replaces it, whatever the policy
				want = []string{"w-1"}
			}
			t.Run(name+"/"+string(policy), func(t *testing.T) {
				c := running(t, 3, 3, lwstest.Policy(policy))
				fail(c)
				if diff := cmp.Diff(want, c.recreated(three...)); diff != "" {
					t.Errorf("recreated (-want +got)\n%s", diff)
				}
				if again := c.recreated(three...); len(again) != 0 {
					t.Errorf("recreated again: %v", again)
				}
			})
			t.Run(name+"WhileDown/"+string(policy), func(t *testing.T) {
				c := running(t, 3, 3, lwstest.Policy(policy))
				fail(c)
				c.awake()
				if diff := cmp.Diff(want, c.recreated(three...)); diff != "" {
					t.Errorf("recreated (-want +got)\n%s", diff)
				}
			})
		}
	}
}

// failuresInStart are the ways in which a group of three can fail whose last worker
// does not run yet. A worker that is gone leaves nothing that tells of it.
var failuresInStart = map[string]func(*cluster){
	"ContainerRestarts":       func(c *cluster) { lwstest.Edit(c.FakeStore, "w-0-1", crash) },
	"LeaderContainerRestarts": func(c *cluster) { lwstest.Edit(c.FakeStore, "w-0", func(p *corev1.Pod) { crash(p) }) },
	"PodEnds": func(c *cluster) {
		lwstest.Edit(c.FakeStore, "w-0-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	},
	"PodDeleted":     func(c *cluster) { lwstest.Terminate[*corev1.Pod](c.FakeStore, "w-0-1") },
	"PodGoneInStart": func(c *cluster) { lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0-1") },
}

// TestFailureModesInStart holds what becomes of a group that is starting, by failure
// and policy.
func TestFailureModesInStart(t *testing.T) {
	policies := map[string]struct {
		edit func(*lwsv1.LeaderWorkerSet)
		want bool
	}{
		"None":                      {lwstest.Policy(lwsv1.NoneRestartPolicy), false},
		"RecreateGroupOnPodRestart": {onRestart, true},
		"RecreateGroupAfterStart":   {whenStarted, false},
		"Annotated": {func(set *lwsv1.LeaderWorkerSet) {
			onRestart(set)
			lwstest.Annotation(lwsv1.RecreateGroupAfterStartAnnotationKey, "")(set)
		}, false},
	}
	for name, fail := range failuresInStart {
		for policy, tt := range policies {
			want := tt.want && name != "PodGoneInStart"
			t.Run(name+"/"+policy, func(t *testing.T) {
				c := newCluster(t)
				c.pass(time.Minute)
				lwstest.Add(c.FakeStore, lwstest.Set("w", 1, 3, tt.edit))
				starting(c)
				fail(c)
				before := leaderUID(c, "w-0")
				c.do(c.decideGroup("w-0"))
				c.do(c.decideSet())
				failed := len(c.status().Restarts) == 1
				if failed != want {
					t.Errorf("it failed: %t", failed)
				}
				if c.recreated("w-0"); (leaderUID(c, "w-0") != before) != want {
					t.Errorf("recreated: %t", !want)
				}
				if got := c.recreated("w-0"); len(got) != 0 {
					t.Errorf("once started, what was before is held against it: %+v", c.status().Restarts)
				}
			})
		}
	}
}

// starting brings the only group so far that all but its last pod runs.
func starting(c *cluster) {
	for range 3 {
		c.do(c.decideSet())
		c.do(c.decideGroup("w-0"))
		for _, sts := range lwstest.All[*appsv1.StatefulSet](c.Objects) {
			c.Sync(sts)
		}
		for _, pod := range lwstest.All[*corev1.Pod](c.Objects) {
			if pod.Name != "w-0-2" {
				c.Run(pod)
			}
		}
	}
}

// The failure is written down before anything is deleted; then the whole group
// goes in one plan, the StatefulSet before its pods and beside the leader.
func TestAGroupEndsTogetherOnceItsFailureIsWrittenDown(t *testing.T) {
	c := running(t, 2, 3, onRestart)
	lwstest.Edit(c.FakeStore, "w-1-2", crash)
	plan := c.decideGroup("w-1")
	if len(plan.Actions) != 0 || plan.Finding == nil || plan.Finding.Failure == nil {
		t.Fatalf("got %v, %+v", spelled(plan), plan.Finding)
	}
	c.do(plan)
	set := c.decideSet()
	if diff := cmp.Diff([]string{"status leaderworkerset w"}, spelled(set)); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
	c.do(set)
	plan = c.decideGroup("w-1")
	if diff := cmp.Diff([]string{"delete pod w-1", "delete statefulset w-1", "delete pod w-1-1", "delete pod w-1-2"}, spelled(plan)); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
	if deletes := of[action.Delete](plan); !deletes[1].Beside || deletes[2].Beside {
		t.Errorf("the StatefulSet alone goes beside the leader: %+v", deletes)
	}
	events := of[action.Delete](plan)[0].Tell.Done
	if len(events) != 1 || events[0].Reason != "RecreateGroup" || events[0].Note != "Worker pod w-1-2 failed, deleted leader pod w-1 to recreate group 1" {
		t.Errorf("got %+v", events)
	}
	c.awake() // a crash in between
	if diff := cmp.Diff(spelled(plan), spelled(c.decideGroup("w-1"))); diff != "" {
		t.Errorf("after a crash (-before +after)\n%s", diff)
	}
	if got := spelled(c.decideGroup("w-0")); len(got) != 0 {
		t.Errorf("the other group: %v", got)
	}
}

func TestEvidence(t *testing.T) {
	c := running(t, 1, 2, onRestart)
	lwstest.Edit(c.FakeStore, "w-0-1", func(pod *corev1.Pod) {
		crash(pod)
		pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.Message = strings.Repeat("line\n", 20) + "the last one"
	})
	c.do(c.decideGroup("w-0"))
	c.do(c.decideSet())
	r := c.status().Restarts[0]
	want := []lwsv1.PodFailure{{
		Pod: "w-0-1", Container: "worker", ExitCode: lwstest.Ptr[int32](137), Reason: "OOMKilled", Node: lwstest.Node,
		Message: strings.Repeat("line\n", 4) + "the last one", At: metav1.NewTime(c.Now),
	}}
	if diff := cmp.Diff(want, r.Failures); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A leader that failed is cleared away by its StatefulSet; what it left to say is
// kept, and its workers go at once.
func TestALeaderThatFailedLeavesEvidence(t *testing.T) {
	c := running(t, 1, 3, onRestart)
	lwstest.Edit(c.FakeStore, "w-0", func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "the node was low on memory"
		pod.DeletionTimestamp = &metav1.Time{Time: c.Now}
	})
	plan := c.decideGroup("w-0")
	if diff := cmp.Diff([]string{"delete statefulset w-0", "delete pod w-0-1", "delete pod w-0-2"}, spelled(plan)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	c.do(plan)
	c.do(c.decideSet())
	restarts := c.status().Restarts
	if len(restarts) != 1 || restarts[0].Count != 1 || restarts[0].Failures[0].Reason != "Evicted" {
		t.Fatalf("got %+v", restarts)
	}
	c.recreated("w-0")
	if again := c.status().Restarts; again[0].Count != 1 {
		t.Errorf("counted %d times", again[0].Count)
	}
}

// Workers of a leader that somebody deleted do not outlive it by their own grace
// period; a rollout leaves them to the garbage collector.
func TestWorkersEndWithALeaderThatIsDeleted(t *testing.T) {
	c := running(t, 2, 2, onRestart)
	lwstest.Terminate[*corev1.Pod](c.FakeStore, "w-1")
	plan := c.decideGroup("w-1")
	if diff := cmp.Diff([]string{"delete statefulset w-1", "delete pod w-1-1"}, spelled(plan)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if plan.Finding != nil {
		t.Errorf("nothing failed: %+v", plan.Finding)
	}
	c = running(t, 2, 2, onRestart)
	lwstest.Edit(c.FakeStore, "w", func(sts *appsv1.StatefulSet) { sts.Labels[lwsv1.RevisionKey] = "next" })
	lwstest.Terminate[*corev1.Pod](c.FakeStore, "w-1")
	if got := spelled(c.decideGroup("w-1")); len(got) != 0 {
		t.Errorf("a rollout: %v", got)
	}
}

// Groups made under None are not all recreated for what happened to them then.
func TestARecreatingPolicyDoesNotLookBack(t *testing.T) {
	c := running(t, 3, 2)
	for _, name := range []string{"w-0-1", "w-1-1"} {
		lwstest.Edit(c.FakeStore, name, crash)
	}
	c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) {
		spec.LeaderWorkerTemplate.RestartPolicy = lwsv1.RecreateGroupOnPodRestart
	})
	for range 3 {
		for _, name := range three {
			c.do(c.decideGroup(name))
		}
		c.do(c.decideSet())
	}
	if restarts := c.status().Restarts; len(restarts) != 0 {
		t.Errorf("got %+v", restarts)
	}
}

// An operator that takes over sets without records restarts nothing for what was.
func TestAnUpgradeRestartsNothing(t *testing.T) {
	c := running(t, 3, 2, onRestart)
	for _, name := range []string{"w-0-1", "w-1"} {
		lwstest.Edit(c.FakeStore, name, func(pod *corev1.Pod) { crash(pod) })
	}
	lwstest.Edit(c.FakeStore, "w", func(set *lwsv1.LeaderWorkerSet) { set.Status.Started, set.Status.RestartsSince = nil, nil })
	c.awake()
	if got := c.recreated(three...); len(got) != 0 {
		t.Errorf("recreated %v", got)
	}
	lwstest.Drop[*corev1.Pod](c.FakeStore, "w-1-1")
	if diff := cmp.Diff([]string{"w-1"}, c.recreated(three...)); diff != "" {
		t.Errorf("then (-want +got)\n%s", diff)
	}
}

// A server that drops what it does not know is told of, and not written to for ever.
func TestAServerThatPrunes(t *testing.T) {
	c := newCluster(t)
	c.Prunes = true
	c.pass(time.Minute)
	lwstest.Add(c.FakeStore, lwstest.Set("w", 3, 2, onRestart))
	c.settle(three...)
	if told := condition(c.status(), lws.ConditionUnrecorded); told.Status != metav1.ConditionTrue {
		t.Fatalf("told %+v", c.status().Conditions)
	}
	lwstest.Edit(c.FakeStore, "w-1-1", crash)
	if diff := cmp.Diff([]string{"w-1"}, c.recreated(three...)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	c.awake()
	if got := c.recreated(three...); len(got) != 0 {
		t.Errorf("recreated %v by a new process", got)
	}
	c.Prunes = false
	lwstest.Edit(c.FakeStore, "w-1-1", crash)
	c.recreated(three...)
	if told := condition(c.status(), lws.ConditionUnrecorded); told.Status != metav1.ConditionFalse || len(c.status().Started) != 3 {
		t.Errorf("the definition was replaced: told %+v, %d recorded", told, len(c.status().Started))
	}
}

// A new process may know the set's record before it knows all of the pods in it.
func TestWhatACacheMissesIsLookedForBeforeAGroupFails(t *testing.T) {
	c := newCluster(t)
	c.pass(time.Minute)
	lwstest.Add(c.FakeStore, lwstest.Set("w", 1, 3, onRestart))
	starting(c)
	old := c.Lagging()
	lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0-2")
	c.settle("w-0")
	if len(c.status().Started) != 1 {
		t.Fatalf("invalid run: %+v", c.status())
	}
	c.cached = old
	c.cached.Deliver(identity.KindLeaderWorkerSet)
	c.awake()
	for range 2 {
		if plan := c.decideGroup("w-0"); plan.Finding != nil || len(plan.Actions) != 0 {
			t.Errorf("got %+v, %v", plan.Finding, spelled(plan))
		}
		c.cached.Deliver(identity.KindStatefulSet)
	}
	lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0-2")
	if plan := c.decideGroup("w-0"); plan.Finding == nil || plan.Finding.Failure.Code != lws.CodePodGone {
		t.Errorf("once it is gone: %+v", plan.Finding)
	}
}
