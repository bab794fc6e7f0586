package lws_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// levels are spec.scheduling at each level, with gangs.
var levels = map[gang.Level]edit{
	gang.SetLevel: func(set Set) {
		set.Spec.Scheduling = &lwsv1.Scheduling{SchedulingPolicy: &schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy{
			Gang: &schedulingv1alpha3.WorkloadCompositePodGroupGangSchedulingPolicy{},
		}}
	},
	gang.ReplicaLevel: func(set Set) { set.Spec.Scheduling = &lwsv1.Scheduling{} },
	gang.RoleLevel: func(set Set) {
		set.Spec.Scheduling = &lwsv1.Scheduling{Replica: &lwsv1.ReplicaScheduling{Worker: &lwsv1.RoleScheduling{
			SchedulingPolicy: &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{Gang: &schedulingv1alpha3.WorkloadPodGroupGangSchedulingPolicy{}},
		}}}
	},
}

// natively is a cluster in step whose set Kubernetes' own scheduler places.
func natively(t fatal, replicas, size int32, edits ...edit) *cluster {
	c := newCluster(t)
	c.scheduler = gang.Kubernetes
	c.awake()
	c.pass(time.Minute)
	fakeapi.Add(c.Server, fakeapi.Set("w", replicas, size, edits...))
	c.settle()
	return c
}

func atLevel(level gang.Level, replicas, size int32) func(testing.TB) *cluster {
	return func(t testing.TB) *cluster { return natively(t, replicas, size, levels[level]) }
}

func workloadOf(c *cluster) PodGroup { return find[PodGroup](c, gang.WorkloadName(find[Set](c, "w"))) }

// nativeGroups are the counts of pods that PodGroups wait for, by name. One that does not wait has 0.
func nativeGroups(c *cluster) map[string]int64 {
	counts := map[string]int64{}
	for _, object := range fakeapi.All[PodGroup](c.Objects) {
		if object.GetKind() == "PodGroup" {
			counts[object.GetName()], _, _ = unstructured.NestedInt64(object.Object, "spec", "schedulingPolicy", "gang", "minCount")
		}
	}
	return counts
}

// ungrouped names a pod whose PodGroup does not exist or waits for more pods than it has, or a PodGroup that has
// no pods.
func ungrouped(c *cluster) string {
	members, counts := map[string]int64{}, nativeGroups(c)
	for _, pod := range fakeapi.All[Pod](c.Objects) {
		members[*pod.Spec.SchedulingGroup.PodGroupName]++
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if count, exists := counts[name]; !exists || count > members[name] {
			return name + " lacks pods, or does not exist"
		}
	}
	for name := range counts {
		if members[name] == 0 || find[PodGroup](c, name).GetDeletionTimestamp() != nil {
			return name + " has no pods, or terminates"
		}
	}
	return ""
}

// onNative edits all PodGroups.
func onNative(change func(PodGroup)) step {
	return func(c *cluster) {
		for name := range nativeGroups(c) {
			edited := find[PodGroup](c, name).DeepCopy()
			change(edited)
			c.Put(edited)
		}
	}
}

func withoutNative(c *cluster) {
	for name := range nativeGroups(c) {
		delete(c.Objects, fakeapi.NameOf(find[PodGroup](c, name)))
	}
}

// apart gives the workers of group 0 the Workload's name without what their leader added.
func apart(c *cluster) {
	on("w-0", func(sts StatefulSet) {
		sts.Spec.Template.Annotations[lwsv1.WorkloadNameAnnotationKey] = gang.WorkloadName(find[Set](c, "w"))
	})(c)
}

// scaledTo has the leader StatefulSet scaled, as if all controllers had seen it.
func scaledTo(n int32) step {
	return then(user(replicas(n)), carriedOut, on("w", func(sts StatefulSet) {
		sts.Status.ObservedGeneration, sts.Status.Replicas = sts.Generation, n
	}))
}

// TestPodGroupsInUseStay: leaders without their StatefulSet, and pods that memory lacks, keep their PodGroups.
func TestPodGroupsInUseStay(t *testing.T) {
	for level := range levels {
		c := atLevel(level, 2, 2)(t)
		before, late := nativeGroups(c), c.set()
		late.PodGroupsInUse = nil
		if plan := lwsset.Decide(late); plan.Needs != lws.NeedPodGroupsInUse && level != gang.SetLevel {
			t.Errorf("level %s: no pod is looked for: %v", level, spelled(plan))
		}
		c.Remove(find[StatefulSet](c, "w"), metav1.DeletePropagationOrphan)
		c.settle()
		expect.Equalf(t, "", ungrouped(c), "level %s", level)
		expect.Equalf(t, before, nativeGroups(c), "level %s", level)
	}
}

// TestMinCountIsRaisedBeforeLeadersAreCreated: else the scheduler would place a part of them alone. Leaders that the API
// server refuses are not waited for.
func TestMinCountIsRaisedBeforeLeadersAreCreated(t *testing.T) {
	c := atLevel(gang.SetLevel, 2, 2)(t)
	user(replicas(4))(c)
	plan := c.decideSet()
	order := randomNames.ReplaceAllString(short(plan), "$1")
	expect.Says(t, order, "apply podgroup, apply statefulset w")
	c.do(plan)
	count := func() int64 { return nativeGroups(c)[gang.SetPodGroupName(find[Set](c, "w"))] }
	expect.Equalf(t, 8, count(), "pods are waited for")
	on("w", func(sts StatefulSet) { *sts.Spec.Replicas = 2 })(c) // it was refused
	for _, at := range []time.Time{c.Now, c.Now.Add(-time.Hour)} {
		w := c.set()
		w.Refusal = action.Refusal{Sentence: "apply statefulset w: exceeded quota", At: at, Since: at}
		refused := lwsset.Decide(w)
		refused.Actions = slices.DeleteFunc(refused.Actions, func(a action.Action) bool { return a.Target().Kind != identity.KindPodGroup })
		c.do(refused)
		expect.Equalf(t, 4, count(), "pods are waited for, and leaders are refused")
	}
}

// keyedNatively is a cluster with a set of Hash groups, placed by Kubernetes' own scheduler. It has no leaders.
func keyedNatively(t *testing.T, level gang.Level, replicas, size int32) *cluster {
	t.Helper()
	c := newCluster(t)
	c.scheduler = gang.Kubernetes
	c.awake()
	fakeapi.Add(c.Server, fakeapi.Set("w", replicas, size, levels[level], hashed))
	var created []string
	for range 6 {
		plan := c.decideSet()
		for _, a := range of[action.Create](plan) {
			created = append(created, strings.ToLower(string(a.Kind)))
		}
		c.do(plan)
	}
	if last := created[len(created)-1]; last != "deployment" && last != "service" || slices.Index(created, "workload") > slices.Index(created, "deployment") {
		t.Fatalf("created %v", created)
	}
	c.observed()
	return c
}

// turnKeyed lets a set, its groups and all other controllers act some times.
func (c *cluster) turnKeyed() {
	c.t.Helper()
	for range 8 {
		c.reconcileSet()
		for _, pod := range fakeapi.All[Pod](c.Objects) {
			if pod.Labels[lwsv1.WorkerIndexLabelKey] == "0" {
				c.reconcileGroup(pod.Name)
			}
		}
		c.others()
	}
}

// TestGroupsWithKeysAreInPodGroups: groups come and go, at each level.
func TestGroupsWithKeysAreInPodGroups(t *testing.T) {
	for level := range levels {
		c := keyedNatively(t, level, 2, 3)
		c.lead("w-r-a", keyOf("a"))
		c.lead("w-r-b", keyOf("b"))
		c.turnKeyed()
		expect.Equalf(t, "", ungrouped(c), "level %s", level)
		expect.Equalf(t, 6, len(fakeapi.All[Pod](c.Objects)), "level %s: pods", level)
		removed[Pod]("w-r-a")(c)
		c.lead("w-r-c", keyOf("c"))
		c.turnKeyed()
		if fault := ungrouped(c); fault != "" || len(fakeapi.All[Pod](c.Objects)) != 6 || find[Pod](c, "w-r-c").Status.Phase != "Running" {
			t.Errorf("level %s, a group recreated: %s", level, fault)
		}
		user(replicas(0))(c)
		c.reconcileSet()
		c.observed()
		then(removed[Pod]("w-r-b"), removed[Pod]("w-r-c"))(c)
		c.turnKeyed()
		expect.Equalf(t, 0, len(nativeGroups(c)), "level %s, at zero: the PodGroups that are left", level)
	}
}

// TestMinCountOfGroupsWithKeys: a leader that waits for a group that ends has no workers yet.
func TestMinCountOfGroupsWithKeys(t *testing.T) {
	c := keyedNatively(t, gang.SetLevel, 2, 3)
	check := func(what string, want int64) {
		t.Helper()
		c.reconcileSet()
		expect.Equalf(t, want, nativeGroups(c)[gang.SetPodGroupName(find[Set](c, "w"))], "%s: pods are waited for", what)
	}
	check("leaders are to come", 6)
	c.lead("w-r-a", keyOf("a"))
	c.lead("w-r-b", keyOf("b"))
	check("both are admitted", 6)
	c.turnKeyed()
	leaving[Pod]("w-r-b", heldBy)(c)
	c.lead("w-r-c", keyOf("c"))
	check("one ends, and the next waits", 3)
	user(replicas(4))(c)
	check("room for two more", 9)
}

// TestWorkersOfAPreviousOperator: a group whose workers do not know the name that the leader added starts again, and
// that is no failure.
func TestWorkersOfAPreviousOperator(t *testing.T) {
	c := natively(t, 1, 2, levels[gang.ReplicaLevel], onRestart, func(set Set) { set.Spec.LeaderWorkerTemplate.MaxGroupRestarts = new(int32(0)) })
	user(func(set Set) { set.Status.Started, set.Status.Restarts = nil, nil })(c)
	then(gone[StatefulSet]("w-0"), gone[Pod]("w-0-1"))(c)
	c.reconcileGroup("w-0")
	apart(c)
	c.sync()
	then(on("w-0-1", unscheduled))(c)
	plan := c.decideGroup("w-0")
	deletion := one[action.Delete](t, plan)
	const note = "Worker statefulset w-0 was created by a previous LWS version and its workers do not join the PodGroups of leader pod w-0, deleted the leader pod to recreate group 0"
	if tell := deletion.Tell.Done[0]; tell.Reason != "RecreateGroup" || tell.Action != "Delete" || tell.Note != note || !deletion.Foreground || !deletion.AnyVersion {
		t.Errorf("got %+v", deletion)
	}
	leader := find[Pod](c, "w-0").UID
	c.do(plan)
	c.settle()
	if fault := ungrouped(c); fault != "" || find[Pod](c, "w-0").UID == leader || len(c.status().Restarts) > 0 {
		t.Errorf("%s, %+v", fault, c.status().Restarts)
	}
}

func TestDecisionsAboutNativePodGroups(t *testing.T) {
	drift := func(o PodGroup) {
		_ = unstructured.SetNestedField(o.Object, int64(9), "spec", "schedulingPolicy", "gang", "minCount")
	}
	basic := func(o PodGroup) {
		_ = unstructured.SetNestedMap(o.Object, map[string]any{"basic": map[string]any{}}, "spec", "schedulingPolicy")
	}
	lacks := func(o PodGroup) { unstructured.RemoveNestedField(o.Object, "spec", "schedulingConstraints") }
	inRack := func(t testing.TB) *cluster {
		return natively(t, 1, 2, func(set Set) {
			set.Spec.Scheduling = &lwsv1.Scheduling{Replica: &lwsv1.ReplicaScheduling{SchedulingConstraints: &schedulingv1alpha3.WorkloadCompositePodGroupSchedulingConstraints{
				Topology: []schedulingv1alpha3.TopologyConstraint{{Key: "rack"}},
			}}}
		})
	}
	byLeader := func(o PodGroup) {
		_ = unstructured.SetNestedMap(o.Object, map[string]any{"gang": map[string]any{"minCount": int64(1)}}, "spec", "schedulingPolicy")
	}
	group, whole := atLevel(gang.ReplicaLevel, 1, 2), atLevel(gang.SetLevel, 2, 2)
	for _, d := range []decision{
		{"in step", group, nothing, "w-0", ""},
		{"in step, all pods", whole, nothing, "", ""},
		{"lost", group, withoutNative, "w-0", "create podgroup"},
		{"lost, of all pods", whole, withoutNative, "", "create podgroup"},
		{"lost, of a leader that waited for the group before it", group, then(withoutNative, on("w-0", gated)), "w-0", "remove-gate pod w-0, create podgroup"},
		{"of another count", group, onNative(drift), "w-0", "apply podgroup"},
		{"of another count, of all pods", whole, onNative(drift), "", "apply podgroup"},
		{"without labels", group, onNative(func(o PodGroup) { o.SetLabels(nil) }), "w-0", "apply podgroup"},
		{"of another policy: no patch can change it", group, onNative(basic), "w-0", "| PodGroupDiffers!PodGroupDiffers"},
		{"with a gang that is not wanted", atLevel(gang.RoleLevel, 1, 2), onNative(byLeader), "w-0", "| PodGroupDiffers!PodGroupDiffers"},
		{"without its topology", inRack, onNative(lacks), "w-0", "| PodGroupDiffers!PodGroupDiffers"},
		{"without its topology, of another count", inRack, then(onNative(lacks), onNative(drift)), "w-0", "apply podgroup | PodGroupDiffers!PodGroupDiffers"},
		{"of another policy, of all pods", whole, onNative(basic), "", "status leaderworkerset w | PodGroupDiffers!PodGroupDiffers"},
		{"without an owner: none is adopted", group, onNative(func(o PodGroup) { o.SetOwnerReferences(nil) }), "w-0", "| NameConflict UnexpectedPodGroupOwner!UnexpectedPodGroupOwner"},
		{"terminating", group, onNative(func(o PodGroup) { o.SetDeletionTimestamp(&fakeTime) }), "w-0", "| WaitingForPreviousIncarnation"},
		{"no Workload", group, func(c *cluster) { delete(c.Objects, fakeapi.NameOf(workloadOf(c))) }, "w-0", "| WaitingForWorkload"},
		{"no Workload, the set", group, func(c *cluster) { delete(c.Objects, fakeapi.NameOf(workloadOf(c))) }, "", "create workload"},
		{"orphaned workers of a former leader", group, then(orphaned[StatefulSet]("w-0"), apart), "w-0", "delete statefulset w-0"},
		{"workers of a previous operator", group, then(apart, on("w-0-1", unscheduled)), "w-0", "delete pod w-0"},
		{"workers of a previous operator that run", group, apart, "w-0", ""},
		// The last pod of a group that was scaled away is a worker.
		{"a PodGroup whose last pod ended", atLevel(gang.ReplicaLevel, 2, 2), then(scaledTo(1), gone[StatefulSet]("w-1"), gone[Pod]("w-1", "w-1-1")), "", "delete podgroup, status leaderworkerset w"},
		{"a PodGroup whose worker goes on", atLevel(gang.ReplicaLevel, 2, 2), then(scaledTo(1), gone[StatefulSet]("w-1"), gone[Pod]("w-1"), leaving[Pod]("w-1-1", heldBy)), "", "status leaderworkerset w"},
	} {
		t.Run(d.name, func(t *testing.T) {
			c := d.of(t)
			d.happens(c)
			plan := c.decideSet()
			if d.about != "" {
				plan = c.decideGroup(d.about)
			}
			if w, differs := waitFor(plan, lws.CodePodGroupDiffers); differs && strings.Contains(d.name, "topology") != strings.Contains(w.Sentence, dropped) {
				t.Error(w.Sentence)
			}
			if w, is := waitFor(plan, lws.CodePodGroupOwner); is && w.Tell.On.UID != find[Pod](c, "w-0").UID {
				t.Errorf("the event is about %v", w.Tell.On)
			}
			expect.Equal(t, d.want, randomNames.ReplaceAllString(short(plan), "$1"))
			c.do(plan)
		})
	}
}

const dropped = "the API server dropped spec.schedulingConstraints; switch on its feature gate TopologyAwareWorkloadScheduling, "

// randomNames are those of Workloads and PodGroups.
var randomNames = regexp.MustCompile(`(podgroup|workload) [^ ,]+`)

// TestPodGroupsOf011Stay: their names have no incarnation. The next leader of the group has another.
func TestPodGroupsOf011Stay(t *testing.T) {
	c := atLevel(gang.ReplicaLevel, 1, 2)(t)
	withoutNative(c)
	for _, name := range []string{"w-0", "w-0-1"} {
		on(name, func(pod Pod) {
			pod.Annotations[lwsv1.WorkloadNameAnnotationKey] = gang.WorkloadName(find[Set](c, "w"))
			pod.Annotations[lwsv1.WorkloadSchedulingAnnotationKey] = "true" // an early form of replica
			*pod.Spec.SchedulingGroup.PodGroupName = gang.PodGroupName(pod)
		})(c)
	}
	c.settle()
	fault := ungrouped(c)
	expect.That(t, fault == "", "%v", fault)
	former := slices.Collect(maps.Keys(nativeGroups(c)))
	removed[Pod]("w-0")(c)
	c.settle()
	if fault := ungrouped(c); fault != "" || slices.Contains(slices.Collect(maps.Keys(nativeGroups(c))), former[0]) {
		t.Errorf("%s; PodGroups %v, and before %v", fault, nativeGroups(c), former)
	}
}

// TestPodsAreNeverWaitedForInVain changes a set at each level, in any order. No PodGroup waits for more pods than
// it has, and none stays without pods.
func TestPodsAreNeverWaitedForInVain(t *testing.T) {
	for level, edit := range levels {
		t.Run(string(level), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := natively(t, 2, 3, edit)
				for range rapid.IntRange(1, 3).Draw(t, "changes") {
					user(func(set Set) {
						set.Spec.Replicas = fakeapi.Ptr(rapid.Int32Range(0, 3).Draw(t, "replicas"))
						set.Spec.LeaderWorkerTemplate.Size = fakeapi.Ptr(rapid.Int32Range(2, 4).Draw(t, "size"))
						fakeapi.Image("image:" + rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "image"))(set)
					})(c)
					if rapid.Bool().Draw(t, "settles") {
						c.settle()
					} else {
						c.reconcileSet()
						c.turn()
					}
				}
				c.settle()
				if available := condition(c.status(), string(lwsv1.LeaderWorkerSetAvailable)); available.Status != metav1.ConditionTrue {
					t.Fatalf("pods are waited for in vain: %+v", available)
				}
				fault := ungrouped(c)
				expect.Must(t, fault == "", "%v", fault)
			})
		})
	}
}

// refusedCreate is the refusal of a create in other words than the operator's.
func refusedCreate(kind identity.Kind) error {
	return fmt.Errorf("attempt 2: %w", &action.WriteError{Verb: "create", Target: identity.Ref{Kind: kind, Name: "x"}, Err: forbidden("no")})
}

func TestWorkloadSchedulingCreated(t *testing.T) {
	for name, tt := range map[string]struct {
		happens      step
		status, says string
	}{
		"all exist":     {nothing, "True", "SchedulingObjectsCreated"},
		"of a stranger": {onNative(func(o PodGroup) { o.SetOwnerReferences(nil) }), "False", "PodGroupCreateFailed"},
		"terminating":   {onNative(func(o PodGroup) { o.SetDeletionTimestamp(&fakeTime); o.SetFinalizers([]string{heldBy}) }), "False", "PodGroupCleanupBlocked"},
		"of another policy, all pods": {func(c *cluster) {
			o := workloadOf(c).DeepCopy()
			_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{"name": "replica", "schedulingPolicy": map[string]any{"basic": map[string]any{}}}}, "spec", "podGroupTemplates")
			c.Put(o)
		}, "False", "PodGroupCreateFailed"},
		"a strange Workload": {func(c *cluster) {
			o := workloadOf(c).DeepCopy()
			strange(c, o)
			c.Put(o)
		}, "False", "WorkloadCreateFailed"},
		"a Workload that is refused, whatever the error says": {func(c *cluster) {
			delete(c.Objects, fakeapi.NameOf(workloadOf(c)))
			refusal, _ := action.RefusalOf(refusedCreate(identity.KindWorkload), c.Now)
			c.memory.Refused(find[Set](c, "w"), refusal)
		}, "False", "WorkloadCreateFailed"},
		"a PodGroup that is refused, whatever the error says": {func(c *cluster) {
			refusal, _ := action.RefusalOf(refusedCreate(identity.KindPodGroup), c.Now)
			c.memory.RefusedTo(find[Set](c, "w"), "w-0", []action.Refusal{refusal})
		}, "False", "PodGroupCreateFailed"},
	} {
		c := atLevel(gang.ReplicaLevel, 1, 2)(t)
		tt.happens(c)
		c.reconcileSet()
		got := condition(c.status(), string(lwsv1.LeaderWorkerSetWorkloadSchedulingCreated))
		expect.Equalf(t, tt.status, string(got.Status), "%s", name)
		expect.Equalf(t, tt.says, got.Reason, "%s: got %+v", name, got)
	}
}

var fakeTime = metav1.Time{Time: fakeapi.Epoch}

// TestNewSetsWaitForTheirWorkload: leaders are created once the scheduler knows the set.
func TestNewSetsWaitForTheirWorkload(t *testing.T) {
	c := newCluster(t)
	c.scheduler = gang.Kubernetes
	c.awake()
	fakeapi.Add(c.Server, fakeapi.Set("w", 2, 2, levels[gang.SetLevel]))
	var created []string
	for range 8 {
		plan := c.decideSet()
		for _, a := range plan.Actions {
			if a.About().Verb == "create" {
				created = append(created, strings.ToLower(string(a.Target().Kind)))
			}
		}
		c.do(plan)
	}
	order := []int{slices.Index(created, "workload"), slices.Index(created, "podgroup"), slices.Index(created, "statefulset")}
	expect.That(t, order[0] >= 0 && slices.IsSorted(order), "created %v", created)
}
