package gang

import (
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/expect"
)

func pod(edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w-1", Labels: map[string]string{
		lwsv1.SetNameLabelKey: "w", lwsv1.GroupIndexLabelKey: "1", lwsv1.RevisionKey: "abc",
	}}}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func tied(to string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{"scheduling.k8s.io/group-name": to} }
}

func TestOnlyPodsThatWereTiedToTheirOwnGroupAreOfAGang(t *testing.T) {
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want bool
	}{
		{"tied to its group", pod(tied("w-1-abc")), true},
		{"tied by its user to something else", pod(tied("mine")), false},
		{"tied to the group of another revision", pod(tied("w-1-old")), false},
	} {
		expect.Equalf(t, tt.want, IsTied(tt.pod), "%s", tt.name)
	}
}

func TestASetMayDifferFromTheConfiguration(t *testing.T) {
	for _, tt := range []struct {
		annotation string
		otherwise  bool
		want       bool
	}{
		{"", false, false},
		{"", true, true},
		{"none", true, false},
		{"volcano", false, true},
		{"nobody", true, false},
	} {
		set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{lwsv1.GangSchedulerAnnotationKey: tt.annotation}}}
		expect.Equalf(t, tt.want, IsWanted(set, tt.otherwise), "%q with %v", tt.annotation, tt.otherwise)
	}
}

// group is one of two pods that ask for a processor each.
func group(edits ...func(*Group)) Group {
	g := Group{
		Namespace: "ns", Name: "w-1-abc",
		Labels:       map[string]string{lwsv1.SetNameLabelKey: "w"},
		Annotations:  map[string]string{"volcano.sh/x": "1", "other": "2"},
		MinMember:    2,
		MinResources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
	}
	for _, edit := range edits {
		edit(&g)
	}
	return g
}

func TestAPodGroupSaysWhatTheGroupIs(t *testing.T) {
	queued := group(func(g *Group) { g.Annotations[lwsv1.QueueNameAnnotationKey] = "q" })
	want := map[string]any{
		"apiVersion": "scheduling.volcano.sh/v1beta1",
		"kind":       "PodGroup",
		"metadata": map[string]any{
			"namespace": "ns", "name": "w-1-abc",
			"labels":      map[string]any{lwsv1.SetNameLabelKey: "w"},
			"annotations": map[string]any{"volcano.sh/x": "1", FromSetAnnotationKey: lwsv1.QueueNameAnnotationKey + ",volcano.sh/x"},
		},
		"spec": map[string]any{"minMember": int64(2), "minResources": map[string]any{"cpu": "2"}, "queue": "q"},
	}
	expect.Equal(t, want, Object(queued).Object)
}

// Volcano skips the checks of a queue for a PodGroup without minResources.
func TestAPodGroupWithoutRequestsHasEmptyMinResources(t *testing.T) {
	bare := Object(group(func(g *Group) { g.MinResources = nil }))
	want := map[string]any{"minMember": int64(2), "minResources": map[string]any{}}
	expect.Equalf[any](t, want, bare.Object["spec"], "spec")
	without := bare.DeepCopy()
	unstructured.RemoveNestedField(without.Object, "spec", "minResources")
	expect.That(t, !InStep(without, bare), "a PodGroup without minResources is not corrected")
}

func TestDriftOfAPodGroup(t *testing.T) {
	set := func(value any, fields ...string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, value, fields...) }
	}
	for _, tt := range []struct {
		name   string
		change func(*unstructured.Unstructured)
		want   bool
	}{
		{"as made", func(*unstructured.Unstructured) {}, true},
		{"a quantity in other words", set("2000m", "spec", "minResources", "cpu"), true},
		{"a queue that the scheduler chose", set("default", "spec", "queue"), true},
		{"a field of the scheduler's", set(int64(3), "spec", "minTaskMember"), true},
		{"an annotation of another manager", set("y", "metadata", "annotations", "x"), true},
		{"another size", set(int64(1), "spec", "minMember"), false},
		{"less of a resource", set("1", "spec", "minResources", "cpu"), false},
		{"more resources", set("1", "spec", "minResources", "memory"), false},
		{"a resource that is no quantity", set("a lot", "spec", "minResources", "cpu"), false},
		{"another label", set("v", "metadata", "labels", lwsv1.SetNameLabelKey), false},
		{"no annotations", func(o *unstructured.Unstructured) { o.SetAnnotations(nil) }, false},
		{"nothing at all", func(o *unstructured.Unstructured) { o.Object = map[string]any{} }, false},
	} {
		want := Object(group())
		have := want.DeepCopy()
		tt.change(have)
		expect.Equalf(t, tt.want, InStep(have, want), "%s: in step", tt.name)
	}
	queued := Object(group(func(g *Group) { g.Annotations[lwsv1.QueueNameAnnotationKey] = "q" }))
	expect.That(t, !InStep(Object(group()), queued), "a queue that is missing goes unnoticed")
	expect.That(t, !InStep(queued, Object(group())), "a queue that the set does not name any more goes unnoticed")
	silent := group(func(g *Group) { g.Annotations = nil })
	expect.That(t, !InStep(Object(group()), Object(silent)),
		"an annotation that the set does not have any more goes unnoticed")
	inherited := Object(group())
	inherited.SetAnnotations(map[string]string{"volcano.sh/x": "1"})
	expect.That(t, InStep(inherited, Object(group())), "one that another implementation made is written for nothing")
}

func asks(requests, limits string) corev1.Container {
	list := func(quantity string) corev1.ResourceList {
		if quantity == "" {
			return nil
		}
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
	}
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}}
}

func TestResourcesAreThoseOfTheWholeGroup(t *testing.T) {
	template := func(init, containers []corev1.Container) *corev1.PodTemplateSpec {
		return &corev1.PodTemplateSpec{Spec: corev1.PodSpec{InitContainers: init, Containers: containers}}
	}
	one := template(nil, []corev1.Container{asks("1", "")})
	always := corev1.ContainerRestartPolicyAlways
	sidecar := asks("1", "")
	sidecar.RestartPolicy = &always
	limited := func(containers ...corev1.Container) *corev1.PodTemplateSpec {
		whole := template(nil, containers)
		asked := asks("", "8").Resources
		whole.Spec.Resources = &asked
		return whole
	}
	overhead := one.DeepCopy()
	overhead.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	for _, tt := range []struct {
		name           string
		leader, worker *corev1.PodTemplateSpec
		size           int32
		want           string
	}{
		{"every pod counts", one, one, 4, "4"},
		{"the leader asks for what it asks for", template(nil, []corev1.Container{asks("3", "")}), one, 2, "4"},
		{"a group of one has no workers", one, template(nil, []corev1.Container{asks("9", "")}), 1, "1"},
		{"containers add up", template(nil, []corev1.Container{asks("1", ""), asks("2", "")}), one, 1, "3"},
		{"an init container may ask for more", template([]corev1.Container{asks("5", "")}, []corev1.Container{asks("1", "")}), one, 1, "5"},
		{"a sidecar runs beside", template([]corev1.Container{sidecar}, []corev1.Container{asks("1", "")}), one, 1, "2"},
		{"overhead counts", overhead, one, 1, "1500m"},
		{"who only limits asks for as much", template(nil, []corev1.Container{asks("", "2")}), one, 1, "2"},
		{"a pod that is only limited as a whole asks for as much", limited(corev1.Container{}), one, 1, "8"},
		{"a pod whose containers ask is not taken at its limit", limited(asks("1", ""), asks("2", "")), one, 1, "3"},
		{"who asks is not taken at the limit", template(nil, []corev1.Container{asks("1", "2")}), one, 1, "1"},
	} {
		before := tt.leader.DeepCopy()
		got := Resources(tt.leader, tt.worker, tt.size)
		cpu := got[corev1.ResourceCPU]
		expect.That(t, cpu.Cmp(resource.MustParse(tt.want)) == 0, "%s: got %s, want %s", tt.name, cpu.String(), tt.want)
		expect.Equalf(t, before, tt.leader, "%s: the template was changed", tt.name)
	}
	expect.Equalf(t, 0, len(Resources(template(nil, []corev1.Container{{}}), one, 0)), "who asks for nothing")
}

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
	HandTo(&pod.ObjectMeta, set)
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
		Follow(&worker.ObjectMeta, leader)
		Join(worker, "fghij")
		for pod, want := range map[*corev1.Pod]string{leader: test.leader, worker: test.worker} {
			got := *pod.Spec.SchedulingGroup.PodGroupName
			expect.That(t, regexp.MustCompile("^"+regexp.QuoteMeta(WorkloadName(set))+want+"$").MatchString(got),
				"%s: pod is in %s, want …%s", level, got, want)
		}
		objects := expect.Value(GroupPodGroups(set, &metav1.ObjectMeta{Name: WorkloadName(set), UID: "wl"}, leader, 4))(t)
		var names []string
		for _, object := range objects {
			names = append(names, object.GetName())
		}
		expect.Equalf(t, test.objects, len(names), "%s: PodGroups", level)
		expect.Equalf(t, PodGroupNames(leader), names, "%s", level)
		expect.That(t, level == "lws" || slices.Contains(names, *worker.Spec.SchedulingGroup.PodGroupName),
			"%s: the worker waits for none of %v", level, names)
		next := podOf(set, "0")
		if Join(next, "klmno"); level != "lws" && *next.Spec.SchedulingGroup.PodGroupName == *leader.Spec.SchedulingGroup.PodGroupName {
			t.Errorf("%s: the next leader has the PodGroup of its predecessor", level)
		}
	}
}

// TestWorkloadName: another implementation finds the Workload by the same name.
func TestWorkloadName(t *testing.T) {
	expect.Equal(t, "w-5b8b454bbd", WorkloadName(nativeSet(lwsv1.Scheduling{})))
}

// TestLeadersWithKeysAddNothing: the key of a group is new, and so is the name of its PodGroup.
func TestLeadersWithKeysAddNothing(t *testing.T) {
	set := nativeSet(lwsv1.Scheduling{})
	leader := podOf(set, "0")
	leader.Labels[lwsv1.GroupIndexLabelKey], leader.Labels[lwsv1.GroupUniqueHashLabelKey] = "abc", "abc"
	Join(leader, "abcde")
	expect.Equal(t, WorkloadName(set)+"-abc-rev", *leader.Spec.SchedulingGroup.PodGroupName)
}

func TestWorkload(t *testing.T) {
	set := nativeSet(byRole)
	workload := expect.Value(Workload(set))(t)
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
	expect.Equal(t, want, workload.Object)
}

// TestOnlyCountsAndLabelsArePatched: a PodGroup of another size is outdated, and the patch has nothing that
// the API server would refuse to change.
func TestOnlyCountsAndLabelsArePatched(t *testing.T) {
	set, workload := nativeSet(wholeSet), &metav1.ObjectMeta{Name: "wl", UID: "wl"}
	have := expect.Value(SetPodGroup(set, workload, 8))(t)
	want, _ := SetPodGroup(set, workload, 4)
	expect.That(t, !IsOutdated(have, have) && IsOutdated(have, want), "counts are not compared")
	expect.Equalf(t, Fixed(want), Fixed(have), "counts are fixed")
	spec := map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(4)}}}
	expect.Equal[any](t, spec, Part(want).Object["spec"])
	described, _ := Workload(set)
	templates, _, _ := unstructured.NestedSlice(Part(described).Object, "spec", "podGroupTemplates")
	expect.Equal(t, []any{map[string]any{"name": "lws", "schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(8)}}}}, templates)
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
		expect.Must(t, got >= 1 && got <= max(1, min(replicas*size, can)),
			"%d pods are waited for, %d are asked for and %d can exist", got, replicas*size, can)
		expect.Must(t, got >= min(replicas*size, least),
			"%d pods are waited for, %d are asked for and at least %d will exist", got, replicas*size, least)
		isPlain := serving >= replicas && len(known) == 1 && !slices.Contains(slices.Collect(maps.Values(stopped)), true)
		expect.Must(t, !isPlain || got == max(1, replicas*size),
			"%d pods are waited for, %d are asked for", got, replicas*size)
	})
}

// A number of groups is not counted group by group.
func TestMinCountOfGroupsThatDoNotExist(t *testing.T) {
	start := time.Now()
	expect.Equal(t, 16_000_000, MinCount(2_000_000, 8, []int32{4, 0, 0}, 1_000_000_000, 4))
	took := time.Since(start)
	expect.That(t, took <= time.Second, "it took %s", took)
}
