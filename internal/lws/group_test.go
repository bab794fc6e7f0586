package lws_test

import (
	"math"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// workers is the number of workers that the StatefulSet of group 0 asks for.
func workers(n int32) step {
	return on("w-0", func(sts StatefulSet) { sts.Spec.Replicas = &n })
}

func TestDecisionsAboutAGroup(t *testing.T) {
	three, unique := with(1, 3), with(1, 3, fakeapi.UniquePerReplica)
	rack := fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, "rack")
	unschedulable := func(pod Pod) {
		unscheduled(pod)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "False", Reason: corev1.PodReasonUnschedulable}}
	}
	marked := func(pod Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, lwsv1.LeaderPodNameAnnotationKey, "w-0") }
	surplus := func(c *cluster) {
		on("w", func(set Set) { set.Status.Started = nil })(c)
		pod := find[Pod](c, "w-0-2").DeepCopy()
		pod.Name, pod.UID = "w-0-3", "surplus"
		fakeapi.Add(c.Server, pod)
		on("w-0-1", func(p Pod) { p.Status.Phase = corev1.PodPending })(c)
	}
	lost := func(change func(Revision)) step {
		return then(withoutWorkers, func(c *cluster) { on(revision(c).Name, change)(c) })
	}
	const held = "example.com/held"
	const noRevision = "| WaitingForRevision"
	const makes, adopts, conflict = "create statefulset w-0", "apply statefulset w-0", " | NameConflict"
	checkDecisions(t, []decision{
		{"a leader alone", with(1, 1), nothing, "w-0", ""},
		{"a group without a leader", three, nothing, "w-7", ""},
		{"workers that run a template edited by hand", three, then(
			on("w-0", func(sts StatefulSet) { sts.Spec.Template.Spec.Containers[0].Image = "image:9" }), user(fakeapi.Image("image:2")),
		), "w-0", ""},
		{"a terminating set", three, then(withoutWorkers, leaving[Set]("w", "foregroundDeletion")), "w-0", ""},
		{"workers start with their leader", three, then(withoutWorkers, on("w-0", unready)), "w-0", makes},
		{"workers start after their leader", with(1, 3, fakeapi.LeaderReady), then(withoutWorkers, on("w-0", unready)), "w-0", "| WaitingForLeaderReady"},
		{"their leader is ready", with(1, 3, fakeapi.LeaderReady), withoutWorkers, "w-0", makes},
		{"a leader marked as a worker", three, then(withoutWorkers, on("w-0", marked)), "w-0", "| MistakenAnnotation!FailedCreate"},
		{"a foreign Service", unique, then(withoutWorkers, foreign[Service]("w-0")), "w-0", makes + conflict},
		{"an orphaned Service", unique, orphaned[Service]("w-0"), "w-0", "apply service w-0"},
		{"orphaned workers", with(1, 3, onRestart), orphaned[StatefulSet]("w-0"), "w-0", adopts},
		{"orphaned workers whose revision is lost", three, then(orphaned[StatefulSet]("w-0"), withoutRevision), "w-0", adopts},
		{"workers scaled to none", three, workers(0), "w-0", adopts},
		{"workers scaled up", three, workers(3), "w-0", adopts},
		{"a group beyond measure", three, on("w-0", func(sts StatefulSet) {
			sts.Spec.Replicas = fakeapi.Ptr[int32](math.MaxInt32 - 1)
			sts.Spec.Template.Annotations[lwsv1.SizeAnnotationKey] = strconv.Itoa(math.MaxInt32)
		}), "w-0", "| Missing"},
		{"a failed group without its StatefulSet", with(1, 3, onRestart), then(gone[StatefulSet]("w-0"), orphaned[Pod]("w-0-1"),
			orphaned[Pod]("w-0-2"), on("w-0-1", crash)), "w-0", "annotate pod w-0, delete pod w-0-1, delete pod w-0-2, delete pod w-0"},
		{"a worker fails", with(1, 3, onRestart), on("w-0-2", crash), "w-0",
			"annotate pod w-0, delete statefulset w-0, delete pod w-0, delete pod w-0-1, delete pod w-0-2"},
		// The StatefulSet controller would replace it at once, and the group would have a ninth pod of eight.
		{"a worker is gone", with(1, 3, onRestart), gone[Pod]("w-0-1"), "w-0", "annotate pod w-0, delete statefulset w-0, delete pod w-0, delete pod w-0-2"},
		{"a worker is gone, after the start", with(1, 3, fakeapi.Policy(lwsv1.RecreateGroupAfterStart)), gone[Pod]("w-0-1"), "w-0",
			"annotate pod w-0, delete statefulset w-0, delete pod w-0, delete pod w-0-2"},
		// Workers beyond the size of a group that starts are scaled back, which is no failure.
		{"a worker fails in the start of its group", with(1, 3, onRestart), then(surplus, on("w-0-2", crash)), "w-0",
			"annotate pod w-0, delete statefulset w-0, delete pod w-0, delete pod w-0-1, delete pod w-0-2, delete pod w-0-3"},
		{"a worker fails beyond its size", with(1, 3, onRestart), then(surplus, on("w-0-3", crash)), "w-0", ""},
		{"a container restarts as the policy becomes None", with(1, 3, onRestart), then(
			user(fakeapi.Policy(lwsv1.NoneRestartPolicy)), on("w-0-1", crash),
		), "w-0", ""},
		// Workers of leaders that leave without a failure are left to the garbage collector, or to the next leader.
		{"a leader that is rolled", with(2, 2, onRestart), then(on("w", func(sts StatefulSet) {
			sts.Labels[lwsv1.RevisionKey] = "next"
		}), leaving[Pod]("w-1")), "w-1", ""},
		{"a leader that is scaled away", with(2, 2, onRestart), then(on("w", func(sts StatefulSet) {
			*sts.Spec.Replicas = 1
		}), leaving[Pod]("w-1")), "w-1", ""},
		{"a leader that orphans its workers", with(2, 2, onRestart), leaving[Pod]("w-1", metav1.FinalizerOrphanDependents), "w-1", ""},
		{"a topology, a leader without a node", with(1, 3, rack), then(withoutWorkers, on("w-0", unscheduled)), "w-0", "| WaitingForLeaderScheduled"},
		{"a topology, a leader that no node takes", with(1, 3, rack), then(withoutWorkers, on("w-0", unschedulable)), "w-0",
			"| WaitingForLeaderScheduled!LeaderUnschedulable"},
		{"a topology, a node that is gone", with(1, 3, rack), withoutWorkers, "w-0", "| TopologyUnknown!TopologyUnknown"},
		{"a topology, a node without its label", with(1, 3, rack), then(withoutWorkers, node(nil)), "w-0", "| TopologyUnknown!TopologyUnknown"},
		{"workers of a former leader", three, previous[StatefulSet]("w-0", "w-0"), "w-0", "| Garbage WaitingForPreviousIncarnation"},
		{"a worker of a former leader", three, then(previous[Pod]("w-0-1", "w-0"), gone[StatefulSet]("w-0")), "w-0",
			"| Garbage WaitingForPreviousIncarnation"},
		{"the PVC of a worker of a former leader", with(1, 3, fakeapi.Volumes(retainClaims, deleteClaims)),
			then(withoutWorkers, previous[PVC]("data-w-0-1", "w-0")), "w-0", "| WaitingForPreviousIncarnation"},
		{"a worker is missing", three, stalled(lacks("w-0", "w-0-2")), "w-0", "touch statefulset w-0 | Missing"},
		{"a status that lags behind the pods", with(1, 2), stalled(on("w-0", func(sts StatefulSet) { sts.Status.Replicas = 0 })), "w-0", "| Missing"},
		{"a foreign worker, beside a terminating one", with(1, 4), stalled(lacks("w-0", "w-0-2"), occupied("w-0-2"), leaving[Pod]("w-0-1", held)), "w-0", "| NameConflict Missing"},
		{"a foreign worker", three, stalled(lacks("w-0", "w-0-1"), occupied("w-0-1")), "w-0", "| NameConflict Missing"},
		{"a failed group whose PVCs would go with its StatefulSet", with(1, 2, fakeapi.Volumes(deleteClaims, retainClaims), onRestart),
			then(func(c *cluster) { asOthersMade(c) }, on("w-0-1", ends)), "w-0", "| VolumeTie"},
		{"a revision with other data", three, lost(func(r Revision) { r.Data.Raw = []byte(`{"spec":{"leaderWorkerTemplate":{}}}`) }), "w-0", noRevision},
		{"a revision of a former set", three, lost(func(r Revision) { r.OwnerReferences[0].UID = "former" }), "w-0", noRevision},
		{"a terminating revision", three, lost(func(r Revision) { r.DeletionTimestamp = &metav1.Time{Time: fakeapi.Epoch} }), "w-0", noRevision},
		{"a revision without label and name", three, lost(func(r Revision) { r.Labels, r.Data.Raw = nil, append([]byte(" "), r.Data.Raw...) }), "w-0", noRevision},
		{"the Service of a former leader", unique, then(previous[Service]("w-0", "w-0"), withoutWorkers), "w-0", makes + " | Garbage WaitingForPreviousIncarnation"},
		// What another implementation left on pods is taken off.
		{"a gated leader", three, on("w-0", gated), "w-0", "remove-gate pod w-0"},
		{"a gated leader beside a worker of a former leader", three, then(on("w-0", gated), previous[Pod]("w-0-1", "w-0"), gone[StatefulSet]("w-0")), "w-0",
			"| Garbage WaitingForPreviousIncarnation"},
		{"a gated leader beside a worker above the group's size", three, then(on("w-0", gated), surplus, previous[Pod]("w-0-3", "w-0")), "w-0",
			"| Garbage WaitingForPreviousIncarnation"},
		{"another group of a former leader", with(2, 2), then(previous[StatefulSet]("w-0", "w-0"), gone[StatefulSet]("w-1"), gone[Pod]("w-1-1")),
			"w-1", "create statefulset w-1"},
	})
}

func gated(pod Pod) {
	unscheduled(pod)
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: lwsv1.GroupReplacementGate}}
}

// lacks takes pods from a StatefulSet that the StatefulSet controller does not create again.
func lacks(sts string, pods ...string) step {
	return then(gone[Pod](pods...), on(sts, func(sts StatefulSet) { sts.Status.Replicas -= int32(len(pods)) }))
}

// stalled looks at what happened to StatefulSets that lack pods, and again after eleven seconds.
func stalled(happens ...step) step {
	look := func(c *cluster) { c.decideSet(); c.decideGroup("w-0") }
	return then(then(happens...), look, after(11*time.Second))
}

// A StatefulSet that creates none of the pods that it lacks is touched while one of their names
// is free: after ten seconds, and then ever more seldom, every five minutes at most.
func TestAStalledStatefulSetIsTouched(t *testing.T) {
	c := running(t, 2, 1)
	c.pass(time.Minute)
	lacks("w", "w-1")(c)
	var got []int // seconds
	for second := range 3600 {
		plan := c.decideSet()
		if len(plan.Actions) > 0 && plan.Actions[0].About().Because.Code == lws.CodeNudge {
			got = append(got, second)
		}
		c.do(plan)
		c.pass(time.Second)
	}
	expect.Equalf(t, []int{10, 40, 80, 160}, got[:4], "touched after seconds")
	for i := range got[1:] {
		if pause := got[i+1] - got[i]; pause < 30 || pause > 310 || i > 5 && pause < 300 {
			t.Errorf("a pause of %d s: %v", pause, got)
		}
	}
	if sts := find[StatefulSet](c, "w"); sts.Generation != 1 || len(sts.Spec.Template.Annotations[lws.NudgeAnnotationKey]) != 0 {
		t.Errorf("a touch changed the spec: generation %d", sts.Generation)
	}
}

type PodGroup = *unstructured.Unstructured

var volcano = fakeapi.Annotation(lwsv1.GangSchedulerAnnotationKey, "volcano")

// podGroup is the PodGroup of group 0.
func podGroup(c *cluster) PodGroup {
	c.t.Helper()
	return find[PodGroup](c, gang.NameOf(find[Pod](c, "w-0")))
}

// onPodGroup edits the PodGroup of group 0.
func onPodGroup(change func(PodGroup)) step {
	return func(c *cluster) {
		edited := podGroup(c).DeepCopy()
		change(edited)
		c.Put(edited)
	}
}

func withoutPodGroup(c *cluster) { delete(c.Objects, fakeapi.NameOf(podGroup(c))) }

func minMember(c *cluster) int64 {
	n, _, _ := unstructured.NestedInt64(podGroup(c).Object, "spec", "minMember")
	return n
}

func TestDecisionsAboutPodGroups(t *testing.T) {
	size := func(set Set) { set.Spec.LeaderWorkerTemplate.Size = fakeapi.Ptr[int32](5) }
	const creates, applies, conflict = "create podgroup w-0-5864bdfc97", "apply podgroup w-0-5864bdfc97", "| NameConflict"
	gangs := with(1, 2, volcano)
	drift := func(o PodGroup) { _ = unstructured.SetNestedField(o.Object, int64(9), "spec", "minMember") }
	orphan := func(o PodGroup) { o.SetOwnerReferences(nil) }
	checkDecisions(t, []decision{
		{"in step", with(2, 3, volcano), nothing, "w-0", ""},
		{"lost, of a set that has no gangs since", with(1, 2, volcano), then(withoutPodGroup,
			user(fakeapi.Annotation(lwsv1.GangSchedulerAnnotationKey, lwsv1.NoGangScheduler))), "w-0", creates},
		{"another size: a group of 3 never has 5 pods", with(1, 3, volcano), user(size), "w-0", ""},
		{"a group from before gangs", with(1, 2), user(volcano), "w-0", ""},
		{"lost", gangs, withoutPodGroup, "w-0", creates},
		{"of a former leader", gangs, onPodGroup(func(o PodGroup) { fakeapi.OwnedBy(o, "v1", fakeapi.Former(identity.KindPod, "w-0")) }), "w-0", "| Garbage WaitingForPreviousIncarnation"},
		{"of a stranger", gangs, func(c *cluster) { onPodGroup(func(o PodGroup) { strange(c, o); drift(o) })(c) }, "w-0", conflict},
		{"orphaned", gangs, onPodGroup(orphan), "w-0", applies},
		{"without an owner", gangs, onPodGroup(func(o PodGroup) { orphan(o); o.SetLabels(nil) }), "w-0", conflict},
		{"of another size", gangs, onPodGroup(drift), "w-0", applies},
		{"without labels", gangs, onPodGroup(func(o PodGroup) { o.SetLabels(nil) }), "w-0", applies},
		{"terminating", gangs, onPodGroup(func(o PodGroup) {
			o.SetDeletionTimestamp(&metav1.Time{Time: fakeapi.Epoch})
			o.SetFinalizers([]string{"x"})
		}), "w-0", "| WaitingForPreviousIncarnation"},
	})
}

func TestEveryGroupOfAGangHasAPodGroup(t *testing.T) {
	c := running(t, 2, 3, volcano)
	if all := fakeapi.All[PodGroup](c.Objects); len(all) != 2 || !metav1.IsControlledBy(podGroup(c), find[Pod](c, "w-0")) || minMember(c) != 3 {
		t.Errorf("got %v", all)
	}
	for _, pod := range fakeapi.All[Pod](c.Objects) {
		expect.That(t, gang.IsTied(pod), "pod %s is not tied to %q", pod.Name, gang.NameOf(pod))
	}
	for _, waits := range []edit{fakeapi.LeaderReady, fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, "rack")} {
		c := running(t, 1, 3, volcano, waits)
		expect.Equalf(t, 1, minMember(c), "minMember: the leader waits for workers that wait for it")
	}
}
