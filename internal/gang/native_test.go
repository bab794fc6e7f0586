package gang

import (
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

func nativeSet(scheduling lwsv1.Scheduling) *lwsv1.LeaderWorkerSet {
	return &lwsv1.LeaderWorkerSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: "5d8d0c39-5d57-4d1b-a4a5-2f2b0d1d8a53"},
		Spec: lwsv1.LeaderWorkerSetSpec{
			Replicas: new(int32(2)), Scheduling: &scheduling,
			LeaderWorkerTemplate: lwsv1.LeaderWorkerTemplate{Size: new(int32(4))},
		},
	}
}

var (
	wholeSet = lwsv1.Scheduling{SchedulingPolicy: &schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy{Gang: &schedulingv1alpha3.WorkloadCompositePodGroupGangSchedulingPolicy{}}}
	byRole   = lwsv1.Scheduling{Replica: &lwsv1.ReplicaScheduling{Worker: &lwsv1.RoleScheduling{
		SchedulingPolicy: &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{Gang: &schedulingv1alpha3.WorkloadPodGroupGangSchedulingPolicy{}},
	}}}
)

// podOf is a pod of group 1, as its StatefulSet creates it.
func podOf(set *lwsv1.LeaderWorkerSet, index string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		lwsv1.GroupIndexLabelKey: "1", lwsv1.WorkerIndexLabelKey: index, lwsv1.RevisionKey: "rev",
	}}}
	HandTo(pod, set)
	return pod
}

// TestPodsJoinPodGroups: at each level, a leader, its workers and the PodGroups that are created for them
// have the same names.
func TestPodsJoinPodGroups(t *testing.T) {
	const inc = `\.abcde`
	for level, test := range map[string]struct {
		scheduling     lwsv1.Scheduling
		leader, worker string
		objects        int
	}{
		"lws":     {wholeSet, "-lws", "-lws", 0},
		"replica": {lwsv1.Scheduling{}, inc + "-1-rev", inc + "-1-rev", 1},
		"role":    {byRole, inc + "-1-leader-rev", inc + "-1-worker-rev", 2},
	} {
		set := nativeSet(test.scheduling)
		leader, worker := podOf(set, "0"), podOf(set, "3")
		Join(leader, "abcde")
		Follow(worker, leader)
		Join(worker, "fghij")
		for pod, want := range map[*corev1.Pod]string{leader: test.leader, worker: test.worker} {
			got := *pod.Spec.SchedulingGroup.PodGroupName
			if !regexp.MustCompile("^" + regexp.QuoteMeta(WorkloadName(set)) + want + "$").MatchString(got) {
				t.Errorf("%s: pod is in %s, want …%s", level, got, want)
			}
		}
		objects, err := GroupPodGroups(set, &metav1.ObjectMeta{Name: WorkloadName(set), UID: "wl"}, leader, 4)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, object := range objects {
			names = append(names, object.GetName())
		}
		if diff := cmp.Diff(PodGroupNames(leader), names); len(names) != test.objects || diff != "" {
			t.Errorf("%s: %d PodGroups %s", level, len(names), diff)
		}
		if level != "lws" && !slices.Contains(names, *worker.Spec.SchedulingGroup.PodGroupName) {
			t.Errorf("%s: the worker waits for none of %v", level, names)
		}
		next := podOf(set, "0")
		if Join(next, "klmno"); level != "lws" && *next.Spec.SchedulingGroup.PodGroupName == *leader.Spec.SchedulingGroup.PodGroupName {
			t.Errorf("%s: the next leader has the PodGroup of its predecessor", level)
		}
	}
}

// TestWorkloadName: another implementation finds the Workload by the same name.
func TestWorkloadName(t *testing.T) {
	if got := WorkloadName(nativeSet(lwsv1.Scheduling{})); got != "w-5b8b454bbd" {
		t.Errorf("got %s", got)
	}
}

// TestLeadersWithKeysAddNothing: the key of a group is new, and so is the name of its PodGroup.
func TestLeadersWithKeysAddNothing(t *testing.T) {
	set := nativeSet(lwsv1.Scheduling{})
	leader := podOf(set, "0")
	leader.Labels[lwsv1.GroupIndexLabelKey], leader.Labels[lwsv1.GroupUniqueHashLabelKey] = "abc", "abc"
	Join(leader, "abcde")
	if got := *leader.Spec.SchedulingGroup.PodGroupName; got != WorkloadName(set)+"-abc-rev" {
		t.Errorf("got %s", got)
	}
}

func TestWorkload(t *testing.T) {
	set := nativeSet(byRole)
	workload, err := Workload(set)
	if err != nil {
		t.Fatal(err)
	}
	name := WorkloadName(set)
	owner := map[string]any{
		"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "w", "uid": string(set.UID), "controller": true, "blockOwnerDeletion": true,
	}
	want := map[string]any{
		"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload",
		"metadata": map[string]any{
			"namespace": "ns", "name": name, "labels": map[string]any{lwsv1.SetNameLabelKey: "w"}, "ownerReferences": []any{owner},
		},
		"spec": map[string]any{
			"controllerRef": map[string]any{"apiGroup": "leaderworkerset.x-k8s.io", "kind": "LeaderWorkerSet", "name": "w"},
			"podGroupTemplates": []any{
				map[string]any{"name": "leader", "schedulingPolicy": map[string]any{"basic": map[string]any{}}, "schedulingConstraints": nil},
				map[string]any{"name": "worker", "schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(3)}}, "schedulingConstraints": nil},
			},
		},
	}
	if diff := cmp.Diff(want, workload.Object); diff != "" {
		t.Error(diff)
	}
}

// TestOnlyCountsAndLabelsArePatched: a PodGroup of another size is outdated, and the patch has nothing that
// the API server would refuse to change.
func TestOnlyCountsAndLabelsArePatched(t *testing.T) {
	set, workload := nativeSet(wholeSet), &metav1.ObjectMeta{Name: "wl", UID: "wl"}
	have, err := SetPodGroup(set, workload, 8)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := SetPodGroup(set, workload, 4)
	if IsOutdated(have, have) || !IsOutdated(have, want) {
		t.Error("counts are not compared")
	}
	if diff := cmp.Diff(Fixed(want), Fixed(have)); diff != "" {
		t.Errorf("counts are fixed: %s", diff)
	}
	spec := map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(4)}}}
	if diff := cmp.Diff(spec, Part(want).Object["spec"]); diff != "" {
		t.Error(diff)
	}
	described, _ := Workload(set)
	templates, _, _ := unstructured.NestedSlice(Part(described).Object, "spec", "podGroupTemplates")
	if diff := cmp.Diff([]any{map[string]any{"name": "lws", "schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(8)}}}}, templates); diff != "" {
		t.Error(diff)
	}
}

// TestMinCountIsNeverMoreThanCanExist: the pods of leaders that exist, and of those that the StatefulSet creates
// at any size that a group has. A set in service at one size waits for all that it asks for.
func TestMinCountIsNeverMoreThanCanExist(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, from, to int32) int32 { return rapid.Int32Range(from, to).Draw(t, name) }
		replicas, serving := draw("replicas", 0, 6), draw("serving", 0, 8)
		templates := []int32{draw("size", 1, 5), draw("size before", 1, 5)}
		size, sizes, stopped, known := templates[0], map[int32]int32{}, map[int32]bool{}, map[int32]bool{templates[0]: true}
		for index := range int32(10) {
			if rapid.Bool().Draw(t, "has a leader") {
				sizes[index] = rapid.SampledFrom(templates).Draw(t, "size of a group")
				known[sizes[index]] = true
			}
			stopped[index] = draw("is stopped", 0, 9) == 0
		}
		var can, least int32
		var inService []int32
		for index := range serving {
			each := rapid.SampledFrom(slices.Sorted(maps.Keys(known))).Draw(t, "size to come")
			smallest := slices.Min(slices.Collect(maps.Keys(known)))
			if has, leads := sizes[index]; leads {
				each, smallest = has, has
			}
			switch _, leads := sizes[index]; {
			case stopped[index]:
				inService = append(inService, 0)
				continue
			case leads:
				inService = append(inService, sizes[index])
			}
			can, least = can+each, least+smallest
		}
		got := MinCount(replicas, size, inService, serving-int32(len(inService)), slices.Min(slices.Collect(maps.Keys(known))))
		if got < 1 || got > max(1, min(replicas*size, can)) {
			t.Fatalf("%d pods are waited for, %d are asked for and %d can exist", got, replicas*size, can)
		}
		if got < min(replicas*size, least) {
			t.Fatalf("%d pods are waited for, %d are asked for and at least %d will exist", got, replicas*size, least)
		}
		isPlain := serving >= replicas && len(known) == 1 && !slices.Contains(slices.Collect(maps.Values(stopped)), true)
		if isPlain && got != max(1, replicas*size) {
			t.Fatalf("%d pods are waited for, %d are asked for", got, replicas*size)
		}
	})
}

// A number of groups is not counted group by group.
func TestMinCountOfGroupsThatDoNotExist(t *testing.T) {
	start := time.Now()
	if got := MinCount(2_000_000, 8, []int32{4, 0, 0}, 1_000_000_000, 4); got != 16_000_000 {
		t.Errorf("got %d", got)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("it took %s", took)
	}
}
