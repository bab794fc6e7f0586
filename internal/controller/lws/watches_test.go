package lws

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

func meta(name, set string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: name, UID: types.UID(name)}
	if set != "" {
		m.Labels = map[string]string{lwsv1.SetNameLabelKey: set}
	}
	return m
}

// owned adds a controller to an object.
func owned[T client.Object](object T, apiVersion, kind, name string) T {
	object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: "u", Controller: new(true)}})
	return object
}

func TestTheKeysOfAnEvent(t *testing.T) {
	store := fakeapi.New()
	expect.OK(t, lwscache.Index(context.Background(), store))
	memory := lwscache.NewMemory()
	observer := lwscache.New(store.Cached(), store.Live(), memory)
	for _, leader := range []string{"w-0", "w-1", "w-0-1", "v-0"} {
		fakeapi.Add(store, fakeapi.Pod(leader, "w", 0))
	}
	fakeapi.Add(store, fakeapi.Set("a-1", 2, 1))
	fakeapi.Add(store, fakeapi.Pod("a-1-1", "a", 1)) // a worker of set a, with the name of a leader of set a-1
	previous := fakeapi.Terminate[*corev1.Pod](store, "a-1-1", "example.com/stuck")
	w, err := observer.Set(t.Context(), types.NamespacedName{Namespace: fakeapi.Namespace, Name: "a-1"}, store.Now)
	expect.Must(t, err == nil && len(w.Leaders.Previous) == 1, "got %+v, %v", w.Leaders, err)
	pod := func(name, set string) client.Object { return &corev1.Pod{ObjectMeta: meta(name, set)} }
	sts := func(name, set string) client.Object { return &appsv1.StatefulSet{ObjectMeta: meta(name, set)} }
	revision := func(name, set string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{ObjectMeta: meta(name, set)}
	}
	group := func(object client.Object, set, group string) client.Object {
		object.SetNamespace(fakeapi.Namespace)
		object.SetLabels(map[string]string{lwsv1.SetNameLabelKey: set, lwsv1.GroupIndexLabelKey: group})
		return object
	}
	podGroup := func() client.Object { return group(&unstructured.Unstructured{Object: map[string]any{}}, "w", "1") }
	history := owned(revision("w-0-5f6d7", "w"), "apps/v1", "StatefulSet", "w-0")
	for _, tt := range []struct {
		name   string
		keys   keysOf
		object client.Object
		want   []string
	}{
		{"a leader statefulset: its set", setsOf, sts("w", "w"), []string{"w"}},
		{"a worker statefulset: its set, and the set of its name", setsOf, sts("w-0", "w"), []string{"w", "w-0"}},
		{"a statefulset without labels: the set of its name", setsOf, sts("w", ""), []string{"w"}},
		{"a revision: its set", setOfRevision, revision("w-x-1", "w"), []string{"w"}},
		{"a revision with the label of another set: both", setOfRevision, owned(revision("w-x-1", "v"), lwsv1.GroupVersion.String(), "LeaderWorkerSet", "w"), []string{"v", "w"}},
		{"a statefulset's own history: none", setOfRevision, history, nil},
		{"a leader: its set", setOfPod(memory), pod("w-0", "w"), []string{"w"}},
		{"a worker: no set", setOfPod(memory), pod("w-0-1", "w"), nil},
		{"a pod that a set waits for: that set", setOfPod(memory), previous, []string{"a-1"}},
		{"a leader: its group", groupOfPod, pod("w-0", "w"), []string{"w-0"}},
		{"a worker: its group", groupOfPod, pod("w-0-1", "w"), []string{"w-0"}},
		{"a leader of a set whose name ends in a number: a worker's name, too", groupOfPod, pod("w-0-1", "w-0"), []string{"w-0-1", "w-0"}},
		{"a pod without a number", groupOfPod, pod("w", "w"), nil},
		{"a service: the group of its name", byOwnName, &corev1.Service{ObjectMeta: meta("w-0", "w")}, []string{"w-0"}},
		{"a PVC of a worker: its set", setOf, group(volumes.Named("", "data-w-1-1"), "w", "1"), []string{"w"}},
		{"a PVC of a worker: its group", groupOfVolume, group(volumes.Named("", "data-w-1-1"), "w", "1"), []string{"w-1"}},
		{"a PVC of a leader: no group", groupOfVolume, group(volumes.Named("", "data-w-1"), "w", ""), nil},
		{"a PodGroup: its leader", groupOfGang, owned(podGroup(), "v1", "Pod", "w-1"), []string{"w-1"}},
		{"a PodGroup of another group's leader: both", groupOfGang, owned(podGroup(), "v1", "Pod", "v-0"), []string{"w-1", "v-0"}},
		{"a PodGroup without owner: the group of its labels", groupOfGang, podGroup(), []string{"w-1"}},
		{"a PodGroup of a Job: the group of its labels", groupOfGang, owned(podGroup(), "batch/v1", "Job", "j"), []string{"w-1"}},
		{"a set: its groups", groupsOf(observer, keyOf), &lwsv1.LeaderWorkerSet{ObjectMeta: meta("w", "")}, []string{"w-0", "w-1"}},
		{"a set without leaders: none", groupsOf(observer, keyOf), &lwsv1.LeaderWorkerSet{ObjectMeta: meta("x", "")}, nil},
		{"a revision: the groups of its set", groupsOfRevision(observer), revision("w-x-1", "w"), []string{"w-0", "w-1"}},
		{"a statefulset's own history: no group", groupsOfRevision(observer), history, nil},
		{"a leader statefulset: its name, and its groups", groupsOfStatefulSet(observer), sts("w", "w"), []string{"w", "w-0", "w-1"}},
		{"a worker statefulset: its group", groupsOfStatefulSet(observer), sts("w-0", "w"), []string{"w-0"}},
		{"a worker statefulset of a hash group: its leader's", groupsOfStatefulSet(observer), owned(sts("w-5f6d7", "w"), "v1", "Pod", "w-a-b"), []string{"w-5f6d7", "w-a-b"}},
	} {
		var names []string
		for _, key := range tt.keys(tt.object) {
			names = append(names, key.Name)
			expect.Equalf(t, fakeapi.Namespace, key.Namespace, "%s: namespace", tt.name)
		}
		expect.Equalf(t, tt.want, names, "%s", tt.name)
	}
	fakeapi.Add(store, fakeapi.Set("w", 2, 2))
	expect.Equalf(t, 3, len(everyGroup(observer)), "groups that a gang scheduler which comes concerns")
}

func TestWhichUpdatesMatter(t *testing.T) {
	leader := func(edits ...func(*corev1.Pod)) client.Object {
		return fakeapi.Edited(fakeapi.Pod("w-0", "w", 0), append([]func(*corev1.Pod){fakeapi.Up}, edits...)...)
	}
	sts := func(edits ...func(*appsv1.StatefulSet)) client.Object {
		return fakeapi.Edited(&appsv1.StatefulSet{ObjectMeta: meta("w", "w")}, edits...)
	}
	set := func(edits ...func(*lwsv1.LeaderWorkerSet)) client.Object { return fakeapi.Set("w", 1, 1, edits...) }
	service := func(owner types.UID) client.Object {
		return fakeapi.Edited(&corev1.Service{ObjectMeta: meta("w", "w")}, func(s *corev1.Service) { s.OwnerReferences = []metav1.OwnerReference{{UID: owner}} })
	}
	status := func(s *lwsv1.LeaderWorkerSet) { s.Status.ReadyReplicas, s.ResourceVersion = 1, "2" }
	generation := func(s *lwsv1.LeaderWorkerSet) { s.Generation, s.ResourceVersion = 2, "2" }
	now := &metav1.Time{Time: time.Unix(1, 0)}
	gated := func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: lwsv1.GroupReplacementGate}}
	}
	for _, tt := range []struct {
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
		{"pod: a request", podProgress, leader(), leader(func(p *corev1.Pod) { p.Annotations = map[string]string{lwsv1.RecreateAnnotationKey: ""} }), true},
		{"pod: its gate", podProgress, leader(gated), leader(), true},
		{"pod: deleted", podProgress, leader(), leader(func(p *corev1.Pod) { p.DeletionTimestamp = now }), true},
		{"pod: labels", podProgress, leader(), leader(func(p *corev1.Pod) { p.Labels["x"] = "y" }), true},
		{"statefulset: nothing", statefulSetProgress, sts(), sts(func(s *appsv1.StatefulSet) { s.Annotations = map[string]string{"x": "y"} }), false},
		{"statefulset: status", statefulSetProgress, sts(), sts(func(s *appsv1.StatefulSet) { s.Status.AvailableReplicas = 1 }), true},
		{"statefulset: spec", statefulSetProgress, sts(), sts(func(s *appsv1.StatefulSet) { s.Generation = 2 }), true},
		{"statefulset: no longer as found", statefulSetProgress, sts(func(s *appsv1.StatefulSet) { s.Annotations = map[string]string{lws.AsFoundAnnotationKey: "k"} }), sts(), true},
		{"statefulset: labels", statefulSetProgress, sts(), sts(func(s *appsv1.StatefulSet) { s.Labels = nil }), true},
		{"set: its own status", desire, set(), set(status), false},
		{"set: its status", statusChanged, set(), set(status), true},
		{"set: not its status", statusChanged, set(), set(generation), false},
		{"set: spec", desire, set(), set(generation), true},
		{"set: annotations", desire, set(), set(fakeapi.Annotation("x", "y")), true},
		{"set: deleted", desire, set(), set(func(s *lwsv1.LeaderWorkerSet) { s.DeletionTimestamp = now }), true},
		{"groups: replicas", groupDesire, set(), set(func(s *lwsv1.LeaderWorkerSet) { s.Spec.Replicas = new(int32(9)) }), false},
		{"groups: startup", groupDesire, set(), set(fakeapi.LeaderReady), true},
		{"groups: how they end", groupDesire, set(), set(fakeapi.Parallel), true},
		{"groups: how they end, spelt out", groupDesire, set(), set(func(s *lwsv1.LeaderWorkerSet) { s.Spec.PodTerminationPolicy = lwsv1.DefaultPodTermination }), false},
		{"groups: network", groupDesire, set(), set(fakeapi.UniquePerReplica), true},
		{"groups: owners of their PVCs", groupDesire, set(), set(fakeapi.Volumes(appsv1.DeletePersistentVolumeClaimRetentionPolicyType, "")), true},
		{"groups: placement", groupDesire, set(), set(fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, "rack")), true},
		{"groups: for their gang scheduler", groupDesire, set(fakeapi.Annotation(lwsv1.QueueNameAnnotationKey, "q")), set(), true},
		{"groups: for others", groupDesire, set(fakeapi.Annotation("x", "y")), set(), false},
		{"ownership: the same", ownership, service("u"), service("u"), false},
		{"ownership: another owner", ownership, service("u"), service("v"), true},
	} {
		expect.Equalf(t, tt.want, tt.matters(tt.before, tt.after), "%s", tt.name)
	}
}

// fakeQueue records what is added, and after how long.
type fakeQueue struct {
	queue
	added map[string]time.Duration
}

func (q *fakeQueue) Add(request ctrl.Request)                        { q.added[request.Name] = 0 }
func (q *fakeQueue) AddAfter(request ctrl.Request, in time.Duration) { q.added[request.Name] = in }

func TestUpdatesAreGatheredAndDeletionsAreNot(t *testing.T) {
	h := watch(byOwnName, podProgress, time.Second)
	a, b := fakeapi.Pod("w-0", "w", 0), fakeapi.Edited(fakeapi.Pod("w-0", "w", 0), fakeapi.Up)
	for name, tt := range map[string]struct {
		send func(context.Context, *fakeQueue)
		want map[string]time.Duration
	}{
		"creation": {func(ctx context.Context, q *fakeQueue) { h.Create(ctx, event.CreateEvent{Object: a}, q) }, map[string]time.Duration{"w-0": 0}},
		"deletion": {func(ctx context.Context, q *fakeQueue) { h.Delete(ctx, event.DeleteEvent{Object: a}, q) }, map[string]time.Duration{"w-0": 0}},
		"update": {func(ctx context.Context, q *fakeQueue) {
			h.Update(ctx, event.UpdateEvent{ObjectOld: a, ObjectNew: b}, q)
		}, map[string]time.Duration{"w-0": time.Second}},
		"no change": {func(ctx context.Context, q *fakeQueue) {
			h.Update(ctx, event.UpdateEvent{ObjectOld: b, ObjectNew: b}, q)
		}, map[string]time.Duration{}},
	} {
		q := &fakeQueue{added: map[string]time.Duration{}}
		tt.send(t.Context(), q)
		expect.Equalf(t, tt.want, q.added, "%s", name)
	}
}

func TestEventsOfRestarts(t *testing.T) {
	pod := func(edits ...func(*corev1.Pod)) *corev1.Pod {
		return fakeapi.Edited(fakeapi.Pod("w-0", "w", 0), edits...)
	}
	set := func(leaders ...types.UID) *lwsv1.LeaderWorkerSet {
		set := fakeapi.Set("w", 3, 2)
		for i, leader := range leaders {
			set.Status.Started = append(set.Status.Started, lwsv1.StartedGroup{Index: int32(i), Leader: leader})
		}
		return set
	}
	store := fakeapi.New()
	expect.OK(t, lwscache.Index(t.Context(), store))
	observer := lwscache.New(store.Cached(), store.Live(), lwscache.NewMemory())
	for i := range 3 {
		fakeapi.Add(store, fakeapi.Pod(identity.LeaderName("w", i), "w", 0))
	}
	decided := func(pod *corev1.Pod) { pod.Annotations = map[string]string{restart.AnnotationKey: "x"} }
	runs := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning }
	for name, tt := range map[string]struct {
		handler       handler.EventHandler
		before, after client.Object
		want          []string
	}{
		"a leader is decided":      {newPace(time.Now).restarts(), pod(), pod(decided), []string{"w"}},
		"a pod begins to run":      {newPace(time.Now).restarts(), pod(), pod(runs), []string{"w"}},
		"a pod changes":            {newPace(time.Now).restarts(), pod(runs, decided), pod(runs, decided), nil},
		"a record is new":          {recorded(observer), set("a"), set("a", "b"), []string{"w-1"}},
		"a record of a new leader": {recorded(observer), set("a", "b"), set("c", "b"), []string{"w-0"}},
		"a record stays":           {recorded(observer), set("a"), set("a"), nil},
	} {
		q := &fakeQueue{added: map[string]time.Duration{}}
		tt.handler.Update(t.Context(), event.UpdateEvent{ObjectOld: tt.before, ObjectNew: tt.after}, q)
		expect.Equalf(t, tt.want, slices.Collect(maps.Keys(q.added)), "%s", name)
	}
}

// A set is read rarely while it is large, and four times as rarely until half of its groups are
// complete.
func TestTheLargerASetTheLongerItsPause(t *testing.T) {
	key, other := types.NamespacedName{Namespace: "default", Name: "w"}, types.NamespacedName{Namespace: "default", Name: "other"}
	for _, tt := range []struct {
		name           string
		groups, vacant int
		size           int32
		complete       int
		passed, least  time.Duration
		want           time.Duration
	}{
		{"a small set", 10, 0, 1, 0, 0, 0, 5 * time.Millisecond},
		{"events are gathered anyway", 10, 0, 1, 0, 0, gather, gather},
		{"vacant groups count", 300, 200, 1, 0, 0, gather, 250 * time.Millisecond},
		{"the pause is over", 500, 0, 1, 0, 250 * time.Millisecond, 0, 0},
		{"the pause is long over", 500, 0, 1, 0, time.Hour, gather, gather},
		{"the largest", 100_000, 0, 1, 0, 0, 0, time.Second},
		{"no group is complete", 100, 0, 2, 0, 0, 0, 200 * time.Millisecond},
		{"few groups are complete", 100, 0, 2, 49, 0, 0, 200 * time.Millisecond},
		{"half of the groups are complete", 100, 0, 2, 50, 0, 0, 50 * time.Millisecond},
		{"all groups are complete", 100, 0, 2, 100, 0, 0, 50 * time.Millisecond},
		{"groups of one have no StatefulSet", 100, 0, 1, 0, 0, 0, 50 * time.Millisecond},
	} {
		now := time.Unix(1000, 0)
		p := newPace(func() time.Time { return now })
		w := lws.SetSnapshot{Set: fakeapi.Set("w", int32(tt.groups), tt.size), Groups: make([]lws.Group, tt.groups), Vacant: make([]lws.Group, tt.vacant)}
		for i := range tt.complete {
			w.Groups[i].Workers.Owned = []*appsv1.StatefulSet{{Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1))}, Status: appsv1.StatefulSetStatus{Replicas: 1}}}
		}
		p.read(key, w)
		now = now.Add(tt.passed)
		expect.Equalf(t, tt.want, p.in(key, tt.least), "%s: the pause", tt.name)
		expect.Equalf(t, 0, p.in(other, 0), "how long another set waits")
		p.read(key, lws.SetSnapshot{})
		expect.Equalf(t, 0, p.in(key, 0), "a set that does not exist waits")
	}
}
