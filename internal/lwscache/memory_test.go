package lwscache

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

var (
	awake = time.Unix(1_000_000, 0)
	set   = types.NamespacedName{Namespace: "ns", Name: "w"}
)

func after(seconds int) time.Time { return awake.Add(time.Duration(seconds) * time.Second) }

func ghost(uid types.UID, leader bool) presence {
	return presence{Ref: identity.Ref{Kind: identity.KindPod, Namespace: "ns", Name: "w-" + string(uid), UID: uid}, taken: leader}
}

func TestAVigilNotesWhoComesAndWhoLeaves(t *testing.T) {
	m := NewMemory(awake)
	a, b, worker := ghost("a", true), ghost("b", true), ghost("worker", false)
	steps := []struct {
		name    string
		at      int
		present []presence
		want    lws.Vigil
	}{
		{"nobody yet", 1, nil, lws.Vigil{Awake: awake}},
		{"one comes", 2, []presence{a}, lws.Vigil{Awake: awake, Moved: after(2), Seen: map[types.UID]time.Time{"a": after(2)}}},
		{"nobody moves", 3, []presence{a}, lws.Vigil{Awake: awake, Moved: after(2), Seen: map[types.UID]time.Time{"a": after(2)}}},
		{"two more come", 4, []presence{a, b, worker}, lws.Vigil{Awake: awake, Moved: after(4), Seen: map[types.UID]time.Time{"a": after(2), "b": after(4), "worker": after(4)}}},
		{"a leader leaves", 5, []presence{b, worker}, lws.Vigil{
			Awake: awake, Moved: after(5), Seen: map[types.UID]time.Time{"b": after(4), "worker": after(4)}, Departed: a.Ref,
		}},
		{"a worker leaves", 6, []presence{b}, lws.Vigil{
			Awake: awake, Moved: after(6), Seen: map[types.UID]time.Time{"b": after(4)}, Departed: a.Ref,
		}},
		{"the last leaves", 7, nil, lws.Vigil{
			Awake: awake, Moved: after(7), Seen: map[types.UID]time.Time{}, Departed: b.Ref,
		}},
	}
	for _, step := range steps {
		if diff := cmp.Diff(step.want, m.watchOver(set, step.present, after(step.at))); diff != "" {
			t.Errorf("%s (-want +got)\n%s", step.name, diff)
		}
	}
}

func TestAVigilHandedOutDoesNotChange(t *testing.T) {
	m := NewMemory(awake)
	first := m.watchOver(set, []presence{ghost("a", true)}, after(1))
	m.watchOver(set, []presence{ghost("b", true)}, after(2))
	if diff := cmp.Diff(map[types.UID]time.Time{"a": after(1)}, first.Seen); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestWatchesTellsWhoIsWaitedFor(t *testing.T) {
	m := NewMemory(awake)
	m.watchOver(set, []presence{ghost("a", false)}, after(1))
	other := types.NamespacedName{Namespace: "other", Name: "w"}
	if !m.Watches(set, "a") || m.Watches(set, "b") || m.Watches(other, "a") {
		t.Errorf("got %t, %t, %t", m.Watches(set, "a"), m.Watches(set, "b"), m.Watches(other, "a"))
	}
	m.watchOver(set, nil, after(2))
	if m.Watches(set, "a") {
		t.Error("who left is waited for")
	}
}

// A webhook that fails every other call had each step of a rollout wait as long as it had
// failed since the first.
func TestARefusalAfterASuccessIsTheFirst(t *testing.T) {
	m, set := NewMemory(awake), &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: "1"}}
	at := func(seconds int) lws.Refusal {
		return lws.Refusal{Sentence: "no", At: after(seconds), Since: after(seconds)}
	}
	m.Refused(set, at(0))
	if going := m.Refused(set, at(20)); !going.Since.Equal(after(0)) {
		t.Errorf("refused since %s", going.Since)
	}
	m.Applied(set, lws.Applied{Generation: 3})
	if left := m.writesOf(set).refusalOf(set); left != (lws.Refusal{}) {
		t.Errorf("%+v is left of it", left)
	}
	if going := m.Refused(set, at(40)); !going.Since.Equal(after(40)) {
		t.Errorf("refused since %s, and taken after that", going.Since)
	}
}

func TestWhatIsForgotten(t *testing.T) {
	m := NewMemory(awake)
	group := types.NamespacedName{Namespace: "ns", Name: "group/w-0"}
	life := func(uid types.UID) client.Object {
		return &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: uid}}
	}
	m.watchOver(set, []presence{ghost("a", true)}, after(1))
	m.watchOver(group, []presence{ghost("a", true)}, after(1))
	m.StatusWritten(life("1"), after(1))
	m.Applied(life("1"), lws.Applied{Generation: 3})
	if w := m.writesOf(life("1")); !w.statusAt.Equal(after(1)) || w.applied.Generation != 3 {
		t.Errorf("got %+v", w)
	}
	if w := m.writesOf(life("2")); !w.statusAt.IsZero() || w.applied.Generation != 0 {
		t.Errorf("the next life remembers %+v", w)
	}
	m.relax(group)
	if !m.Watches(group, "a") {
		t.Error("a ghost that is there is forgotten")
	}
	m.watchOver(group, nil, after(2))
	m.relax(group)
	m.forget(set)
	if len(m.vigils)+len(m.written) != 0 {
		t.Errorf("remembered: %v, %v", m.vigils, m.written)
	}
}

func TestClaimKeys(t *testing.T) {
	owned := func(meta metav1.ObjectMeta) metav1.ObjectMeta {
		yes := true
		meta.OwnerReferences = []metav1.OwnerReference{{UID: "not the controller"}, {UID: "u", Controller: &yes}}
		return meta
	}
	labels := map[string]string{lwsv1.SetNameLabelKey: "w"}
	tests := []struct {
		name   string
		object client.Object
		want   []string
	}{
		{"a leader", &corev1.Pod{ObjectMeta: owned(metav1.ObjectMeta{Name: "w-0"})}, []string{"name:w"}},
		{"a worker", &corev1.Pod{ObjectMeta: owned(metav1.ObjectMeta{Name: "w-0-1"})}, []string{"name:w-0", "under:w"}},
		{"a worker of a set whose name ends in a number", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w-0-1-2"}}, []string{"name:w-0-1", "under:w-0"}},
		{"a worker StatefulSet", &appsv1.StatefulSet{ObjectMeta: owned(metav1.ObjectMeta{Name: "w-0"})}, []string{"name:w"}},
		{"a leader StatefulSet", &appsv1.StatefulSet{ObjectMeta: owned(metav1.ObjectMeta{Name: "w"})}, nil},
		{"nobody's", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w-0", Labels: labels}}, []string{"name:w"}},
		{"no ordinal", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w", Labels: labels}}, nil},
		{"a name that no StatefulSet gives", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w-007", Labels: labels}}, nil},
		{"a revision", &appsv1.ControllerRevision{ObjectMeta: owned(metav1.ObjectMeta{Name: "w-x-1", Labels: labels})}, []string{"uid:u", "name:w"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, claimKeys(tt.object)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.name, diff)
		}
	}
}

func TestTrimPodKeepsWhatDecisionsRead(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "w-0", Labels: map[string]string{lwsv1.SetNameLabelKey: "w"}, Finalizers: []string{"f"},
			Annotations:   map[string]string{lwsv1.SizeAnnotationKey: "3", "big": "x"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "n", Volumes: []corev1.Volume{{Name: "v"}},
			Containers: []corev1.Container{{Name: "c", Image: "i", Command: []string{"x"}, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"google.com/tpu": resource.MustParse("4")}}}, {Name: "plain", Image: "i"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	want := pod.DeepCopy()
	want.ManagedFields, want.Annotations = nil, map[string]string{lwsv1.SizeAnnotationKey: "3"}
	want.Spec = corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i", Resources: pod.Spec.Containers[0].Resources}}}
	got, err := trimPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
