package lws_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsgroup "lockstep.dev/lockstep/internal/lws/group"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// rewritten is a leader StatefulSet that a webhook rewrote as it was applied. The annotation
// says which StatefulSet was applied, and its generation after that.
func rewritten(uid string, generation int64) step {
	return on("w", func(sts StatefulSet) {
		if uid == "" {
			uid = string(sts.UID)
		}
		sts.Annotations[lws.AppliedAnnotationKey] += fmt.Sprintf(".%d.%s", sts.Generation+generation, uid)
		sts.Spec.Template.Spec.Containers[0].Image = "rewritten"
	})
}

func TestDecisionsAboutASet(t *testing.T) {
	noted := with(1, 1, claims, fakeapi.Annotation("note", "x"))
	taken := func(name string) step { return then(gone[Pod]("w-0", "w-1", "w-2", "w-3"), occupied(name)) }
	arrived := func(leaders int32) step {
		return on("w", func(sts StatefulSet) { sts.Status.Replicas = leaders })
	}
	unrecorded := then(after(time.Minute), arrived(1), carriedOut, on("w", func(set Set) { set.Status.Started = set.Status.Started[:2] }))
	again := func(t testing.TB) *cluster {
		c := createdAgain(t, 1, 2)
		c.decideSet()
		return c
	}
	const applies, status = "apply statefulset w", "status leaderworkerset w"
	checkDecisions(t, []decision{
		{"in step", noted, nothing, "", ""},
		{"a default that a definition fills in", with(2, 2, onRestart), on("w", byDefault), "", ""},
		{"others' labels and annotations", noted, on("w", func(sts StatefulSet) {
			metav1.SetMetaDataLabel(&sts.ObjectMeta, "other", "x")
			metav1.SetMetaDataAnnotation(&sts.ObjectMeta, "other", "x")
		}), "", ""},
		{"a template edited by hand", noted, on("w", func(sts StatefulSet) {
			sts.Generation++
			sts.Spec.Template.Spec.Containers[0].Image = "hand"
		}), "", applies},
		{"scaled by hand", noted, on("w", func(sts StatefulSet) { sts.Generation++; sts.Spec.Replicas = fakeapi.Ptr[int32](7) }), "", applies},
		{"an annotation that goes", noted, user(without("note")), "", applies},
		{"claims that the set would make otherwise today", noted, on("w", func(sts StatefulSet) { sts.Spec.VolumeClaimTemplates = nil }), "", ""},
		{"claims that a webhook rewrote", with(1, 2, fakeapi.Volumes(retainClaims, retainClaims)), on("w", func(sts StatefulSet) {
			sts.Spec.VolumeClaimTemplates[0].Spec.StorageClassName = fakeapi.Ptr("fast")
		}), "", ""},
		// A rollout goes by how many groups were wanted when its StatefulSet was last written.
		{"another number of wanted groups", noted, on("w", func(sts StatefulSet) { sts.Annotations[lwsv1.ReplicasAnnotationKey] = "99" }), "", applies},
		{"rewritten by a webhook", with(1, 1), rewritten("", 0), "", ""},
		{"rewritten, of another UID", with(1, 1), rewritten("former", 0), "", applies},
		{"rewritten, changed since", with(1, 1), rewritten("", -1), "", applies},
		{"rewritten, by an apply that changed nothing", with(1, 1), rewritten("", 1), "", applies},
		{"a revision stored by a version that wrote null timestamps", with(1, 2, onRestart), then(func(c *cluster) { atKey(c, olderData) }, after(time.Minute)), "", applies + ", " + status},
		{"a lost revision", with(1, 2, onRestart), then(withoutRevision, after(time.Minute)), "", "create controllerrevision w-7949b6477d-1"},
		{"orphaned workers of their leader's revision", with(1, 3), orphaned[StatefulSet]("w-0"), "", status},
		{"orphaned workers of another revision", with(1, 3), then(orphaned[StatefulSet]("w-0"), on("w-0", func(sts StatefulSet) {
			sts.Labels[lwsv1.RevisionKey] = "older"
		})), "", status + " | NameConflict"},
		{"the record of a ready group, after a second", with(3, 2, onRestart), then(unrecorded, after(time.Second)), "", "| Missing StatusCoalesced"},
		{"the record of a ready group, after two seconds", with(3, 2, onRestart), then(unrecorded, after(2*time.Second)), "", status + " | Missing"},
		// The StatefulSet controller does not get past a taken name: the condition says which.
		{"the first name is taken", with(4, 1), taken("w-0"), "", status + " | NameConflict"},
		{"a name is taken", with(4, 1), taken("w-2"), "", status + " | NameConflict"},
		{"a leader is missing", with(2, 1), stalled(lacks("w", "w-1")), "", "touch statefulset w, " + status + " | Missing"},
		{"a foreign leader, which goes", with(8, 1), then(stalled(lacks("w", "w-3", "w-4"), occupied("w-3")), gone[Pod]("w-3")), "", "touch statefulset w, " + status + " | Missing"},
		{"a foreign leader, beside a terminating one", with(8, 1), stalled(lacks("w", "w-1"), occupied("w-1"), leaving[Pod]("w-0", "example.com/held")), "", status + " | NameConflict Missing"},
		{"a previous leader", with(2, 1), stalled(lacks("w", "w-1"), func(c *cluster) {
			pod := fakeapi.Pod("w-1", "w", 0)
			fakeapi.OwnedBy(pod, "apps/v1", fakeapi.Former(identity.KindStatefulSet, "w"))
			fakeapi.Add(c.Server, pod)
		}, leaving[Pod]("w-1", "example.com/held")), "", status + " | WaitingForPreviousIncarnation Missing"},
		{"a terminating PVC", with(4, 1, fakeapi.Volumes(retainClaims, retainClaims)), stalled(leaving[PVC]("data-w-1", "example.com/held"),
			gone[PVC]("data-w-3"), lacks("w", "w-1", "w-2", "w-3")), "",
			status + " | WaitingForPreviousIncarnation Missing"},
		{"garbage of a moment ago", again, after(3*time.Second - time.Nanosecond), "", status + " | Garbage WaitingForPreviousIncarnation"},
		{"garbage of three seconds", again, after(3 * time.Second), "",
			"delete statefulset w, delete service w, delete controllerrevision w-5864bdfc97-1, " + status + " | WaitingForPreviousIncarnation"},
		{"garbage without the label of a set", again, then(on("w", func(s Service) { s.Labels = nil }), after(3*time.Second)), "",
			"delete statefulset w, delete controllerrevision w-5864bdfc97-1, " + status + " | WaitingForPreviousIncarnation"},
		{"PVCs of others", with(1, 2, fakeapi.Volumes(deleteClaims, retainClaims)), foreign[PVC]("data-w-0-1"), "", ""},
		{"a Service edited by hand", noted, on("w", func(s Service) { s.Spec.Selector = nil }), "", "apply service w"},
		{"a Service that publishes ready pods alone", noted, on("w", func(s Service) { s.Spec.PublishNotReadyAddresses = false }), "", "apply service w"},
		{"a Service of another set's name", noted, on("w", func(s Service) { s.Labels[lwsv1.SetNameLabelKey] = "v" }), "", "apply service w"},
		{"a Service with an address", noted, on("w", func(s Service) { s.Spec.ClusterIP, s.Spec.Selector = "10.0.0.7", nil }), "", "| ServiceNotHeadless!ServiceNotHeadless"},
		{"others' ports and labels of a Service", noted, on("w", func(s Service) {
			s.Spec.Ports, s.Labels["scrape"] = []corev1.ServicePort{{Name: "metrics", Port: 9090}}, "yes"
		}), "", ""},
		{"a terminating set", with(1, 3), then(withoutWorkers, gone[Service]("w"), leaving[Set]("w", "foregroundDeletion")), "", ""},
		{"a leader is replaced while the template changes", with(2, 1), then(leaving[Pod]("w-1"), user(fakeapi.Image("image:2"))), "",
			"create controllerrevision w-6579f9847c-2, apply statefulset w, " + status},
		{"a previous Service", with(0, 1), leaving[Service]("w", "example.com/held"), "", status + " | WaitingForPreviousIncarnation"},
		{"a previous Service that the set made", with(0, 1), then(leaving[Service]("w", "example.com/held"), func(c *cluster) {
			find[Service](c, "w").CreationTimestamp = metav1.NewTime(c.Now)
		}), "", "| WaitingForPreviousIncarnation"},
		{"a previous Service that is not needed", with(0, 1, fakeapi.UniquePerReplica), func(c *cluster) {
			fakeapi.Add(c.Server, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w"}})
			leaving[Service]("w", "example.com/held")(c)
		}, "", ""},
	})
}

// Its places were counted one by one, in as many GB as the number has.
func TestAStatefulSetScaledBeyondMeasureIsScaledBack(t *testing.T) {
	for name, claims := range map[string]edit{"without PVCs": func(Set) {}, "with PVCs": fakeapi.Volumes(retainClaims, deleteClaims)} {
		c := running(t, 2, 2, claims)
		on("w", func(sts StatefulSet) { sts.Spec.Replicas = fakeapi.Ptr[int32](math.MaxInt32) })(c)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		plan := c.decideSet()
		runtime.ReadMemStats(&after)
		expect.Equalf(t, 2, workload.PodsOf(one[action.Apply](t, plan).Object.(StatefulSet)), "%s: replicas", name)
		used := (after.TotalAlloc - before.TotalAlloc) >> 20
		expect.That(t, used <= 64, "%s: the decision used %d MiB", name, used)
	}
}

// OnDelete holds the rollout of a StatefulSet, without a partition. The write that repairs it
// gives up no more groups than the rollout would.
func TestARolloutHaltedByHandContinuesWithinItsBudget(t *testing.T) {
	for what, halt := range map[string]step{"running": nothing, "paused": pause} {
		c := running(t, 4, 1)
		image(c, "image:2")
		carriedOut(c)
		c.Sync(find[StatefulSet](c, "w"))
		halt(c)
		on("w", func(sts StatefulSet) {
			sts.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
			sts.Generation++
			sts.Status.ObservedGeneration = sts.Generation
		})(c)
		plan := c.decideSet()
		wanted := one[action.Apply](t, plan).Object.(StatefulSet)
		if wanted.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType || partition(wanted) < 3 || len(of[action.Delete](plan)) > 0 {
			t.Errorf("%s: partition %d of %s, %s", what, partition(wanted), wanted.Spec.UpdateStrategy.Type, spelled(plan))
		}
		resume(c)
		c.settle()
		checkImage(c, "image:2", 4)
	}
}

// A foreign object under a name of the set is reported and not written, and holds back what
// needs its name. The condition ends with the conflict.
func TestNameConflicts(t *testing.T) {
	replaced := func(change func(*cluster, StatefulSet)) step {
		return func(c *cluster) {
			sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
				Namespace: fakeapi.Namespace, Name: "w", Labels: map[string]string{lwsv1.SetNameLabelKey: "w"},
			}}
			change(c, sts)
			then(gone[StatefulSet]("w"), gone[Pod]("w-0"))(c)
			fakeapi.Add(c.Server, sts)
		}
	}
	for name, tt := range map[string]struct {
		conflict step
		says     []string
	}{
		"the leader StatefulSet": {replaced(func(c *cluster, sts StatefulSet) { strange(c, sts) }), []string{"statefulset w ", "pod stranger"}},
		"one without controller": {replaced(func(*cluster, StatefulSet) {}), []string{"statefulset w ", "no controller"}},
		"an orphan of another shape": {on("w", func(sts StatefulSet) {
			sts.OwnerReferences, sts.Spec.Selector.MatchLabels["more"] = nil, "x"
		}), []string{"statefulset w "}},
		"a leader":             {foreign[Pod]("w-0"), []string{"pod w-0 ", "pod stranger"}},
		"the shared Service":   {foreign[Service]("w"), []string{"service w ", "pod stranger"}},
		"a worker StatefulSet": {foreign[StatefulSet]("w-0"), []string{"statefulset w-0 ", "pod stranger"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := running(t, 1, 2)
			owners := find[Service](c, "w").OwnerReferences
			tt.conflict(c)
			c.pass(time.Minute)
			plan := c.decideSet()
			write := oneStatus(t, plan)
			got, last := condition(write.Status, lws.CodeNameConflict), write.Tell.Done[len(write.Tell.Done)-1]
			if got.Status != metav1.ConditionTrue || got.Reason != "NameConflict" || !last.Warning || last.Reason != "NameConflict" ||
				last.Note != got.Message || len(plan.Actions) != 1 {
				t.Errorf("got condition %+v, event %+v, %s", got, last, spelled(plan))
			}
			for _, part := range tt.says {
				expect.Says(t, got.Message, part)
			}
			wait, ok := waitFor(plan, lws.CodeNameConflict)
			expect.That(t, ok && wait.Until.Equal(c.Now.Add(10*time.Second)), "got waits %v", plan.Waits)
			c.do(plan)
			expect.Emptyf(t, statusWrites(c.decideSet()), "reported again")
			if name != "the shared Service" {
				return
			}
			on("w", func(service Service) { service.OwnerReferences = owners })(c)
			write = oneStatus(t, c.decideSet())
			if got := condition(write.Status, lws.CodeNameConflict); got.Status != metav1.ConditionFalse || got.Reason != "NoNameConflict" ||
				!slices.Contains(notes(write), "NameConflictResolved/Wait") {
				t.Errorf("once it ended: %+v, %q", got, notes(write))
			}
		})
	}
}

func TestNext(t *testing.T) {
	now := fakeapi.Epoch
	for want, until := range map[time.Duration][]time.Time{
		0: {{}}, 3 * time.Second: {now.Add(5 * time.Second), {}, now.Add(3 * time.Second)}, time.Millisecond: {now.Add(-time.Hour)},
	} {
		var plan lws.Plan
		for _, until := range until {
			plan.Waits = append(plan.Waits, lws.Wait{Until: until})
		}
		expect.Equalf(t, want, plan.Next(now), "%v", until)
	}
}

// No webhook sees /scale. A set that is scaled beyond the limit of its name is Stalled, with the number.
func TestScaleThatNoNameHoldsStallsTheSet(t *testing.T) {
	for name, tt := range map[string]struct {
		set   Set
		limit int // 0: it fits
	}{
		"ten groups":           {fakeapi.Set(strings.Repeat("a", 50), 10, 2), 0},
		"eleven groups":        {fakeapi.Set(strings.Repeat("a", 50), 11, 2), 49},
		"no workers":           {fakeapi.Set(strings.Repeat("a", 52), 11, 1), 0},
		"no workers, too long": {fakeapi.Set(strings.Repeat("a", 53), 1, 1), 52},
	} {
		set := tt.set
		set.Status.ObservedGeneration = -1
		write := decidedStatus(t, lws.SetSnapshot{Now: time.Now(), Set: set, HistoryRead: true})
		stalled := condition(write, "Stalled")
		if tt.limit == 0 {
			expect.That(t, stalled.Status != metav1.ConditionTrue, "%s: %+v", name, stalled)
			continue
		}
		if stalled.Reason != lwsset.CodeNameTooLong || !strings.Contains(stalled.Message, fmt.Sprintf(" %d;", tt.limit)) {
			t.Errorf("%s: %+v", name, stalled)
		}
	}
}

func decidedStatus(t *testing.T, w lws.SetSnapshot) lwsv1.LeaderWorkerSetStatus {
	t.Helper()
	return oneStatus(t, lwsset.Decide(w)).Status
}

// adopted is a pod that a StatefulSet took in place of one of its own.
func adopted(name, sts, instead string) step {
	return func(c *cluster) {
		pod := fakeapi.Pod(name, "w", 0)
		fakeapi.OwnedBy(pod, "apps/v1", identity.RefOf(identity.KindStatefulSet, fakeapi.Find[StatefulSet](c.Server, sts)))
		fakeapi.Up(pod)
		fakeapi.Drop[Pod](c.Server, instead)
		fakeapi.Add(c.Server, pod)
		on(sts, func(s StatefulSet) { s.Status.UpdatedReplicas-- })(c) // it is of none of its revisions
	}
}

// TestAPodWithANameInAnotherSpellingIsAConflict: the StatefulSet controller takes w-01 for w-1, and creates no w-1.
func TestAPodWithANameInAnotherSpellingIsAConflict(t *testing.T) {
	for name, tt := range map[string]struct{ pod, sts, instead string }{
		"a leader":         {"w-01", "w", "w-1"},
		"more zeros":       {"w-0001", "w", "w-1"},
		"the first leader": {"w-00", "w", "w-0"},
		"a worker":         {"w-0-01", "w-0", "w-0-1"},
		"the last worker":  {"w-1-002", "w-1", "w-1-2"},
	} {
		t.Run(name, func(t *testing.T) {
			c := running(t, 2, 3)
			adopted(tt.pod, tt.sts, tt.instead)(c)
			c.pass(time.Minute)
			set := told(c, nil)
			if got := condition(set.Status, lws.CodeNameConflict); got.Status != "True" || !strings.Contains(got.Message, "pod "+tt.pod+" counts as "+tt.instead+";") {
				t.Errorf("got %+v", got)
			}
			got := condition(set.Status, ready)
			expect.That(t, got.Reason == lws.CodeNameConflict && kstatus(set.Status, set.Generation) == failed, "it is %+v", got)
			plan := c.decideSet()
			for _, a := range plan.Actions {
				target := a.Target()
				expect.That(t, target.Name != tt.instead && target.Name != tt.pod, "it writes %s", spelled(plan))
			}
			gone[Pod](tt.pod)(c)
			settled(c)
			if set := told(c, nil); condition(set.Status, lws.CodeNameConflict).Status == "True" || kstatus(set.Status, set.Generation) != current {
				t.Errorf("once it is gone: %+v", set.Status.Conditions)
			}
		})
	}
}

// A pod with another spelling of a name is no conflict unless a StatefulSet of the set adopted it.
func TestAForeignPodInAnotherSpellingIsNoConflict(t *testing.T) {
	c := running(t, 2, 2)
	pod := fakeapi.Pod("w-01", "w", 0)
	strange(c, pod)
	fakeapi.Add(c.Server, pod)
	c.pass(time.Minute)
	if set := told(c, nil); condition(set.Status, lws.CodeNameConflict).Status != "" || kstatus(set.Status, set.Generation) != current {
		t.Errorf("got %+v", set.Status.Conditions)
	}
}

// Nothing is written for a set with what this version lacks but one condition, once, with its event.
func TestASetWithUnknownFieldsIsLeftAlone(t *testing.T) {
	c := running(t, 2, 2)
	gone[StatefulSet]("w-0")(c)
	gone[Pod]("w-0-1")(c)
	set := find[Set](c, "w").DeepCopy()
	w := lws.SetSnapshot{Now: time.Now(), Set: set, Beyond: []string{`spec.groupIdentity="Hash"`}}
	before := set.Status.DeepCopy()

	plan := lwsset.Decide(w)
	write := oneStatus(t, plan)
	if told := meta.FindStatusCondition(write.Status.Conditions, lws.CodeUnsupported); told == nil || told.Status != metav1.ConditionTrue || told.Reason != "UnknownFields" {
		t.Errorf("condition %+v", told)
	}
	if events := write.Tell.Done; len(plan.Actions) != 1 || len(events) != 1 || events[0].Reason != lws.CodeUnsupported || !events[0].Warning {
		t.Errorf("%d actions, events %+v", len(plan.Actions), events)
	}
	expect.Equalf(t, failed, kstatus(write.Status, set.Generation), "the set is")
	after := write.Status.DeepCopy()
	isNew := func(c metav1.Condition) bool {
		return c.Type == lws.CodeUnsupported || slices.Contains(forTools, c.Type)
	}
	before.Conditions, after.Conditions = slices.DeleteFunc(before.Conditions, isNew), slices.DeleteFunc(after.Conditions, isNew)
	expect.Equalf(t, before, after, "the rest of the status")

	set.Status = write.Status
	again := lwsset.Decide(w)
	expect.That(t, len(again.Actions) == 0 && again.IsUnsupported(), "once more: %v", again.Actions)
	set.Generation++
	if write := oneStatus(t, lwsset.Decide(w)); write.Status.ObservedGeneration != set.Generation || len(write.Tell.Done) > 0 {
		t.Errorf("another generation: %+v", write)
	}
	if plan := lwsgroup.Decide(lws.GroupSnapshot{Now: w.Now, Set: set, Beyond: w.Beyond}); len(plan.Actions) > 0 || !plan.IsUnsupported() {
		t.Errorf("its group: %v", plan.Actions)
	}
	retained := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w-0", Finalizers: []string{lwsv1.GroupRestartBudgetFinalizer}, DeletionTimestamp: &metav1.Time{Time: w.Now}}}
	if plan := lwsgroup.Decide(lws.GroupSnapshot{Now: w.Now, Set: set, Beyond: w.Beyond, Kept: []*corev1.Pod{retained}}); len(plan.Actions) > 0 {
		t.Errorf("its group with a retained pod: %v", plan.Actions)
	}
	w.Set.DeletionTimestamp = &metav1.Time{Time: w.Now}
	if plan := lwsset.Decide(w); len(plan.Actions)+len(plan.Waits) > 0 {
		t.Errorf("a terminating set: %+v", plan)
	}
}

// A set that asks for what no rule meets yet is left alone, whether or not it ran before: no leader StatefulSet is
// created, and nothing is written to what it has.
func TestWhatNoRuleMeetsIsLeftAlone(t *testing.T) {
	unmet := func(set Set) { set.Spec.Scheduling = &lwsv1.Scheduling{Replica: &lwsv1.ReplicaScheduling{}} }
	fresh, ran := newCluster(t), running(t, 2, 2)
	fakeapi.Add(fresh.Server, fakeapi.Set("w", 2, 2, unmet))
	then(user(unmet), user(fakeapi.Image("image:2")), gone[Pod]("w-0-1"))(ran)
	for name, c := range map[string]*cluster{"fresh": fresh, "ran": ran} {
		before := fakeapi.All[StatefulSet](c.Objects)
		write := oneStatus(t, c.decideSet())
		if told := meta.FindStatusCondition(write.Status.Conditions, lws.CodeUnsupported); told == nil || told.Status != metav1.ConditionTrue {
			t.Errorf("%s: condition %+v", name, told)
		}
		for range 3 {
			c.reconcileSet()
			for _, leader := range []string{"w-0", "w-1"} {
				expect.Emptyf(t, spelled(c.decideGroup(leader)), "%s: written to group %s", name, leader)
			}
		}
		plan := c.decideSet()
		expect.That(t, len(plan.Actions) == 0 && plan.IsUnsupported(), "%s: once told: %v", name, spelled(plan))
		expect.Equalf(t, before, fakeapi.All[StatefulSet](c.Objects), "%s: StatefulSets", name)
	}
}

// What is written on objects is written down for those who read them.
func TestEveryKeyIsWrittenDown(t *testing.T) {
	written := expect.Value(os.ReadFile("../../docs/annotations.md"))(t)
	key := regexp.MustCompile(`= "((?:lockstep\.dev|leaderworkerset\.sigs\.k8s\.io)/[A-Za-z-]+)"`)
	found := 0
	for _, folder := range []string{"../../api/leaderworkerset/v1", "../backoff", "../gang", "../install", "."} {
		files := expect.Value(filepath.Glob(folder + "/*.go"))(t)
		for _, file := range files {
			source := expect.Value(os.ReadFile(file))(t)
			for _, match := range key.FindAllStringSubmatch(string(source), -1) {
				found++
				expect.Says(t, string(written), "`"+match[1]+"`", match[1])
			}
		}
	}
	expect.That(t, found >= 30, "found %d keys: they are not where this test looks", found)
}
