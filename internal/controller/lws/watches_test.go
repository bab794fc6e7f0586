package lws

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/test/fakeapi"
)

func meta(name, set string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: name, UID: types.UID(name)}
	if set != "" {
		m.Labels = map[string]string{lwsv1.SetNameLabelKey: set}
	}
	return m
}

func names(keys []types.NamespacedName) (all []string) {
	for _, key := range keys {
		if key.Namespace != fakeapi.Namespace {
			all = append(all, key.Namespace+" is another namespace")
		}
		all = append(all, key.Name)
	}
	return all
}

// relabelled is a revision of set w that somebody gave another set's name.
func relabelled() *appsv1.ControllerRevision {
	revision := &appsv1.ControllerRevision{ObjectMeta: meta("w-x-1", "v")}
	revision.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "w", UID: "u"}, lwsv1.GroupVersion.WithKind("LeaderWorkerSet"))}
	return revision
}

// historyOf is a revision that a StatefulSet made of itself: it bears its pods' labels.
func historyOf(sts, set string) client.Object {
	revision := &appsv1.ControllerRevision{ObjectMeta: meta(sts+"-5f6d7", set)}
	revision.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: sts, UID: "u"}, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	return revision
}

func TestWhomAnEventConcerns(t *testing.T) {
	memory := lwscache.NewMemory()
	pod := func(name, set string) client.Object { return &corev1.Pod{ObjectMeta: meta(name, set)} }
	sts := func(name, set string) client.Object { return &appsv1.StatefulSet{ObjectMeta: meta(name, set)} }
	tests := []struct {
		name   string
		keys   keysOf
		object client.Object
		want   []string
	}{
		{"a leader statefulset: its set", setsOf, sts("w", "w"), []string{"w"}},
		{"a worker statefulset: its set, and the set of its name", setsOf, sts("w-0", "w"), []string{"w", "w-0"}},
		{"a statefulset without labels: the set of its name", setsOf, sts("w", ""), []string{"w"}},
		{"a revision: its set", setOfRevision, &appsv1.ControllerRevision{ObjectMeta: meta("w-x-1", "w")}, []string{"w"}},
		{"a revision under the name of another: that set, and its own", setOfRevision, relabelled(), []string{"v", "w"}},
		{"a statefulset's own history: nobody", setOfRevision, historyOf("w-0", "w"), nil},
		{"a leader: its set", setOfPod(memory), pod("w-0", "w"), []string{"w"}},
		{"a worker: no set", setOfPod(memory), pod("w-0-1", "w"), nil},
		{"a leader: its group", groupOfPod, pod("w-0", "w"), []string{"w-0"}},
		{"a worker: its group", groupOfPod, pod("w-0-1", "w"), []string{"w-0"}},
		{"a leader of a set whose name ends in a number: a worker's name, too", groupOfPod, pod("w-0-1", "w-0"), []string{"w-0-1", "w-0"}},
		{"a pod without a number", groupOfPod, pod("w", "w"), nil},
		{"a service: the group of its name", byOwnName, &corev1.Service{ObjectMeta: meta("w-0", "w")}, []string{"w-0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, names(tt.keys(tt.object))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// watched is an observer on a fake store.
func watched(t *testing.T) (*fakeapi.Server, *lwscache.Observer, *lwscache.Memory) {
	t.Helper()
	store := fakeapi.New()
	if err := lwscache.Index(context.Background(), store); err != nil {
		t.Fatal(err)
	}
	memory := lwscache.NewMemory()
	return store, lwscache.New(store.Cached(), store.Live(), memory), memory
}

func TestAGhostsDepartureWakesEverySetThatWaitsForIt(t *testing.T) {
	store, observer, memory := watched(t)
	fakeapi.Add(store, fakeapi.Set("a-1", 2, 1))
	// A worker of set a, which is no more, bears the name of a leader of set a-1.
	fakeapi.Add(store, fakeapi.Pod("a-1-1", "a", 1))
	ghost := fakeapi.Terminate[*corev1.Pod](store, "a-1-1", "example.com/stuck")
	key := types.NamespacedName{Namespace: fakeapi.Namespace, Name: "a-1"}
	if w, err := observer.Set(context.Background(), key, store.Now); err != nil || len(w.Leaders.Previous) != 1 {
		t.Fatalf("got %+v, %v", w.Leaders, err)
	}
	if diff := cmp.Diff([]string{"a-1"}, names(setOfPod(memory)(ghost))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestGroupsOfASet(t *testing.T) {
	store, observer, _ := watched(t)
	for _, pod := range []string{"w-0", "w-1", "w-0-1", "v-0"} {
		fakeapi.Add(store, fakeapi.Pod(pod, "w", 0))
	}
	tests := []struct {
		name   string
		keys   keysOf
		object client.Object
		want   []string
	}{
		{"of a set", groupsOf(observer, keyOf), &lwsv1.LeaderWorkerSet{ObjectMeta: meta("w", "")}, []string{"w-0", "w-1"}},
		{"of a revision's set", groupsOfRevision(observer), &appsv1.ControllerRevision{ObjectMeta: meta("w-x-1", "w")}, []string{"w-0", "w-1"}},
		{"of a statefulset's own history", groupsOfRevision(observer), historyOf("w-0", "w"), nil},
		{"of a leader statefulset", groupsOfStatefulSet(observer), &appsv1.StatefulSet{ObjectMeta: meta("w", "w")}, []string{"w", "w-0", "w-1"}},
		{"of a worker statefulset", groupsOfStatefulSet(observer), &appsv1.StatefulSet{ObjectMeta: meta("w-0", "w")}, []string{"w-0"}},
		{"of a set without leaders", groupsOf(observer, keyOf), &lwsv1.LeaderWorkerSet{ObjectMeta: meta("x", "")}, nil},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, names(tt.keys(tt.object))); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.name, diff)
		}
	}
}

func TestWhichUpdatesMatter(t *testing.T) {
	leader := func(edits ...func(*corev1.Pod)) client.Object {
		pod := fakeapi.Pod("w-0", "w", 0)
		fakeapi.Up(pod)
		for _, edit := range edits {
			edit(pod)
		}
		return pod
	}
	sts := func(edits ...func(*appsv1.StatefulSet)) client.Object {
		s := &appsv1.StatefulSet{ObjectMeta: meta("w", "w")}
		for _, edit := range edits {
			edit(s)
		}
		return s
	}
	set := func(edits ...func(*lwsv1.LeaderWorkerSet)) client.Object { return fakeapi.Set("w", 1, 1, edits...) }
	service := func(owner types.UID) client.Object {
		s := &corev1.Service{ObjectMeta: meta("w", "w")}
		s.OwnerReferences = []metav1.OwnerReference{{UID: owner}}
		return s
	}
	now := &metav1.Time{Time: time.Unix(1, 0)}
	tests := []struct {
		name          string
		matters       func(before, after client.Object) bool
		before, after client.Object
		want          bool
	}{
		{"pod: nothing", podProgress, leader(), leader(), false},
		{"pod: an address", podProgress, leader(), leader(func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" }), false},
		{"pod: not ready", podProgress, leader(), leader(func(p *corev1.Pod) { p.Status.Conditions = nil }), true},
		{"pod: phase", podProgress, leader(), leader(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), true},
		{"pod: a restart", podProgress, leader(), leader(func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}} }), true},
		{"pod: node", podProgress, leader(), leader(func(p *corev1.Pod) { p.Spec.NodeName = "n" }), true},
		{"pod: going", podProgress, leader(), leader(func(p *corev1.Pod) { p.DeletionTimestamp = now }), true},
		{"pod: labels", podProgress, leader(), leader(func(p *corev1.Pod) { p.Labels["x"] = "y" }), true},
		{"statefulset: nothing", statefulSetProgress, sts(), sts(func(s *appsv1.StatefulSet) { s.Annotations = map[string]string{"x": "y"} }), false},
		{"statefulset: status", statefulSetProgress, sts(), sts(func(s *appsv1.StatefulSet) { s.Status.AvailableReplicas = 1 }), true},
		{"statefulset: spec", statefulSetProgress, sts(), sts(func(s *appsv1.StatefulSet) { s.Generation = 2 }), true},
		{"statefulset: taken as it was found no more", statefulSetProgress, sts(func(s *appsv1.StatefulSet) { s.Annotations = map[string]string{lws.AsFoundAnnotationKey: "k"} }), sts(), true},
		{"statefulset: labels", statefulSetProgress, sts(), sts(func(s *appsv1.StatefulSet) { s.Labels = nil }), true},
		{"set: its own status", desire, set(), set(func(s *lwsv1.LeaderWorkerSet) { s.Status.ReadyReplicas = 1; s.ResourceVersion = "2" }), false},
		{"set: its status", statusChanged, set(), set(func(s *lwsv1.LeaderWorkerSet) { s.Status.ReadyReplicas = 1; s.ResourceVersion = "2" }), true},
		{"set: not its status", statusChanged, set(), set(func(s *lwsv1.LeaderWorkerSet) { s.Generation = 2; s.ResourceVersion = "2" }), false},
		{"set: spec", desire, set(), set(func(s *lwsv1.LeaderWorkerSet) { s.Generation = 2 }), true},
		{"set: annotations", desire, set(), set(fakeapi.Annotation("x", "y")), true},
		{"set: going", desire, set(), set(func(s *lwsv1.LeaderWorkerSet) { s.DeletionTimestamp = now }), true},
		{"groups: replicas", groupDesire, set(), set(func(s *lwsv1.LeaderWorkerSet) { s.Spec.Replicas = fakeapi.Ptr[int32](9) }), false},
		{"groups: startup", groupDesire, set(), set(fakeapi.LeaderReady), true},
		{"groups: network", groupDesire, set(), set(fakeapi.UniquePerReplica), true},
		{"groups: whose their volume claims are", groupDesire, set(), set(fakeapi.Volumes(appsv1.DeletePersistentVolumeClaimRetentionPolicyType, "")), true},
		{"groups: placement", groupDesire, set(), set(fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, "rack")), true},
		{"groups: what their gang scheduler is told", groupDesire, set(fakeapi.Annotation(lwsv1.QueueNameAnnotationKey, "q")), set(), true},
		{"groups: what others are told", groupDesire, set(fakeapi.Annotation("x", "y")), set(), false},
		{"belonging: the same", ownership, service("u"), service("u"), false},
		{"belonging: another owner", ownership, service("u"), service("v"), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.matters(tt.before, tt.after); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// fakeQueue notes what is added and after how long.
type fakeQueue struct {
	queue
	added map[string]time.Duration
}

func (q *fakeQueue) AddAfter(request ctrl.Request, in time.Duration) { q.added[request.Name] = in }

func TestUpdatesAreGatheredAndDeparturesAreNot(t *testing.T) {
	h := watch(byOwnName, podProgress, time.Second)
	a, b := fakeapi.Pod("w-0", "w", 0), fakeapi.Pod("w-0", "w", 0)
	fakeapi.Up(b)
	ctx := context.Background()
	for name, tt := range map[string]struct {
		tell func(q *fakeQueue)
		want map[string]time.Duration
	}{
		"creation":  {func(q *fakeQueue) { h.Create(ctx, event.CreateEvent{Object: a}, q) }, map[string]time.Duration{"w-0": 0}},
		"departure": {func(q *fakeQueue) { h.Delete(ctx, event.DeleteEvent{Object: a}, q) }, map[string]time.Duration{"w-0": 0}},
		"update":    {func(q *fakeQueue) { h.Update(ctx, event.UpdateEvent{ObjectOld: a, ObjectNew: b}, q) }, map[string]time.Duration{"w-0": time.Second}},
		"no change": {func(q *fakeQueue) { h.Update(ctx, event.UpdateEvent{ObjectOld: b, ObjectNew: b}, q) }, map[string]time.Duration{}},
	} {
		q := &fakeQueue{added: map[string]time.Duration{}}
		tt.tell(q)
		if diff := cmp.Diff(tt.want, q.added); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}
