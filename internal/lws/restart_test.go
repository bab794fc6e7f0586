package lws_test

import (
	"fmt"
	"slices"
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
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/test/fakeapi"
)

var onRestart, whenStarted = fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart), fakeapi.Policy(lwsv1.RecreateGroupAfterStart)

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

func leaderUID(c *cluster, name string) string { return string(find[*corev1.Pod](c, name).UID) }

// recreated settles the cluster, with the garbage collector, and returns the leaders that
// are others then.
func (c *cluster) recreated(groups ...string) []string {
	c.t.Helper()
	before := map[string]string{}
	for _, name := range groups {
		if pod := fakeapi.Find[*corev1.Pod](c.Server, name); pod != nil {
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
	"WorkerRestarts": func(c *cluster) { fakeapi.Edit(c.Server, "w-1-2", crash) },
	"LeaderRestarts": func(c *cluster) { fakeapi.Edit(c.Server, "w-1", func(p *corev1.Pod) { crash(p) }) },
	"WorkerDeleted":  func(c *cluster) { fakeapi.Terminate[*corev1.Pod](c.Server, "w-1-2") },
	"WorkerGone":     func(c *cluster) { fakeapi.Drop[*corev1.Pod](c.Server, "w-1-2") },
	"WorkerReplaced": replaceWorker,
	"WorkerFails": func(c *cluster) {
		fakeapi.Edit(c.Server, "w-1-2", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	},
	"LeaderFails": func(c *cluster) {
		fakeapi.Edit(c.Server, "w-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	},
	"WorkersetDeleted": func(c *cluster) { fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-1") },
}

func replaceWorker(c *cluster) {
	fakeapi.Drop[*corev1.Pod](c.Server, "w-1-2")
	c.Sync(find[*appsv1.StatefulSet](c, "w-1"))
	c.Run(find[*corev1.Pod](c, "w-1-2"))
}

var three = []string{"w-0", "w-1", "w-2"}

// TestFailureModes holds which groups are recreated, by failure and policy.
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
				c := running(t, 3, 3, fakeapi.Policy(policy))
				fail(c)
				if diff := cmp.Diff(want, c.recreated(three...)); diff != "" {
					t.Errorf("recreated (-want +got)\n%s", diff)
				}
				if again := c.recreated(three...); len(again) != 0 {
					t.Errorf("recreated again: %v", again)
				}
			})
		}
	}
}

// failuresInStart are the ways in which a group of three can fail whose last worker
// does not run yet. A worker that is gone leaves nothing that tells of it.
var failuresInStart = map[string]func(*cluster){
	"ContainerRestarts":       func(c *cluster) { fakeapi.Edit(c.Server, "w-0-1", crash) },
	"LeaderContainerRestarts": func(c *cluster) { fakeapi.Edit(c.Server, "w-0", func(p *corev1.Pod) { crash(p) }) },
	"PodEnds": func(c *cluster) {
		fakeapi.Edit(c.Server, "w-0-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	},
	"PodDeleted":     func(c *cluster) { fakeapi.Terminate[*corev1.Pod](c.Server, "w-0-1") },
	"PodGoneInStart": func(c *cluster) { fakeapi.Drop[*corev1.Pod](c.Server, "w-0-1") },
}

// TestFailureModesInStart holds the same for a group that is starting.
func TestFailureModesInStart(t *testing.T) {
	policies := map[string]struct {
		edit func(*lwsv1.LeaderWorkerSet)
		want bool
	}{
		"None":                      {fakeapi.Policy(lwsv1.NoneRestartPolicy), false},
		"RecreateGroupOnPodRestart": {onRestart, true},
		"RecreateGroupAfterStart":   {whenStarted, false},
		"Annotated": {func(set *lwsv1.LeaderWorkerSet) {
			onRestart(set)
			fakeapi.Annotation(lwsv1.RecreateGroupAfterStartAnnotationKey, "")(set)
		}, false},
	}
	for name, fail := range failuresInStart {
		for policy, tt := range policies {
			want := tt.want && name != "PodGoneInStart"
			t.Run(name+"/"+policy, func(t *testing.T) {
				c := newCluster(t)
				c.pass(time.Minute)
				fakeapi.Add(c.Server, fakeapi.Set("w", 1, 3, tt.edit))
				starting(c)
				fail(c)
				before := leaderUID(c, "w-0")
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
		for _, sts := range fakeapi.All[*appsv1.StatefulSet](c.Objects) {
			c.Sync(sts)
		}
		for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
			if pod.Name != "w-0-2" {
				c.Run(pod)
			}
		}
	}
}

// One plan writes the decision and deletes the group: the decision first, then all of the
// group at once, the StatefulSet before its pods and beside the leader.
func TestAGroupIsDecidedAndDeletedInOnePlan(t *testing.T) {
	c := running(t, 2, 3, onRestart)
	fakeapi.Edit(c.Server, "w-1-2", crash)
	plan := c.decideGroup("w-1")
	want := []string{"annotate pod w-1", "delete pod w-1", "delete statefulset w-1", "delete pod w-1-1", "delete pod w-1-2"}
	if diff := cmp.Diff(want, spelled(plan)); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
	if deletes := of[action.Delete](plan); !deletes[1].Beside || deletes[2].Beside {
		t.Errorf("the StatefulSet alone goes beside the leader: %+v", deletes)
	}
	events := of[action.Delete](plan)[0].Tell.Done
	if len(events) != 1 || events[0].Reason != "RecreateGroup" || events[0].Note != "Worker pod w-1-2 failed, deleted leader pod w-1 to recreate group 1" {
		t.Errorf("got %+v", events)
	}
	if got := spelled(c.decideGroup("w-0")); len(got) != 0 {
		t.Errorf("the other group: %v", got)
	}
}

// A new process between any two writes of a restart leads to the same end.
func TestACrashBetweenTwoWritesOfARestart(t *testing.T) {
	for done := range 6 {
		c := running(t, 1, 3, onRestart)
		leader := find[*corev1.Pod](c, "w-0").UID
		fakeapi.Edit(c.Server, "w-0-2", crash)
		plan := c.decideGroup("w-0")
		plan.Actions = plan.Actions[:min(done, len(plan.Actions))]
		c.do(plan)
		c.awake()
		c.recreated("w-0")
		r := c.status().Restarts
		if len(r) != 1 || r[0].Leader != leader || r[0].Count != 1 || r[0].Failures[0].Reason != "OOMKilled" || leaderUID(c, "w-0") == string(leader) {
			t.Errorf("after %d writes: %+v", done, r)
		}
		if again := c.recreated("w-0"); len(again) != 0 {
			t.Errorf("after %d writes: recreated again", done)
		}
	}
}

// replaced has the leader go, and another come, before any reconcile.
func replaced(c *cluster) {
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0")
	c.Sync(find[*appsv1.StatefulSet](c, "w"))
}

func terminating(edit func(*corev1.Pod)) func(*cluster) {
	return func(c *cluster) {
		fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) {
			edit(pod)
			pod.DeletionTimestamp = &metav1.Time{Time: c.Now}
		})
	}
}

func disrupted(pod *corev1.Pod) {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
}

// TestWhatIsCounted holds the reason that the status tells and the count, by how a group
// came to its end. Every cause counts but a disruption.
func TestWhatIsCounted(t *testing.T) {
	evicted := func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted" }
	edited := func(edit func(*corev1.Pod)) func(*cluster) {
		return func(c *cluster) { fakeapi.Edit(c.Server, "w-0-1", edit) }
	}
	for name, tt := range map[string]struct {
		end    func(*cluster)
		reason string
		count  int32
	}{
		"container restarts":      {edited(crash), "OOMKilled", 1},
		"worker deleted":          {func(c *cluster) { fakeapi.Terminate[*corev1.Pod](c.Server, "w-0-1") }, restart.CodePodDeleted, 1},
		"worker gone":             {func(c *cluster) { fakeapi.Drop[*corev1.Pod](c.Server, "w-0-1") }, restart.CodePodGone, 1},
		"worker ends":             {edited(evicted), "Evicted", 1},
		"worker drained":          {func(c *cluster) { edited(disrupted)(c); fakeapi.Terminate[*corev1.Pod](c.Server, "w-0-1") }, restart.CodePodDeleted, 0},
		"worker evicted":          {edited(func(pod *corev1.Pod) { evicted(pod); disrupted(pod) }), "Evicted", 0},
		"worker ends, is cleared": {func(c *cluster) { edited(evicted)(c); fakeapi.Terminate[*corev1.Pod](c.Server, "w-0-1") }, "Evicted", 1},
		"leader ends":             {func(c *cluster) { fakeapi.Edit(c.Server, "w-0", evicted) }, "Evicted", 1},
		"leader ends, is cleared": {terminating(evicted), "Evicted", 1},
		"leader deleted":          {terminating(func(*corev1.Pod) {}), restart.CodePodDeleted, 1},
		"leader drained":          {terminating(disrupted), restart.CodePodDeleted, 0},
		"leader replaced unseen":  {replaced, restart.CodeLeaderReplaced, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := running(t, 1, 2, onRestart)
			before := leaderUID(c, "w-0")
			tt.end(c)
			c.do(c.decideGroup("w-0"))
			c.do(c.decideSet())
			if c.recreated("w-0"); leaderUID(c, "w-0") == before {
				t.Fatal("not recreated")
			}
			r := c.status().Restarts
			if len(r) != 1 || string(r[0].Leader) != before || r[0].Count != tt.count || len(r[0].Failures) != 1 || r[0].Failures[0].Reason != tt.reason {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// A rollout, a scaling down and orphaning are no failures, and their workers are left to
// the garbage collector, or to the next leader.
func TestLeadersThatLeaveWithoutAFailure(t *testing.T) {
	for name, leave := range map[string]func(*cluster){
		"rolled": func(c *cluster) {
			fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { sts.Labels[lwsv1.RevisionKey] = "next" })
			fakeapi.Terminate[*corev1.Pod](c.Server, "w-1")
		},
		"scaled away": func(c *cluster) {
			fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { *sts.Spec.Replicas = 1 })
			fakeapi.Terminate[*corev1.Pod](c.Server, "w-1")
		},
		"orphaning": func(c *cluster) {
			fakeapi.Terminate[*corev1.Pod](c.Server, "w-1", metav1.FinalizerOrphanDependents)
		},
	} {
		c := running(t, 2, 2, onRestart)
		leave(c)
		if got := spelled(c.decideGroup("w-1")); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	c := running(t, 2, 2, onRestart)
	image(c, "image:2")
	c.settleAll()
	if r := c.status().Restarts; len(r) != 0 {
		t.Errorf("a rollout is counted: %+v", r)
	}
}

func TestEvidence(t *testing.T) {
	ended := func(c *cluster, name string, exit int32, ago time.Duration) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, RestartCount: 1, LastTerminationState: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: exit, Reason: "Error", FinishedAt: metav1.NewTime(c.Now.Add(-ago))},
		}}
	}
	edited := func(edit func(*corev1.ContainerStateTerminated)) func(*cluster, *corev1.Pod) {
		return func(_ *cluster, pod *corev1.Pod) {
			crash(pod)
			edit(pod.Status.ContainerStatuses[0].LastTerminationState.Terminated)
		}
	}
	reason := func(text string) func(*cluster, *corev1.Pod) {
		return edited(func(end *corev1.ContainerStateTerminated) { end.Reason = text })
	}
	message := func(text string) func(*cluster, *corev1.Pod) {
		return edited(func(end *corev1.ContainerStateTerminated) { end.Message = text })
	}
	const killed = "worker OOMKilled 137 "
	for name, tt := range map[string]struct {
		end  func(*cluster, *corev1.Pod)
		want string
	}{
		"the last lines":        {message(strings.Repeat("line\n", 20) + "the last one"), killed + strings.Repeat("line\n", 4) + "the last one"},
		"control characters":    {message("\x1b]0;mine\x07one\ttwo\r\nthree\u009b2J"), killed + "]0;mineone\ttwo\nthree2J"},
		"a reason of two lines": {reason("\x1b[2JBad\r\nWord"), "worker PodRestarted 137 out of memory"},
		"no reason":             {reason("\t\r"), "worker PodRestarted 137 out of memory"},
		"a reason without end":  {reason(strings.Repeat("é", 1<<20)), "worker PodRestarted 137 out of memory"},
		"what ended last": {func(c *cluster, pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{ended(c, "model", 1, time.Hour), ended(c, "sidecar", 0, time.Second)}
		}, "sidecar Error 0 "},
		"what failed of those that ended together": {func(c *cluster, pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{ended(c, "model", 1, 3*time.Second), ended(c, "sidecar", 0, time.Second)}
		}, "model Error 1 "},
	} {
		c := running(t, 1, 2, onRestart)
		fakeapi.Edit(c.Server, "w-0-1", func(pod *corev1.Pod) { tt.end(c, pod) })
		c.do(c.decideGroup("w-0"))
		c.do(c.decideSet())
		f := c.status().Restarts[0].Failures[0]
		got := fmt.Sprintf("%s %s %d %s", f.Container, f.Reason, *f.ExitCode, f.Message)
		if got != tt.want || f.Pod != "w-0-1" || f.Node != fakeapi.Node {
			t.Errorf("%s: got %.99q, want %.99q; %+v", name, got, tt.want, f)
		}
	}
}

// TestWhatIsForgiven holds after which changes groups are taken as they are: what failed
// before recreates nothing, what fails later does.
func TestWhatIsForgiven(t *testing.T) {
	crashed := func(c *cluster) {
		for _, name := range []string{"w-0-1", "w-1"} {
			fakeapi.Edit(c.Server, name, func(pod *corev1.Pod) { crash(pod) })
		}
	}
	unrecorded := func(set *lwsv1.LeaderWorkerSet) { set.Status.Started, set.Status.RestartsSince = nil, nil }
	policy := func(c *cluster, to lwsv1.RestartPolicyType) {
		c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) { spec.LeaderWorkerTemplate.RestartPolicy = to })
	}
	paused := fakeapi.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue)
	for name, tt := range map[string]struct {
		edits  []func(*lwsv1.LeaderWorkerSet)
		before func(*cluster)
	}{
		"taken over from another operator": {nil, func(c *cluster) {
			crashed(c)
			fakeapi.Edit(c.Server, "w", unrecorded)
		}},
		"taken over without a leader StatefulSet": {nil, func(c *cluster) {
			crashed(c)
			for _, name := range three {
				fakeapi.Edit(c.Server, name, func(pod *corev1.Pod) { pod.OwnerReferences = nil })
			}
			fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w")
			fakeapi.Edit(c.Server, "w", unrecorded)
		}},
		"the policy was None": {[]func(*lwsv1.LeaderWorkerSet){paused}, func(c *cluster) {
			policy(c, lwsv1.NoneRestartPolicy)
			crashed(c)
			c.recreated(three...)
			policy(c, lwsv1.RecreateGroupOnPodRestart)
		}},
		"decided, then the policy was None": {[]func(*lwsv1.LeaderWorkerSet){paused}, func(c *cluster) {
			crashed(c)
			for _, name := range three {
				plan := c.decideGroup(name)
				plan.Actions = plan.Actions[:min(1, len(plan.Actions))]
				c.do(plan)
			}
			c.do(c.decideSet())
			policy(c, lwsv1.NoneRestartPolicy)
			c.recreated(three...)
			policy(c, lwsv1.RecreateGroupOnPodRestart)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := running(t, 3, 2, append(tt.edits, onRestart)...)
			tt.before(c)
			c.awake()
			if got := c.recreated(three...); len(got) != 0 {
				t.Errorf("recreated %v for what was before", got)
			}
			fakeapi.Drop[*corev1.Pod](c.Server, "w-1-1")
			if diff := cmp.Diff([]string{"w-1"}, c.recreated(three...)); diff != "" {
				t.Errorf("then (-want +got)\n%s", diff)
			}
		})
	}
}

// An operator before the annotation wrote pending restarts into the status alone. The
// evidence is still there, and decides again.
func TestARestartThatAnEarlierOperatorDecided(t *testing.T) {
	c := running(t, 2, 2, onRestart)
	leader := find[*corev1.Pod](c, "w-0")
	fakeapi.Edit(c.Server, "w-0-1", crash)
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) {
		for i := range set.Status.Started { // its records name no revision
			set.Status.Started[i].Pods, _, _ = strings.Cut(set.Status.Started[i].Pods, ".")
		}
		set.Status.Restarts = []lwsv1.GroupRestarts{{
			Leader: leader.UID, Revision: leader.Labels[lwsv1.RevisionKey],
			Count: 2, FailedAt: metav1.NewTime(c.Now), DueAt: metav1.NewTime(c.Now.Add(20 * time.Second)),
		}}
	})
	c.awake()
	if got := c.recreated("w-0", "w-1"); len(got) != 0 {
		t.Errorf("before it is due: %v", got)
	}
	c.pass(time.Minute)
	if diff := cmp.Diff([]string{"w-0"}, c.recreated("w-0", "w-1")); diff != "" {
		t.Errorf("recreated (-want +got)\n%s", diff)
	}
}

// An API server that drops the record is reported. Without it no group is recreated.
func TestAServerThatPrunes(t *testing.T) {
	c := running(t, 3, 2, onRestart)
	c.Prunes = true
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Status.Started, set.Status.RestartsSince = nil, nil })
	c.do(c.decideSet())
	if told := condition(c.status(), lws.ConditionUnrecorded); told.Status != metav1.ConditionTrue {
		t.Fatalf("reported %+v", c.status().Conditions)
	}
	c.pass(time.Minute)
	if again, waits := waitFor(c.decideSet(), lws.ConditionUnrecorded); !waits || again.Until.IsZero() {
		t.Error("nothing reconciles the set once the definition is replaced")
	}
	fakeapi.Edit(c.Server, "w-1-1", crash)
	if got := spelled(c.decideGroup("w-1")); len(got) != 0 {
		t.Errorf("a failed group: %v", got)
	}
	c.Prunes = false
	if got := c.recreated(three...); len(got) != 0 {
		t.Errorf("the definition was replaced: recreated %v", got)
	}
	if told := condition(c.status(), lws.ConditionUnrecorded); told.Status != metav1.ConditionFalse || len(c.status().Started) != 3 {
		t.Errorf("the definition was replaced: reported %+v, %d recorded", told, len(c.status().Started))
	}
}

// A cache that lags does not recreate a group: what seems gone is read live.
func TestWhatACacheMissesIsReadLive(t *testing.T) {
	c := newCluster(t)
	c.pass(time.Minute)
	fakeapi.Add(c.Server, fakeapi.Set("w", 1, 3, onRestart))
	starting(c)
	old := c.Lagging()
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0-2")
	c.settle("w-0")
	if len(c.status().Started) != 1 {
		t.Fatalf("invalid run: %+v", c.status())
	}
	c.cached = old
	c.cached.Deliver(identity.KindLeaderWorkerSet)
	c.awake()
	for range 2 {
		if plan := c.decideGroup("w-0"); len(plan.Actions) != 0 {
			t.Errorf("got %v", spelled(plan))
		}
		c.cached.Deliver(identity.KindStatefulSet)
	}
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0-2")
	if plan := c.decideGroup("w-0"); len(of[action.Annotate](plan)) != 1 {
		t.Errorf("once it is gone: %v", spelled(plan))
	}
}

// Workers beyond the size of a group that starts are scaled back: what becomes of them is
// no failure.
func TestWorkersBeyondTheSizeOfAGroupAreNoFailureInItsStart(t *testing.T) {
	for worker, fails := range map[string]bool{"w-0-2": true, "w-0-3": false} {
		c := running(t, 1, 3, onRestart)
		fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Status.Started = nil })
		surplus := find[*corev1.Pod](c, "w-0-2").DeepCopy()
		surplus.Name, surplus.UID = "w-0-3", "surplus"
		fakeapi.Add(c.Server, surplus)
		fakeapi.Edit(c.Server, "w-0-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })
		fakeapi.Edit(c.Server, worker, crash)
		if failed := len(of[action.Annotate](c.decideGroup("w-0"))) == 1; failed != fails {
			t.Errorf("%s: failed %t", worker, failed)
		}
	}
}

// A set that is made again around its pods takes them as they are.
func TestASetThatIsMadeAgainAroundItsPods(t *testing.T) {
	c := running(t, 1, 3, onRestart)
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0-2")
	free := func(object metav1.Object) { object.SetOwnerReferences(nil) }
	fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { free(sts) })
	for _, revision := range revisions(c) {
		fakeapi.Edit(c.Server, revision.Name, func(r *appsv1.ControllerRevision) { free(r) })
	}
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) {
		set.UID, set.CreationTimestamp, set.Status = "again", metav1.NewTime(c.Now), lwsv1.LeaderWorkerSetStatus{}
	})
	if got := c.recreated("w-0"); len(got) > 0 {
		t.Errorf("%v are recreated for what was before", got)
	}
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0-1")
	if got := c.recreated("w-0"); !slices.Equal(got, []string{"w-0"}) {
		t.Errorf("%v are recreated for what came after", got)
	}
}
