package lws

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lwscache"
)

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
