package gang_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
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
	tests := []struct {
		name string
		pod  *corev1.Pod
		want bool
	}{
		{"tied to its group", pod(tied("w-1-abc")), true},
		{"tied by its user to something else", pod(tied("mine")), false},
		{"tied to the group of another revision", pod(tied("w-1-old")), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := gang.IsTied(tt.pod); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestASetMayDifferFromTheConfiguration(t *testing.T) {
	tests := []struct {
		annotation string
		otherwise  bool
		want       bool
	}{
		{"", false, false},
		{"", true, true},
		{"none", true, false},
		{"volcano", false, true},
		{"nobody", true, false},
	}
	for _, tt := range tests {
		set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{lwsv1.GangSchedulerAnnotationKey: tt.annotation}}}
		if got := gang.IsWanted(set, tt.otherwise); got != tt.want {
			t.Errorf("%q with %v: got %v, want %v", tt.annotation, tt.otherwise, got, tt.want)
		}
	}
}

// group is one of two pods that ask for a processor each.
func group(edits ...func(*gang.Group)) gang.Group {
	g := gang.Group{
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
	queued := group(func(g *gang.Group) { g.Annotations[lwsv1.QueueNameAnnotationKey] = "q" })
	want := map[string]any{
		"apiVersion": "scheduling.volcano.sh/v1beta1",
		"kind":       "PodGroup",
		"metadata": map[string]any{
			"namespace": "ns", "name": "w-1-abc",
			"labels":      map[string]any{lwsv1.SetNameLabelKey: "w"},
			"annotations": map[string]any{"volcano.sh/x": "1", gang.FromSetAnnotationKey: lwsv1.QueueNameAnnotationKey + ",volcano.sh/x"},
		},
		"spec": map[string]any{"minMember": int64(2), "minResources": map[string]any{"cpu": "2"}, "queue": "q"},
	}
	if diff := cmp.Diff(want, gang.Object(queued).Object); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Volcano skips the checks of a queue for a PodGroup without minResources.
func TestAPodGroupWithoutRequestsHasEmptyMinResources(t *testing.T) {
	bare := gang.Object(group(func(g *gang.Group) { g.MinResources = nil }))
	want := map[string]any{"minMember": int64(2), "minResources": map[string]any{}}
	if diff := cmp.Diff(want, bare.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got)\n%s", diff)
	}
	without := bare.DeepCopy()
	unstructured.RemoveNestedField(without.Object, "spec", "minResources")
	if gang.InStep(without, bare) {
		t.Error("a PodGroup without minResources is not corrected")
	}
}

func TestDriftOfAPodGroup(t *testing.T) {
	set := func(value any, fields ...string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, value, fields...) }
	}
	tests := []struct {
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := gang.Object(group())
			have := want.DeepCopy()
			tt.change(have)
			if got := gang.InStep(have, want); got != tt.want {
				t.Errorf("in step is %t", got)
			}
		})
	}
	queued := gang.Object(group(func(g *gang.Group) { g.Annotations[lwsv1.QueueNameAnnotationKey] = "q" }))
	if gang.InStep(gang.Object(group()), queued) {
		t.Error("a queue that is missing goes unnoticed")
	}
	if gang.InStep(queued, gang.Object(group())) {
		t.Error("a queue that the set does not name any more goes unnoticed")
	}
	silent := group(func(g *gang.Group) { g.Annotations = nil })
	if gang.InStep(gang.Object(group()), gang.Object(silent)) {
		t.Error("an annotation that the set does not have any more goes unnoticed")
	}
	inherited := gang.Object(group())
	inherited.SetAnnotations(map[string]string{"volcano.sh/x": "1"})
	if !gang.InStep(inherited, gang.Object(group())) {
		t.Error("one that another implementation made is written for nothing")
	}
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
	tests := []struct {
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.leader.DeepCopy()
			got := gang.Resources(tt.leader, tt.worker, tt.size)
			if cpu := got[corev1.ResourceCPU]; cpu.Cmp(resource.MustParse(tt.want)) != 0 {
				t.Errorf("got %s, want %s", cpu.String(), tt.want)
			}
			if diff := cmp.Diff(before, tt.leader); diff != "" {
				t.Errorf("the template was changed\n%s", diff)
			}
		})
	}
	if got := gang.Resources(template(nil, []corev1.Container{{}}), one, 0); len(got) != 0 {
		t.Errorf("who asks for nothing: got %v", got)
	}
}
