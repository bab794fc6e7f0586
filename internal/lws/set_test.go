package lws_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
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
		if got := workload.PodsOf(one[action.Apply](t, plan).Object.(StatefulSet)); got != 2 {
			t.Errorf("%s: scaled to %d", name, got)
		}
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 64 {
			t.Errorf("%s: the decision used %d MiB", name, used)
		}
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
			write := one[action.WriteStatus](t, plan)
			got, last := condition(write.Status, lws.CodeNameConflict), write.Tell.Done[len(write.Tell.Done)-1]
			if got.Status != metav1.ConditionTrue || got.Reason != "NameConflict" || !last.Warning || last.Reason != "NameConflict" ||
				last.Note != got.Message || len(plan.Actions) != 1 {
				t.Errorf("got condition %+v, event %+v, %s", got, last, spelled(plan))
			}
			for _, part := range tt.says {
				if !strings.Contains(got.Message, part) {
					t.Errorf("%q does not name %q", got.Message, part)
				}
			}
			if wait, ok := waitFor(plan, lws.CodeNameConflict); !ok || !wait.Until.Equal(c.Now.Add(10*time.Second)) {
				t.Errorf("got waits %v", plan.Waits)
			}
			c.do(plan)
			if again := of[action.WriteStatus](c.decideSet()); len(again) != 0 {
				t.Errorf("reported again: %v", brief(again[0].Status))
			}
			if name != "the shared Service" {
				return
			}
			on("w", func(service Service) { service.OwnerReferences = owners })(c)
			write = one[action.WriteStatus](t, c.decideSet())
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
		if got := plan.Next(now); got != want {
			t.Errorf("%v: got %s, want %s", until, got, want)
		}
	}
}
