package lws

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
)

func surveyed(t *testing.T, s *Session, name string) Survey {
	t.Helper()
	found, err := s.Set(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, epoch.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestSurveyHasEveryGroupOfTheSet(t *testing.T) {
	set := newSet("a", 3, 4)
	leftover := pod(owned(metaOf("a-7-1", "leftover"), "StatefulSet", "a-7", "long-gone"), map[string]string{lwsv1.SetNameLabelKey: "a"}, 2)
	other := newSet("a-0", 1, 2)
	other.UID = "other"
	foreign := pod(owned(metaOf("a-0-9-1", "foreign"), "StatefulSet", "a-0-9", "other"), map[string]string{lwsv1.SetNameLabelKey: "a-0"}, 2)
	s := surveyorOf(t, append(children(t, set), set, leftover, other, foreign))
	found := surveyed(t, s, "a")
	if len(found.Groups) != 4 || found.Standing.Ready != 3 || found.Standing.Updated != 3 {
		t.Fatalf("got %d groups, %+v", len(found.Groups), found.Standing)
	}
	for i, g := range found.Groups[:3] {
		if g.Index != i || g.Leader == nil || len(g.Pods.Owned) != 3 || !g.Ready(set) || !g.UpToDate(found.Standing.Key) {
			t.Errorf("group %d: got %+v", i, g.Group)
		}
	}
	if last := found.Groups[3]; last.Index != 7 || len(last.Pods.Previous) != 1 || len(last.Pods.Owned) != 0 {
		t.Errorf("without a leader: got group %d with %+v", last.Index, last.Pods)
	}
	if _, err := s.Set(t.Context(), types.NamespacedName{Namespace: namespace, Name: "b"}, epoch); !apierrors.IsNotFound(err) {
		t.Errorf("no such set: got %v", err)
	}
}

// A plan for a manifest is that for the set as the API server would store it.
func TestAsPlansForASetThatIsNotStored(t *testing.T) {
	set := newSet("a", 2, 2)
	absent, changed := set.DeepCopy(), set.DeepCopy()
	absent.UID = ""
	changed.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = "other"
	for want, tt := range map[string]struct {
		as     *lwsv1.LeaderWorkerSet
		stored []client.Object
	}{
		"create controllerrevision create statefulset create service": {absent, nil},
		"create controllerrevision apply statefulset":                 {changed, append(children(t, set), set)},
	} {
		found, err := surveyorOf(t, tt.stored).As(t.Context(), tt.as, epoch)
		if err != nil {
			t.Fatal(err)
		}
		var plan strings.Builder
		for _, a := range found.Plan.Actions {
			plan.WriteString(a.Verb() + " " + a.Target().String() + ", ")
		}
		for verb, kind := range pairs(want) {
			if !strings.Contains(plan.String(), verb+" "+kind) {
				t.Errorf("got %s, want %s %s", &plan, verb, kind)
			}
		}
		for _, g := range found.Groups {
			if g.Set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image != "other" {
				t.Errorf("group %d does not have the new spec", g.Index)
			}
		}
		if len(found.Groups) != 2*min(1, len(tt.stored)) {
			t.Errorf("got %d groups", len(found.Groups))
		}
	}
}

// pairs yields the words of a text by twos.
func pairs(text string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for two := range slices.Chunk(strings.Fields(text), 2) {
			if !yield(two[0], two[1]) {
				return
			}
		}
	}
}

// The operator has called the pod stuck. A new process must not take that back.
func TestStuckObjectsStayStuck(t *testing.T) {
	set := newSet("a", 1, 1)
	set.CreationTimestamp = metav1.NewTime(epoch.Add(-time.Hour))
	set.Status.Conditions = []metav1.Condition{{
		Type: "Progressing", Status: metav1.ConditionTrue, Reason: lws.CodePreviousIncarnation,
		Message: "waiting for 1 pod; none has left for a minute: …",
	}}
	previous := pod(owned(metaOf("a-0", "previous"), "StatefulSet", "a", "long-gone"), map[string]string{lwsv1.SetNameLabelKey: "a"}, 1)
	previous.CreationTimestamp = metav1.NewTime(epoch.Add(-2 * time.Hour))
	previous.Finalizers = []string{"example.com/hold"}
	gone := metav1.NewTime(epoch.Add(-time.Hour))
	previous.DeletionTimestamp = &gone
	found := surveyed(t, surveyorOf(t, []client.Object{set, previous}), "a")
	message := found.Plan.Waits[0].Sentence
	if !strings.Contains(message, "none has left for a minute") || !strings.Contains(message, "example.com/hold") {
		t.Errorf("got %q", message)
	}
}

// Exclusive placement is decided by the node's labels, and nodes are in no namespace.
func TestUsersWithoutNodesSeeTheRest(t *testing.T) {
	set := newSet("a", 1, 2)
	set.Annotations = map[string]string{lwsv1.ExclusiveKeyAnnotationKey: "rack"}
	all := slices.DeleteFunc(children(t, set), func(o client.Object) bool {
		return o.GetName() != "a" && o.GetName() != "a-0" || o.GetUID() == "a-0-workers"
	})
	for _, o := range all {
		if _, leads := o.(*corev1.Pod); leads {
			o.SetAnnotations(set.Annotations) // as its StatefulSet made it
		}
	}
	s := &Session{Cached: clientOf(t, append(all, set)), Live: withoutNodes{clientOf(t, append(all, set))}}
	found := surveyed(t, s, "a")
	if len(found.Groups) != 1 || found.Groups[0].Leader == nil || found.Groups[0].Plan.Waits[0].Code != CodeNotAllowed {
		t.Errorf("got %+v", found.Groups)
	}
}

// withoutNodes refuses to read nodes.
type withoutNodes struct{ client.Reader }

func (w withoutNodes) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if into.GetObjectKind().GroupVersionKind().Kind == "Node" {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, key.Name, nil)
	}
	return w.Reader.Get(ctx, key, into, options...)
}

// No object says why a pod is missing: the newest event of its StatefulSet does.
func TestRefusalsAreReadFromEvents(t *testing.T) {
	set := newSet("a", 2, 2)
	sts := &appsv1.StatefulSet{ObjectMeta: owned(metaOf("a", "sts-uid"), "LeaderWorkerSet", "a", "set-uid")}
	sts.Labels = map[string]string{lwsv1.SetNameLabelKey: "a"}
	event := func(name, uid, message string, minute int) *corev1.Event {
		e := &corev1.Event{ObjectMeta: metaOf(name, "event-"+name), Reason: "FailedCreate", Message: message}
		e.InvolvedObject.UID, e.LastTimestamp = types.UID(uid), metav1.NewTime(epoch.Add(time.Duration(minute)*time.Minute))
		return e
	}
	found := surveyed(t, surveyorOf(t, []client.Object{set, sts},
		event("a", "sts-uid", "create Pod a-1 in StatefulSet a failed error: too long", 1),
		event("b", "sts-uid", "create Pod a-1 in StatefulSet a failed error: exceeded quota", 2),
		event("c", "sts-uid", "create Pod a-11 in StatefulSet a failed error: another", 3),
		event("d", "former", "create Pod a-1 in StatefulSet a failed error: another incarnation", 4)), "a")
	if got := found.Refusals.OfPod(sts, "a-1"); !strings.Contains(got, "exceeded quota") {
		t.Errorf("got %q", got)
	}
	if got := found.Refusals.OfPod(sts, "a-0"); got != "" {
		t.Errorf("of another pod: %q", got)
	}
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const namespace = "ns"

// indexer gives the fake client the operator's indexes.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	i.WithIndex(object, field, extract)
	return nil
}

// surveyorOf has a cache, and an API server with more objects.
func surveyorOf(t *testing.T, cached []client.Object, live ...client.Object) *Session {
	t.Helper()
	return &Session{Cached: clientOf(t, cached), Live: clientOf(t, slices.Concat(cached, live))}
}

func clientOf(t *testing.T, objects []client.Object) client.Client {
	t.Helper()
	builder := fake.NewClientBuilder().WithScheme(Scheme())
	if err := lwscache.Index(t.Context(), indexer{builder}); err != nil {
		t.Fatal(err)
	}
	builder.WithIndex(&corev1.Event{}, "reason", func(object client.Object) []string { return []string{object.(*corev1.Event).Reason} })
	for _, object := range objects {
		builder.WithObjects(object.DeepCopyObject().(client.Object))
	}
	return builder.Build()
}

func newSet(name string, replicas, size int32) *lwsv1.LeaderWorkerSet {
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metaOf(name, "set-uid")}
	set.Spec.Replicas, set.Spec.LeaderWorkerTemplate.Size = &replicas, &size
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	return set
}

func metaOf(name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), CreationTimestamp: metav1.NewTime(epoch)}
}

func owned(m metav1.ObjectMeta, kind, name, uid string) metav1.ObjectMeta {
	yes := true
	version := map[string]string{"LeaderWorkerSet": lwsv1.GroupVersion.String(), "StatefulSet": "apps/v1", "Pod": "v1"}[kind]
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: types.UID(uid), Controller: &yes}}
	return m
}

// children are the objects of a set that is up: revision, StatefulSets, pods and Service.
func children(t *testing.T, set *lwsv1.LeaderWorkerSet) []client.Object {
	t.Helper()
	revision := revisionOf(t, set, 1)
	labels := revision.Labels
	ofSet := func(name, uid string) metav1.ObjectMeta {
		m := owned(metaOf(name, uid), "LeaderWorkerSet", set.Name, string(set.UID))
		m.Labels = labels
		return m
	}
	all := []client.Object{
		revision,
		statefulSet(ofSet(set.Name, "leaders"), *set.Spec.Replicas),
		&corev1.Service{ObjectMeta: ofSet(set.Name, "service")},
	}
	for i := range int(*set.Spec.Replicas) {
		all = append(all, group(set.Name, labels, i, int(*set.Spec.LeaderWorkerTemplate.Size))...)
	}
	return all
}

func group(set string, labels map[string]string, index, size int) []client.Object {
	name := set + "-" + strconv.Itoa(index)
	leader := pod(owned(metaOf(name, name), "StatefulSet", set, "leaders"), labels, size)
	leader.Labels[lwsv1.WorkerIndexLabelKey] = "0"
	workers := owned(metaOf(name, name+"-workers"), "Pod", name, name)
	workers.Labels = labels
	all := []client.Object{leader, statefulSet(workers, int32(size-1))}
	for worker := 1; worker < size; worker++ {
		m := metaOf(name+"-"+strconv.Itoa(worker), name+"-"+strconv.Itoa(worker))
		all = append(all, pod(owned(m, "StatefulSet", name, name+"-workers"), labels, size))
	}
	return all
}

func pod(m metav1.ObjectMeta, labels map[string]string, size int) *corev1.Pod {
	m.Labels = map[string]string{}
	for key, value := range labels {
		m.Labels[key] = value
	}
	m.Annotations = map[string]string{lwsv1.SizeAnnotationKey: strconv.Itoa(size)}
	return &corev1.Pod{
		ObjectMeta: m, Spec: corev1.PodSpec{NodeName: "node-" + m.Name},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

func statefulSet(m metav1.ObjectMeta, replicas int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: m, Spec: appsv1.StatefulSetSpec{Replicas: &replicas},
		Status: appsv1.StatefulSetStatus{Replicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas},
	}
}

func TestAwaitEndsWithTheSession(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	expired := errors.New("expired")
	cancel(expired)
	s := &Session{ctx: ctx}
	for range 2 { // each of several sets is followed
		if err := s.Await(); !errors.Is(err, expired) {
			t.Errorf("got %v", err)
		}
	}
}
