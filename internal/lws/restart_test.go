package lws_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

var onRestart = fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart)

// crash restarts a container of a pod, as the kubelet tells it.
func crash(pod Pod) {
	var before int32
	if all := pod.Status.ContainerStatuses; len(all) > 0 {
		before = all[0].RestartCount
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "worker", RestartCount: before + 1,
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", Message: "out of memory"}},
	}}
}

// TestFailures holds which groups of three are recreated, by failure and policy: in step, and in
// the start of a group whose last worker does not run yet. A worker that is gone in the start
// leaves no evidence. Once a group started, nothing from before counts. The status has the reason,
// and counts every failure but a disruption.
func TestFailures(t *testing.T) {
	replaced := func(c *cluster) {
		gone[Pod]("w-0-2")(c)
		c.Sync(find[StatefulSet](c, "w-0"))
		c.Run(find[Pod](c, "w-0-2"))
	}
	replacedUnseen := func(c *cluster) {
		gone[Pod]("w-0")(c)
		c.Sync(find[StatefulSet](c, "w"))
	}
	evicted := func(pod Pod) { pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted" }
	init := func(pod Pod) {
		crash(pod)
		pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses = pod.Status.ContainerStatuses, nil
	}
	requested := on("w-0", asks)
	const none, restarts, afterStart = lwsv1.NoneRestartPolicy, lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart
	annotated := then(on("w", fakeapi.Annotation(lwsv1.RecreateGroupAfterStartAnnotationKey, "")))
	for name, tt := range map[string]struct {
		fail             step
		inStart          bool
		always, restarts bool // recreated whatever the policy, or by RecreateGroupOnPodRestart
		afterStart       bool // recreated by RecreateGroupAfterStart
		reason           string
		count            int32
	}{
		"a worker restarts":             {on("w-0-2", crash), false, false, true, true, "OOMKilled", 1},
		"an init container restarts":    {on("w-0-2", init), false, false, true, true, "OOMKilled", 1},
		"a leader restarts":             {on("w-0", crash), false, false, true, true, "OOMKilled", 1},
		"a worker is deleted":           {leaving[Pod]("w-0-2"), false, false, true, true, restart.CodePodDeleted, 1},
		"a worker is drained":           {then(on("w-0-2", disrupted), leaving[Pod]("w-0-2")), false, false, true, true, string(corev1.DisruptionTarget), 0},
		"Kueue evicts a worker":         {then(on("w-0-2", terminationTarget), leaving[Pod]("w-0-2")), false, false, true, true, string(restart.TerminationTarget), 0},
		"Kueue evicts a leader":         {then(on("w-0", terminationTarget), leaving[Pod]("w-0")), false, true, true, true, string(restart.TerminationTarget), 0},
		"a drain fails another pod":     {then(on("w-0-1", disrupted), on("w-0-2", crash)), false, false, true, true, "OOMKilled", 0},
		"a worker is gone":              {gone[Pod]("w-0-2"), false, false, true, true, restart.CodePodGone, 1},
		"a worker is replaced":          {replaced, false, false, true, true, restart.CodePodGone, 1},
		"a worker ends":                 {on("w-0-2", evicted), false, false, true, true, "Evicted", 1},
		"a worker is evicted":           {then(on("w-0-2", evicted), on("w-0-2", disrupted)), false, false, true, true, "Evicted", 0},
		"a worker ends, is cleared":     {then(on("w-0-2", evicted), leaving[Pod]("w-0-2")), false, false, true, true, "Evicted", 1},
		"a leader ends":                 {on("w-0", evicted), false, true, true, true, "Evicted", 1},
		"a leader ends, is cleared":     {then(on("w-0", evicted), leaving[Pod]("w-0")), false, true, true, true, "Evicted", 1},
		"a leader is deleted":           {leaving[Pod]("w-0"), false, true, true, true, restart.CodePodDeleted, 1},
		"a leader is drained":           {then(on("w-0", disrupted), leaving[Pod]("w-0")), false, true, true, true, string(corev1.DisruptionTarget), 0},
		"a leader is replaced unseen":   {replacedUnseen, false, true, true, true, restart.CodeLeaderReplaced, 1},
		"a user asks":                   {requested, false, true, true, true, restart.CodeRequested, 0},
		"a user asks beside a failure":  {then(on("w-0-2", crash), requested), false, true, true, true, restart.CodeRequested, 0},
		"in start, a user asks":         {requested, true, true, true, true, restart.CodeRequested, 0},
		"the StatefulSet is gone":       {gone[StatefulSet]("w-0"), false, false, true, true, restart.CodeWorkersetDeleted, 1},
		"in start, a worker restarts":   {on("w-0-1", crash), true, false, true, false, "OOMKilled", 1},
		"in start, a leader restarts":   {on("w-0", crash), true, false, true, false, "OOMKilled", 1},
		"in start, a worker ends":       {on("w-0-1", ends), true, false, true, false, restart.CodePodEnded, 1},
		"in start, a worker is deleted": {leaving[Pod]("w-0-1"), true, false, true, false, restart.CodePodDeleted, 1},
		"in start, a worker is gone":    {gone[Pod]("w-0-1"), true, false, false, false, "", 0},
	} {
		for policy, want := range map[lwsv1.RestartPolicyType]bool{
			none: tt.always, lwsv1.DeprecatedDefaultRestartPolicy: tt.always, restarts: tt.restarts, afterStart: tt.afterStart, "Annotated": tt.afterStart,
		} {
			t.Run(name+"/"+string(policy), func(t *testing.T) {
				happens := nothing
				if policy == "Annotated" {
					policy, happens = restarts, annotated
				}
				c := newCluster(t)
				c.pass(time.Minute)
				fakeapi.Add(c.Server, fakeapi.Set("w", 2, 3, fakeapi.Policy(policy)))
				if happens(c); tt.inStart {
					starting(c)
				} else {
					c.settle()
				}
				before := c.leaders()["w-0"]
				then(tt.fail, (*cluster).decided, settled)(c)
				expect.Equalf(t, want, c.leaders()["w-0"] != before, "recreated")
				if r := c.status().Restarts; want && policy != none && policy != lwsv1.DeprecatedDefaultRestartPolicy &&
					(len(r) != 1 || r[0].Leader != before || r[0].Count != tt.count || len(r[0].Failures) != 1 || r[0].Failures[0].Reason != tt.reason) {
					t.Errorf("counted %+v", r)
				}
				expect.Emptyf(t, c.recreated(), "recreated again: %+v", c.status().Restarts)
			})
		}
	}
}

// asks has a user ask to recreate the group of a leader.
func asks(leader Pod) {
	leader.Annotations = withAnnotation(leader.Annotations, lwsv1.RecreateAnnotationKey, "at noon")
}

// A request ends a wait, exhausts no budget, and recreates one group.
func TestRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		cluster func(testing.TB) *cluster
		before  step
		count   int32
	}{
		"at the limit":   {budget(2, 3, 0), nothing, 0},
		"in a back-off":  {with(2, 3, onRestart), then(failures(1), on("w-0-1", crash), (*cluster).decided), 2},
		"one pod":        {budget(2, 1, 0), nothing, 0},
		"at rest, twice": {with(2, 3, onRestart), then(on("w-0", asks), (*cluster).settle), 0},
	} {
		c := tt.cluster(t)
		tt.before(c)
		leaders := c.leaders()
		then(on("w-0", asks), (*cluster).settle)(c)
		expect.That(t, c.leaders()["w-0"] != leaders["w-0"], "%s: group 0 was not recreated", name)
		expect.Equalf(t, leaders["w-1"], c.leaders()["w-1"], "%s: group 1", name)
		r := c.status().Restarts
		expect.That(t, len(r) == 1 && r[0].Count == tt.count && r[0].Recreations == nil, "%s: counted %+v", name, r)
		expect.Emptyf(t, c.recreated(), "%s: recreated again", name)
	}
	for _, policy := range []lwsv1.RestartPolicyType{lwsv1.NoneRestartPolicy, lwsv1.RecreateGroupOnPodRestart} {
		c := keyed(t, 1, 2, fakeapi.Policy(policy))
		c.lead("w-r-a", keyOf("a"), runs, asks)
		plan := c.decideGroup("w-r-a")
		deletes := slices.ContainsFunc(plan.Actions, func(a action.Action) bool { _, is := a.(action.Delete); return is })
		expect.That(t, deletes, "Hash, %s: %+v", policy, plan)
	}
}

// starting brings group 0 so far that all but its last worker run.
func starting(c *cluster) {
	for range 4 {
		c.reconcileSet()
		c.reconcileGroup("w-0")
		c.sync()
		for _, pod := range fakeapi.All[Pod](c.Objects) {
			if pod.Name != "w-0-2" || pod.DeletionTimestamp != nil {
				c.Run(pod)
			}
		}
	}
}

// A group that is recreated has one event: a warning that names the pod that failed, how and where. Nobody else tells of
// a leader that somebody else deletes.
func TestTheEventOfARecreatedGroup(t *testing.T) {
	reason := func(of corev1.PodConditionType, reason string) func(Pod) {
		return func(pod Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: of, Status: corev1.ConditionTrue, Reason: reason})
		}
	}
	status := func(phase corev1.PodPhase, reason string) func(Pod) {
		return func(pod Pod) { pod.Status.Phase, pod.Status.Reason = phase, reason }
	}
	for name, tt := range map[string]struct {
		becomes func(Pod)
		leaves  bool
		want    []string
	}{
		"a container ran out of memory": {crash, false, []string{"failed", "container worker", "exit code 137", "OOMKilled"}},
		"a drain":                       {reason(corev1.DisruptionTarget, "EvictionByEvictionAPI"), true, []string{"drained", "EvictionByEvictionAPI"}},
		"a preemption":                  {reason(corev1.DisruptionTarget, corev1.PodReasonPreemptionByScheduler), true, []string{"preempted"}},
		"a taint":                       {reason(corev1.DisruptionTarget, "DeletionByTaintManager"), true, []string{"lost its node", "DeletionByTaintManager"}},
		"a node that is gone":           {both(reason(corev1.DisruptionTarget, "DeletionByPodGC"), status(corev1.PodFailed, "")), true, []string{"lost its node"}},
		"a node that is lost":           {status(corev1.PodRunning, "NodeLost"), true, []string{"lost its node"}},
		"pressure on the node":          {both(reason(corev1.DisruptionTarget, corev1.PodReasonTerminationByKubelet), status(corev1.PodFailed, "Evicted")), false, []string{"kubelet"}},
		"a node that shuts down":        {status(corev1.PodFailed, "Terminated"), false, []string{"kubelet"}},
		"another controller":            {reason(corev1.DisruptionTarget, "Own"), true, []string{"was evicted"}},
		"Kueue":                         {reason("TerminationTarget", "StoppedByKueue"), true, []string{"Kueue"}},
		"a user":                        {func(Pod) {}, true, []string{"deleted", restart.CodePodDeleted}},
	} {
		for _, failed := range []string{"w-0-2", "w-0", "w-r-a"} {
			c, leader, role := (*cluster)(nil), "w-0", "Worker "
			if failed == "w-r-a" {
				c, leader, role = keyed(t, 1, 2, onRestart), failed, "Leader "
				c.lead(failed, keyOf("a"), runs)
			} else if c = running(t, 2, 3, onRestart); failed == leader {
				role = "Leader "
			}
			if on(failed, tt.becomes)(c); tt.leaves {
				leaving[Pod](failed)(c)
			}
			var events []action.Event
			for _, a := range c.decideGroup(leader).Actions {
				events = append(events, a.About().Tell.Done...)
			}
			if failed == "w-r-a" && name == "a user" || failed == "w-r-a" && name == "a node that is lost" {
				if len(events) != 0 { // its ReplicaSet may have deleted it
					t.Errorf("%s, %s: %+v", name, failed, events)
				}
				continue
			}
			if len(events) != 1 || !events[0].Warning || events[0].Reason != "RecreateGroup" || events[0].Related.Name != leader {
				t.Errorf("%s, %s: %+v", name, failed, events)
				continue
			}
			for _, part := range append(tt.want, role+failed+" ", "node "+find[Pod](c, failed).Spec.NodeName) {
				expect.Says(t, events[0].Note, part, name, failed)
			}
		}
	}
}

func both(first, second func(Pod)) func(Pod) {
	return func(pod Pod) {
		first(pod)
		second(pod)
	}
}

// decided has the group decide and the set record it.
func (c *cluster) decided() {
	c.reconcileGroup("w-0")
	c.reconcileSet()
}

func disrupted(pod Pod) {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
}

func terminationTarget(pod Pod) {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "TerminationTarget", Status: corev1.ConditionTrue})
}

// A leader that the StatefulSet controller replaces because of its revision is no failure, also if the template
// changes back before the next leader exists. A failure after that counts.
func TestARevertedRolloutIsNoFailure(t *testing.T) {
	for name, replaced := range map[string]step{
		"terminating":  leaving[Pod]("w-3"),
		"gone":         gone[Pod]("w-3"),
		"with workers": then(leaving[Pod]("w-3"), func(c *cluster) { c.reconcileGroup("w-3") }),
	} {
		for policy, back := range map[lwsv1.RestartPolicyType]step{
			lwsv1.RecreateGroupOnPodRestart: user(fakeapi.Image("image:1")), lwsv1.RecreateGroupAfterStart: user(fakeapi.Image("image:1")),
			"Topology": user(without(lwsv1.ExclusiveKeyAnnotationKey)),
		} {
			t.Run(name+"/"+string(policy), func(t *testing.T) {
				change := user(fakeapi.Image("image:2"))
				if policy == "Topology" {
					policy, change = lwsv1.RecreateGroupOnPodRestart, user(fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, "rack"))
				}
				c := running(t, 4, 2, fakeapi.Policy(policy))
				then(node(map[string]string{"rack": "r"}), change, carriedOut)(c)
				c.pass(time.Minute)
				before := find[StatefulSet](c, "w")
				c.Sync(before)
				granted := c.Now
				for range 5 { // until the partition is lowered
					c.reconcileSet()
					c.pass(time.Second)
				}
				if sts := find[StatefulSet](c, "w"); *sts.Spec.UpdateStrategy.RollingUpdate.Partition != 3 {
					t.Fatalf("the partition is %d after %v", *sts.Spec.UpdateStrategy.RollingUpdate.Partition, c.Now.Sub(granted))
				}
				then(replaced, back, carriedOut)(c)
				if c.leaders()["w-3"] != "" {
					c.reconcileGroup("w-3")
				}
				then(carriedOut, settled, after(time.Minute), settled)(c)
				expect.Emptyf(t, c.status().Restarts, "a reverted rollout is counted")
				then(gone[Pod]("w-3"), func(c *cluster) { c.Sync(find[StatefulSet](c, "w")) }, settled)(c)
				r := c.status().Restarts
				expect.That(t, len(r) == 1 && r[0].Count == 1, "the failure after it: %+v", r)
			})
		}
	}
}

// A rollout that is paused replaces nothing more: a leader that vanishes meanwhile failed.
func TestALeaderThatVanishesInAPausedRolloutIsCounted(t *testing.T) {
	c := running(t, 4, 2, onRestart)
	user(fakeapi.Image("image:2"))(c)
	for range 20 {
		if c.reconcileSet(); imagesOf(c)["image:2"] > 0 {
			break
		}
		c.turn()
	}
	then(pause, settled, after(time.Hour), settled)(c)
	then(gone[Pod]("w-0"), func(c *cluster) { c.Sync(find[StatefulSet](c, "w")) }, settled)(c)
	r := c.status().Restarts
	expect.That(t, len(r) == 1 && r[0].Count == 1 && r[0].Index == 0, "got %+v, images %v", r, imagesOf(c))
}

func TestEvidence(t *testing.T) {
	ended := func(name string, exit int32, ago time.Duration) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, RestartCount: 1, LastTerminationState: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: exit, Reason: "Error", FinishedAt: metav1.NewTime(fakeapi.Epoch.Add(-ago))},
		}}
	}
	edited := func(edit func(*corev1.ContainerStateTerminated)) func(Pod) {
		return func(pod Pod) {
			crash(pod)
			edit(pod.Status.ContainerStatuses[0].LastTerminationState.Terminated)
		}
	}
	reason := func(text string) func(Pod) {
		return edited(func(end *corev1.ContainerStateTerminated) { end.Reason = text })
	}
	message := func(text string) func(Pod) {
		return edited(func(end *corev1.ContainerStateTerminated) { end.Message = text })
	}
	// completed is a pod one of whose containers failed once and completed in its second run.
	completed := func(name string, phase corev1.PodPhase, init bool) func(Pod) {
		return func(pod Pod) {
			status := ended(name, 7, time.Hour)
			status.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: metav1.NewTime(fakeapi.Epoch.Add(-time.Second))}
			pod.Status.Phase = phase
			if pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}; init {
				pod.Status.InitContainerStatuses = pod.Status.ContainerStatuses
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "worker", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
			}
			pod.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{ended("debug", 9, 0)}
		}
	}
	const killed = "worker OOMKilled 137 "
	for name, tt := range map[string]struct {
		end  func(Pod)
		want string
	}{
		"the last lines":        {message(strings.Repeat("line\n", 20) + "the last one"), killed + strings.Repeat("line\n", 4) + "the last one"},
		"control characters":    {message("\x1b]0;mine\x07one\ttwo\r\nthree\u009b2J"), killed + "]0;mineone\ttwo\nthree2J"},
		"a reason of two lines": {reason("\x1b[2JBad\r\nWord"), "worker PodRestarted 137 out of memory"},
		"no reason":             {reason("\t\r"), "worker PodRestarted 137 out of memory"},
		"a reason without end":  {reason(strings.Repeat("é", 1<<20)), "worker PodRestarted 137 out of memory"},
		"an init container that completed after it failed": {completed("download", corev1.PodRunning, true), "download Error 7 "},
		"a main container that completed after it failed":  {completed("worker", corev1.PodRunning, false), "worker Error 7 "},
		"a pod that succeeded after it failed":             {completed("worker", corev1.PodSucceeded, false), "worker Completed 0 "},
		"an init container that failed before another completed": {func(pod Pod) {
			completed("download", corev1.PodRunning, true)(pod)
			next := ended("prepare", 0, 0)
			next.State, next.LastTerminationState, next.RestartCount = next.LastTerminationState, corev1.ContainerState{}, 0
			pod.Status.InitContainerStatuses[0].State.Terminated.FinishedAt = metav1.NewTime(fakeapi.Epoch.Add(-30 * time.Minute))
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, next)
		}, "download Error 7 "},
		"a main container that failed before init containers completed again": {func(pod Pod) {
			completed("download", corev1.PodRunning, true)(pod)
			pod.Status.InitContainerStatuses[0].LastTerminationState.Terminated.ExitCode = 0
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{ended("worker", 255, time.Hour/2)}
		}, "worker Error 255 "},
		"a sidecar that ends without a failure": {func(pod Pod) {
			completed("download", corev1.PodRunning, true)(pod)
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{ended("proxy", 0, time.Second)}
		}, "proxy Error 0 "},
		"what ended last": {func(pod Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{ended("model", 1, time.Hour), ended("sidecar", 0, time.Second)}
		}, "sidecar Error 0 "},
		"what failed of those that ended together": {func(pod Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{ended("model", 1, 3*time.Second), ended("sidecar", 0, time.Second)}
		}, "model Error 1 "},
	} {
		c := running(t, 1, 2, onRestart)
		on("w-0-1", tt.end)(c)
		c.decided()
		f := c.status().Restarts[0].Failures[0]
		got := fmt.Sprintf("%s %s %d %s", f.Container, f.Reason, *f.ExitCode, f.Message)
		expect.That(t, got == tt.want && f.Pod == "w-0-1" && f.Node == fakeapi.Node,
			"%s: got %.99q, want %.99q; %+v", name, got, tt.want, f)
	}
}

// TestFailedContainers holds which containers are kept with the failure of a group, and in which
// order: the first to end comes first.
func TestFailedContainers(t *testing.T) {
	ends := func(name string, exit int32, ago time.Duration, message string) step {
		return func(c *cluster) {
			on(name, func(pod Pod) {
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "worker", RestartCount: 1, LastTerminationState: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{ExitCode: exit, Reason: "Error", Message: message, FinishedAt: metav1.NewTime(c.Now.Add(-ago))},
				}}}
			})(c)
		}
	}
	stopped := on("w-0-2", func(pod Pod) {
		status := &pod.Status.ContainerStatuses[0]
		status.State, status.LastTerminationState, status.RestartCount = status.LastTerminationState, corev1.ContainerState{}, 0
	})
	crowd := func(c *cluster) {
		for worker := 1; worker < 12; worker++ {
			ends(fmt.Sprintf("w-0-%d", worker), 1, time.Duration(20-worker)*time.Second, "")(c)
		}
	}
	for name, tt := range map[string]struct {
		fail step
		want string
	}{
		"the first to end":       {then(ends("w-0", 1, time.Second, "peer lost"), ends("w-0-2", 139, 3*time.Second, "segfault")), "w-0-2 139 segfault, w-0 1 peer lost"},
		"long before":            {then(ends("w-0", 1, time.Second, "now"), ends("w-0-2", 1, time.Hour, "long before")), "w-0 1 now"},
		"done, and failed":       {then(ends("w-0-1", 0, 2*time.Second, "done"), ends("w-0-2", 3, time.Second, "lost")), "w-0-1 0 done, w-0-2 3 lost"},
		"a pod that is deleted":  {then(ends("w-0-1", 1, time.Second, "peer lost"), ends("w-0-2", 143, 0, "stopped"), stopped, leaving[Pod]("w-0-2")), "w-0-1 1 peer lost"},
		"a pod that is gone":     {gone[Pod]("w-0-2"), ""},
		"the end of a long text": {ends("w-0-2", 1, 0, strings.Repeat("x", 4000)+"y"), "w-0-2 1 " + strings.Repeat("x", 1023) + "y"},
		"control characters":     {ends("w-0-2", 1, 0, "\x1b]0;mine\x07one\ntwo"), "w-0-2 1 ]0;mineone\ntwo"},
		"the first of very many": {crowd, "w-0-1 1 , w-0-2 1 , w-0-3 1 , w-0-4 1 , w-0-5 1 , w-0-6 1 , w-0-7 1 , w-0-8 1 "},
	} {
		c := running(t, 1, 12, onRestart)
		tt.fail(c)
		c.decided()
		var got []string
		for _, f := range c.status().Restarts[0].Containers {
			got = append(got, fmt.Sprintf("%s %d %s", f.Pod, f.ExitCode, f.Message))
		}
		expect.Equalf(t, tt.want, strings.Join(got, ", "), "%s", name)
		settled(c)
		kept := c.status().Restarts[0].Containers
		expect.Equalf(t, len(got), len(kept), "%s: once the pods are gone, %+v", name, kept)
	}
}

// TestWhatIsForgiven holds after which changes groups are taken as they are: what failed
// before recreates nothing, what fails later does.
func TestWhatIsForgiven(t *testing.T) {
	crashed := then(on("w-0-1", crash), on("w-1", crash))
	unrecorded := on("w", func(set Set) { set.Status.Started, set.Status.RestartsSince = nil, nil })
	decided := func(c *cluster) {
		for _, name := range []string{"w-0", "w-1", "w-2"} {
			plan := c.decideGroup(name)
			plan.Actions = plan.Actions[:min(1, len(plan.Actions))]
			c.do(plan)
		}
		carriedOut(c)
	}
	none, again := user(fakeapi.Policy(lwsv1.NoneRestartPolicy)), user(onRestart)
	restarted := func(c *cluster) { c.recreated() }
	for name, before := range map[string]step{
		"taken over from another operator": then(crashed, unrecorded),
		"taken over without a leader StatefulSet": then(crashed, orphaned[Pod]("w-0"), orphaned[Pod]("w-1"), orphaned[Pod]("w-2"),
			gone[StatefulSet]("w"), unrecorded),
		"a set that is created again around its pods": then(gone[Pod]("w-0-1"), orphaned[StatefulSet]("w"),
			func(c *cluster) { orphaned[Revision](revision(c).Name)(c) }, on("w", func(set Set) {
				set.UID, set.CreationTimestamp, set.Status = "again", metav1.NewTime(fakeapi.Epoch.Add(time.Hour)), lwsv1.LeaderWorkerSetStatus{}
			})),
		"the policy was None":               then(pause, none, crashed, restarted, again),
		"decided, then the policy was None": then(pause, crashed, decided, none, restarted, again),
	} {
		c := running(t, 3, 2, onRestart)
		before(c)
		c.awake()
		expect.Emptyf(t, c.recreated(), "%s: recreated for what was before", name)
		gone[Pod]("w-1-1")(c)
		expect.Equalf(t, []string{"w-1"}, c.recreated(), "%s: then", name)
	}
}

// A group at rest costs no read of its revision and no live read.
func TestNothingIsReadAtRest(t *testing.T) {
	c := running(t, 2, 2, onRestart)
	for _, fails := range []bool{false, true} {
		w, _ := c.groupPlan("w-0")
		expect.Equalf(t, fails, w.Sought, "fails %t: revision", fails)
		expect.Equalf(t, fails, w.Live, "fails %t: live", fails)
		on("w-0-1", crash)(c)
	}
}

// A group of one pod that fails costs a write and a deletion. No live read is before them: the write names the version of the
// leader that was judged, and no pod is deleted once that has changed.
func TestAGroupOfOnePodIsNotReadAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		edit    edit
		readsIt bool
	}{
		"unlimited":             {func(Set) {}, false},
		"with maxGroupRestarts": {func(set Set) { set.Spec.LeaderWorkerTemplate.MaxGroupRestarts = new(int32(3)) }, true},
	} {
		c := running(t, 2, 1, onRestart, tt.edit)
		on("w-0", crash)(c)
		w, plan := c.groupPlan("w-0")
		expect.That(t, w.Live == tt.readsIt && len(plan.Actions) > 0,
			"%s: live %t, and decided %s", name, w.Live, short(plan))
		on("w-0", func(pod Pod) { pod.Labels["changed"] = "since" })(c)
		_, err := c.actor.Do(ctx, plan.Actions[0])
		expect.That(t, errors.Is(err, apply.ErrStale), "%s: the decision of a former version: %v", name, err)
	}
}

// largeSet is a set of many groups of eight pods, all of which run. Once they failed, the decision on
// each has as much evidence as there can be.
func largeSet(many int, incarnation string, status lwsv1.LeaderWorkerSetStatus, failed bool) lws.SetSnapshot {
	set, now := fakeapi.Set("w", int32(many), 8, onRestart), metav1.NewTime(fakeapi.Epoch.Add(time.Hour))
	set.UID, set.Status = "set", status
	world := lws.SetSnapshot{Now: now.Time, Set: set}
	failure := lwsv1.PodFailure{
		Pod: strings.Repeat("p", 63), Container: strings.Repeat("c", 63), ExitCode: fakeapi.Ptr[int32](137), Reason: "OOMKilled",
		Message: strings.Repeat("\"", 256), Node: strings.Repeat("n", 253), At: now,
	}
	containers := slices.Repeat([]lwsv1.ContainerFailure{{
		Pod: failure.Pod, Name: failure.Container, ExitCode: 137, Reason: "OOMKilled", At: now,
		Message: strings.Repeat("\"", 1<<10), Log: strings.Repeat("\"", restart.LogBytes),
	}}, 8)
	outspoken := func(group int) int { // others have none: their text would be decoded again and again
		if group < 30 {
			return len(containers)
		}
		return 0
	}
	runs := func(pod *corev1.Pod) *corev1.Pod {
		pod.UID = types.UID(pod.Name + incarnation + strings.Repeat("x", 28))
		pod.Status.Phase = corev1.PodRunning
		return pod
	}
	for i := range many {
		leader := runs(fakeapi.Pod(identity.LeaderName("w", i), "w", 0))
		leader.Labels[lwsv1.RevisionKey] = "5f8f8c9d4b"
		if failed {
			decision := &restart.Decision{Leader: leader.UID, Count: 1, At: now, Failure: restart.Failure{PodFailure: failure, Containers: containers[:outspoken(i)]}}
			leader.Annotations = map[string]string{restart.AnnotationKey: decision.Annotation()}
		}
		g := lws.Group{Identity: workload.Of(leader), Leader: leader}
		for worker := 1; worker < 8; worker++ {
			g.Pods.Owned = append(g.Pods.Owned, runs(fakeapi.Pod(identity.LeaderName(leader.Name, worker), "w", worker)))
		}
		world.Groups = append(world.Groups, g)
		world.Leaders.Owned = append(world.Leaders.Owned, leader)
	}
	return world
}

// An API server stores no object of more than 1.5 MiB. The largest of sets leaves room in
// its status when all of its groups fail at once, again and again.
func TestAStatusOfManyRestartsFitsIntoStorage(t *testing.T) {
	const many, most = 5000, 1200 << 10
	since := metav1.NewTime(fakeapi.Epoch)
	status := lwsv1.LeaderWorkerSetStatus{RestartsSince: &since}
	for _, incarnation := range []string{"a", "b", "c", "d"} {
		for _, failed := range []bool{false, true} {
			status = written(t, lwsset.Decide(largeSet(many, incarnation, status, failed)))
		}
		encoded := expect.Value(json.Marshal(status))(t)
		detailed, withContainers := 0, 0
		for i, r := range status.Restarts {
			expect.Must(t, i == 0 || status.Restarts[i-1].Index < r.Index, "out of order at %d", i)
			if len(r.Failures) > 0 {
				detailed++
			}
			if len(r.Containers) > 0 {
				withContainers++
			}
		}
		if len(encoded) > most || len(status.Restarts) != 2500 || detailed != 64 || withContainers < 3 || withContainers > 15 {
			t.Errorf("%d bytes, %d started, %d restarts, %d with evidence, %d with containers", len(encoded), len(status.Started), len(status.Restarts), detailed, withContainers)
		}
		again := statusWrites(lwsset.Decide(largeSet(many, incarnation, status, true)))
		expect.Emptyf(t, again, "a status that is full is written again")
	}
}
