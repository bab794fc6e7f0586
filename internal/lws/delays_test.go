package lws_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/backoff"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// scheduled has the condition of a pod for which a scheduler found no node.
func scheduled(c *cluster, reason string) func(Pod) {
	return func(pod Pod) {
		pod.Spec.NodeName, pod.Status.Phase = "", corev1.PodPending
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.NewTime(c.Now), Message: "0/3 nodes",
		}}
	}
}

// unscheduledPods have no node from now on.
func unscheduledPods(reason string, names ...string) step {
	return func(c *cluster) {
		for _, name := range names {
			on(name, scheduled(c, reason))(c)
		}
	}
}

// behind is a pod that a quota of another holds back.
func behind(pod Pod) {
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}}
}

// pulls is a pod with a container that the kubelet cannot start.
func pulls(reason string, inits bool) func(Pod) {
	return func(pod Pod) {
		statuses := []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "registry says"}}}}
		pod.Spec.NodeName, pod.Status.Phase, pod.Status.Conditions = fakeapi.Node, corev1.PodPending, nil
		if pod.Status.ContainerStatuses = statuses; inits {
			pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses = nil, statuses
		}
	}
}

// down has the StatefulSet of a group see its workers go.
func down(sts string) step { return on(sts, func(s StatefulSet) { s.Status.AvailableReplicas = 0 }) }

// touched is a StatefulSet that lacks pods, and still does after it was touched.
func touched(lacks step) step {
	decide := func(c *cluster) { c.reconcileSet(); c.reconcileGroup("w-0") }
	return then(lacks, decide, after(11*time.Second), decide, after(11*time.Second))
}

func isTied(set Set) { fakeapi.Annotation("lockstep.dev/gang-scheduler", "volcano")(set) }

// TestASetSaysWhatItsGroupsWaitFor: the reason, the number of groups and one object, and no words of others.
func TestASetSaysWhatItsGroupsWaitFor(t *testing.T) {
	const late = 15 * time.Second
	for name, tt := range map[string]struct {
		of      func(testing.TB) *cluster
		happens step
		want    string // of Progressing
	}{
		"a leader without a node":    {with(3, 2), unscheduledPods("Unschedulable", "w-1"), "True Unschedulable: 1 w-1 w"},
		"a worker without a node":    {with(3, 2), then(unscheduledPods("Unschedulable", "w-2-1"), down("w-2")), "True Unschedulable: 1 w-2-1 w"},
		"two groups":                 {with(3, 1), unscheduledPods("Unschedulable", "w-1", "w-2"), "True Unschedulable: 2 w-1 w"},
		"a quota of another":         {with(3, 1), then(unscheduledPods("SchedulingGated", "w-1"), on("w-1", behind)), "True SchedulingGated: 1 w-1 w"},
		"a gate that was lifted":     {with(3, 1), unscheduledPods("SchedulingGated", "w-1"), isProgressing},
		"a gate of a gang, lifted":   {with(2, 1, isTied), unscheduledPods("SchedulingGated", "w-1"), isProgressing},
		"an image":                   {with(3, 1), on("w-1", pulls("ErrImagePull", false)), "True ImagePullFailed: 1 w-1 w"},
		"the back-off of an image":   {with(3, 1), on("w-1", pulls("ImagePullBackOff", false)), "True ImagePullFailed: 1 w-1 w"},
		"the image of an init":       {with(3, 1), on("w-1", pulls("ErrImagePull", true)), "True ImagePullFailed: 1 w-1 w"},
		"the image of a worker":      {with(3, 2), then(on("w-1-1", pulls("InvalidImageName", false)), down("w-1")), "True ImagePullFailed: 1 w-1-1 w"},
		"a container that starts":    {with(3, 1), on("w-1", pulls("ContainerCreating", false)), isProgressing},
		"a container that crashes":   {with(3, 1), on("w-1", pulls("CrashLoopBackOff", false)), isProgressing},
		"leaders are not created":    {with(3, 1), touched(lacks("w", "w-1", "w-2")), "True FailedCreate: 2 w w"},
		"workers are not created":    {with(2, 3), touched(then(lacks("w-0", "w-0-1", "w-0-2"), down("w-0"))), "True FailedCreate: 1 w-0 w"},
		"one of both":                {with(3, 1), then(unscheduledPods("Unschedulable", "w-1"), on("w-2", pulls("ErrImagePull", false))), "True Unschedulable: 1 w-1 w"},
		"a gang":                     {with(2, 2, isTied), unscheduledPods("Unschedulable", "w-1"), "True GangUnschedulable: 1 w-1 w"},
		"all groups are ready":       {with(2, 2), nothing, wasProgressing},
		"a rollout without room":     {with(2, 1), then(user(fakeapi.Image("image:2"), replicas(3)), carriedOut, (*cluster).turn, unscheduledPods("Unschedulable", "w-2")), "True Unschedulable: 1 w-2 w"},
		"a foreign pod has the name": {with(3, 1), then(occupied("w-1"), unscheduledPods("Unschedulable", "w-1")), isProgressing},
	} {
		t.Run(name, func(t *testing.T) {
			c := tt.of(t)
			c.pass(time.Minute)
			tt.happens(c)
			c.pass(late)
			set := told(c, nil)
			got := brief(set.Status)[progressing]
			expect.Must(t, got == tt.want, "got %q, want %q", got, tt.want)
			for _, said := range set.Status.Conditions {
				expect.That(t, !strings.Contains(said.Message, "nodes") && !strings.Contains(said.Message, "registry"),
					"words of others: %+v", said)
			}
			checkForTools(t, set)
			if _, found := waitFor(c.decideSet(), condition(set.Status, progressing).Reason); !found && tt.want != isProgressing && !strings.HasPrefix(tt.want, "False") {
				t.Errorf("the plan waits for nothing: %v", c.decideSet().Waits)
			}
		})
	}
}

// Most pods have no node for a moment: that is no write. The set is read again when it would be one.
func TestAMomentWithoutANodeIsNotTold(t *testing.T) {
	c := running(t, 2, 1)
	c.pass(time.Minute)
	unscheduledPods("Unschedulable", "w-1")(c)
	plan := c.decideSet()
	expect.Equal(t, isProgressing, brief(written(t, plan))[progressing])
	if wait, found := waitFor(plan, lws.CodeUnschedulable); !found || wait.Until != c.Now.Add(lws.DelayAfter) {
		t.Errorf("waits %+v", plan.Waits)
	}
}

// TestADelayIsWrittenOnce: pods that get nodes one by one, and pulls that fail now and then, are no writes.
func TestADelayIsWrittenOnce(t *testing.T) {
	c := running(t, 4, 1)
	c.pass(time.Minute)
	unscheduledPods("Unschedulable", "w-1", "w-2", "w-3")(c)
	c.reconcileSet()
	c.pass(time.Minute)
	plan := c.decideSet()
	expect.Must(t, len(statusWrites(plan)) == 1 && len(notes(oneStatus(t, plan))) == 0,
		"got %v", spelled(plan))
	c.do(plan)
	for _, happens := range []step{
		on("w-1", pulls("ErrImagePull", false)), on("w-1", pulls("ImagePullBackOff", false)), on("w-2", pulls("ErrImagePull", false)), (*cluster).awake,
	} {
		happens(c)
		c.pass(time.Minute)
		expect.Emptyf(t, spelled(c.decideSet()), "written again")
	}
	on("w-3", pulls("ErrImagePull", false))(c)
	expect.Equalf(t, "True ImagePullFailed: 3 w-1 w", brief(written(t, c.decideSet()))[progressing], "another reason")
}

// The number of a delay is written again with each spec that the operator observes.
func TestADelayCountsTheGroupsOfTheSpec(t *testing.T) {
	c := running(t, 3, 1)
	then(touched(lacks("w", "w-1", "w-2")), carriedOut, user(replicas(10)))(c)
	for range 3 { // the StatefulSet still creates none
		c.reconcileSet()
		on("w", func(sts StatefulSet) { sts.Status.ObservedGeneration = sts.Generation })(c)
		c.pass(time.Second)
	}
	expect.Equal(t, "True FailedCreate: 9 w w", brief(c.status())[progressing])
}

// A group that waits for a node does not hide that a rollout begins.
func TestADelayHidesNoRollout(t *testing.T) {
	c := running(t, 3, 1)
	then(after(time.Minute), unscheduledPods("Unschedulable", "w-1"), carriedOut, after(time.Minute), carriedOut)(c)
	user(fakeapi.Image("image:2"))(c)
	var told []string
	for range 5 {
		plan := c.decideSet()
		for _, write := range statusWrites(plan) {
			told = append(told, notes(write)...)
		}
		c.do(plan)
		c.pass(time.Second)
	}
	if !slices.ContainsFunc(told, func(note string) bool { return strings.HasPrefix(note, "GroupsUpdating/Update") }) {
		t.Errorf("told %v", told)
	}
}

// A quota that refuses the leaders of a set with keys left its plan empty.
func TestAQuotaThatRefusesLeadersWithKeysIsTold(t *testing.T) {
	c := keyed(t, 2, 2)
	fakeapi.Edit(c.Server, "w", func(d Deployment) {
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "exceeded quota"}}
	})
	plan := c.decideSet()
	expect.Equal(t, "True FailedCreate: 2 w w", brief(written(t, plan))[progressing])
	if _, found := waitFor(plan, lws.CodeFailedCreate); !found {
		t.Errorf("waits %v", plan.Waits)
	}
}

// TestAvailableIsWhatItSays: True when every wanted group is ready, and False for the reason that it has.
func TestAvailableIsWhatItSays(t *testing.T) {
	rolled := user(fakeapi.Image("image:2"))
	surge := func(set Set) {
		rollingOf(set).MaxUnavailable, rollingOf(set).MaxSurge = intstr.FromInt32(0), intstr.FromInt32(1)
	}
	brokenSurge := then(user(fakeapi.Image("image:2"), surge), func(c *cluster) {
		for fakeapi.Find[Pod](c.Server, "w-2") == nil {
			c.reconcileSet()
			c.turn()
		}
	}, on("w-2", unready))
	for name, tt := range map[string]struct {
		of      func(testing.TB) *cluster
		happens step
		want    string
		ready   verdict
	}{
		"paused at rest":              {with(2, 2), pause, isAvailable, current},
		"paused, a change waits":      {with(2, 2), then(pause, rolled, settled), isAvailable, inProgress},
		"paused, a group is down":     {with(2, 2), then(pause, rolled, settled, on("w-1", unready)), wasAvailable, inProgress},
		"a rollout is done":           {with(2, 1), then(rolled, settled), isAvailable, current},
		"down after a rollout":        {with(2, 1), then(rolled, settled, on("w-1", unready)), wasAvailable, inProgress},
		"a rollout begins":            {with(2, 2), rolled, wasAvailable, inProgress},
		"paused, a broken surge":      {with(2, 1), then(brokenSurge, pause), isAvailable, inProgress},
		"a surge group at rest":       {with(3, 1), then(user(replicas(2)), on("w-2", unready)), isAvailable, current},
		"a group is down":             {with(2, 1), on("w-1", unready), wasAvailable, inProgress},
		"paused, without a Service":   {with(2, 2), then(pause, rolled, settled, on("w", func(s Service) { s.Spec.ClusterIP = "10.0.0.1" })), "False " + lws.CodeNotHeadless, failed},
		"paused, the last one scaled": {with(2, 1), then(pause, user(replicas(3))), wasAvailable, inProgress},
	} {
		t.Run(name, func(t *testing.T) {
			c := tt.of(t)
			tt.happens(c)
			c.pass(time.Minute)
			set := told(c, nil)
			got := condition(set.Status, available)
			expect.Equal(t, tt.want, string(got.Status)+" "+got.Reason)
			expect.Equal(t, tt.ready, kstatus(set.Status, set.Generation))
			checkForTools(t, set)
		})
	}
}

// TestGroupsThatCannotFindEachOtherAreNotAvailable: a Service of the name that does not make leaders known.
func TestGroupsThatCannotFindEachOtherAreNotAvailable(t *testing.T) {
	address := func(s Service) { s.Spec.ClusterIP = "10.0.0.1" }
	elsewhere := func(s Service) { s.Spec.Selector = map[string]string{"app": "another"} }
	bare := func(s Service) { s.Spec.Selector = nil }
	const found = isAvailable
	const taken = "False " + lws.CodeNameConflict
	unique := func(n, size int32) func(testing.TB) *cluster { return with(n, size, fakeapi.UniquePerReplica) }
	labelled := func(n, size int32) func(testing.TB) *cluster {
		return with(n, size, func(set Set) {
			set.Spec.LeaderWorkerTemplate.WorkerTemplate.Labels = map[string]string{"app": "llama"}
		})
	}
	for name, tt := range map[string]struct {
		of      func(testing.TB) *cluster
		service string
		change  func(Service)
		foreign bool
		want    string
	}{
		"a foreign one with an address":           {with(2, 2), "w", address, true, taken},
		"an ExternalName":                         {with(2, 2), "w", func(s Service) { s.Spec.ClusterIP, s.Spec.Type = "", corev1.ServiceTypeExternalName }, true, taken},
		"a foreign headless one for others":       {with(2, 2), "w", elsewhere, true, taken},
		"a foreign headless one without selector": {with(2, 2), "w", bare, true, taken},
		"a foreign headless one for the leaders":  {with(2, 2), "w", func(Service) {}, true, found},
		"a foreign headless one by own labels":    {labelled(2, 2), "w", func(s Service) { s.Spec.ClusterIP, s.Spec.Selector = "None", map[string]string{"app": "llama"} }, true, found},
		"one of the set with an address":          {with(2, 2), "w", address, false, "False " + lws.CodeNotHeadless},
		"groups of one":                           {with(2, 1), "w", address, true, found},
		"one Service per group, the shared name":  {unique(2, 2), "w", address, true, found},
		"one Service per group":                   {unique(2, 2), "w-1", address, true, taken},
		"one Service per group, of the set":       {unique(2, 2), "w-1", address, false, "False " + lws.CodeNotHeadless},
		"one Service per group of one":            {unique(2, 1), "w-1", address, true, found},
	} {
		t.Run(name, func(t *testing.T) {
			c := tt.of(t)
			if fakeapi.Find[Service](c.Server, tt.service) == nil {
				fakeapi.Add(c.Server, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: tt.service}})
			}
			on(tt.service, tt.change)(c)
			if tt.foreign {
				foreign[Service](tt.service)(c)
			}
			c.pass(time.Minute)
			set := told(c, nil)
			got := condition(set.Status, available)
			is := string(got.Status) + " " + got.Reason
			expect.Must(t, is == tt.want, "got %q, want %q: %+v", is, tt.want, set.Status.Conditions)
			isReady := condition(set.Status, ready)
			if tt.want != found && (kstatus(set.Status, set.Generation) != failed || !strings.Contains(isReady.Message, "service "+tt.service)) {
				t.Errorf("nothing says why: %+v", isReady)
			}
			checkForTools(t, set)
		})
	}
}

// TestAConditionAtRestSaysSo: no condition that is False repeats what it said when it was True, and none has the
// reason None.
func TestAConditionAtRestSaysSo(t *testing.T) {
	for name, state := range states {
		c := state.of(t)
		state.happens(c)
		c.pass(time.Minute)
		whileTrue := map[string]string{}
		for _, set := range []Set{told(c, state.seen), func() Set { carriedOut(c); c.pass(time.Minute); c.reconcileSet(); return find[Set](c, "w") }()} {
			for _, said := range set.Status.Conditions {
				switch {
				case said.Status == metav1.ConditionTrue:
					whileTrue[said.Type] = said.Message
				case said.Message == whileTrue[said.Type], said.Reason == "None", said.Message == "", said.Message == "Replicas are progressing" && said.Type == progressing:
					t.Errorf("%s: %+v", name, said)
				}
			}
		}
	}
}

// fail lets group 0 fail once more, and returns for how long its restart waits.
func fail(c *cluster, end step) time.Duration {
	c.t.Helper()
	end(c)
	at := c.Now
	c.decided()
	r := c.status().Restarts[0]
	if r.Leader != c.leaders()["w-0"] {
		c.t.Fatalf("the failure is not in the status: %+v", r)
	}
	wait := r.DueAt.Sub(at)
	if wait > 0 {
		c.heldBack(r)
	}
	c.recreated()
	return wait.Truncate(5 * time.Second)
}

// heldBack checks that a group stays as it is until it is due, that the status says so,
// and that a new process finds the same time.
func (c *cluster) heldBack(r lwsv1.GroupRestarts) {
	c.t.Helper()
	plan := c.decideGroup("w-0")
	w, waits := waitFor(plan, lws.CodeBackoff)
	told := condition(c.status(), lwsset.ConditionBackoff)
	if !waits || !w.Until.Equal(r.DueAt.Time) || len(plan.Actions) != 0 || told.Status != metav1.ConditionTrue ||
		!strings.Contains(told.Message, r.DueAt.UTC().Format(time.RFC3339)) {
		c.t.Fatalf("not held back: %s %+v; reported %+v", short(plan), plan.Waits, told)
	}
	c.awake()
	for _, before := range []time.Duration{time.Second, 0} {
		c.Now = r.DueAt.Add(-before)
		if plan := c.decideGroup("w-0"); (len(plan.Actions) > 0) != (before == 0) {
			c.t.Fatalf("%s before it is due: %v", before, spelled(plan))
		}
	}
}

// The ways in which the only group fails again and again.
var (
	crashes  = on("w-0-1", crash)
	vanishes = gone[Pod]("w-0-1")
	deleted  = leaving[Pod]("w-0-1")
	drained  = then(on("w-0-1", disrupted), deleted)
)

// TestBackoff holds how long restarts wait: the first does not, those that follow do,
// whatever caused them, but for disruptions. A new template starts the count anew, and the evidence
// stays.
func TestBackoff(t *testing.T) {
	for name, tt := range map[string]struct {
		value string
		ends  []step
		want  []time.Duration
	}{
		"default":            {"", []step{crashes}, []time.Duration{0, 10, 20, 40, 80, 160, 300, 300}},
		"whatever the cause": {"", []step{deleted, vanishes, crashes}, []time.Duration{0, 10, 20}},
		"off":                {"off", []step{crashes}, []time.Duration{0, 0, 0, 0}},
		"as given":           {"first=30s,max=1m", []step{deleted}, []time.Duration{0, 30, 60, 60}},
		"a new template":     {"", []step{crashes, crashes, then(user(fakeapi.Image("image:2")), settled, crashes), crashes}, []time.Duration{0, 10, 0, 10}},
		"drained":            {"", []step{drained, drained, crashes, drained, crashes}, []time.Duration{0, 0, 0, 0, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			c := running(t, 1, 2, onRestart)
			if tt.value != "" {
				user(fakeapi.Annotation(backoff.AnnotationKey, tt.value))(c)
			}
			var got []time.Duration
			for i := range tt.want {
				got = append(got, fail(c, tt.ends[i%len(tt.ends)])/time.Second)
			}
			expect.Equalf(t, tt.want, got, "seconds")
			if told := condition(c.status(), lwsset.ConditionBackoff); told.Status == metav1.ConditionTrue {
				t.Errorf("still reported: %+v", told)
			}
			c.pass(11 * time.Minute)
			wait := fail(c, crashes)
			r := c.status().Restarts[0]
			expect.That(t, wait == 0 && r.Count == 1 && len(r.Failures) == 3, "after ten minutes it waits %s: %+v", wait, r)
		})
	}
}

// waiting lets group 0 fail for the third time in a row, and wait.
func waiting(t *testing.T) (*cluster, lwsv1.GroupRestarts) {
	t.Helper()
	c := running(t, 1, 2, onRestart)
	fail(c, crashes)
	fail(c, crashes)
	crashes(c)
	c.decided()
	r := c.status().Restarts[0]
	wait := r.DueAt.Sub(c.Now)
	expect.Must(t, wait >= 20*time.Second, "invalid run: it waits %s", wait)
	return c, r
}

func TestAShorterBackoffHoldsForGroupsThatWait(t *testing.T) {
	for value, want := range map[string]time.Duration{"off": 0, "first=2s": 5 * time.Second, "first=1m": 121 * time.Second} {
		c, r := waiting(t)
		then(user(fakeapi.Annotation(backoff.AnnotationKey, value)), after(10*time.Second), carriedOut)(c)
		if got := c.status().Restarts[0].DueAt.Sub(r.FailedAt.Time); got != want || len(c.decideSet().Actions) != 0 {
			t.Errorf("%s: it waits %s, want %s; then %v", value, got, want, spelled(c.decideSet()))
		}
		expect.Equalf(t, want < 10*time.Second, len(c.decideGroup("w-0").Actions) > 0, "%s: it is recreated", value)
	}
}

// A group waits no longer without its decision, which an earlier version did not write, nor under
// None, which holds at once, also while the rollout that it asks for is paused.
func TestWhatEndsAWait(t *testing.T) {
	for name, happens := range map[string]step{
		"no decision": on("w-0", func(pod Pod) { delete(pod.Annotations, restart.AnnotationKey) }),
		"None":        then(pause, user(fakeapi.Policy(lwsv1.NoneRestartPolicy)), carriedOut, after(10*time.Second)),
	} {
		c, _ := waiting(t)
		then(happens, carriedOut)(c)
		if told := condition(c.status(), lwsset.ConditionBackoff); told.Status != metav1.ConditionFalse || c.status().ReadyReplicas != 1 {
			t.Errorf("%s: reported %+v, %d groups are ready", name, told, c.status().ReadyReplicas)
		}
	}
}
