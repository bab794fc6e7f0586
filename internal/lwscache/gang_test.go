package lwscache_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/gangcache"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// known is a memory without gang objects. missing means that their kind is not served.
type known struct{ missing bool }

func (k known) Store() (cache.Indexer, bool) {
	if k.missing {
		return nil, true
	}
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), false
}

// aGang is a set whose leader 0 was handed to Volcano, and the name of its PodGroup.
func aGang(t *testing.T) (*eyes, string) {
	t.Helper()
	e, _, _ := chained(t)
	leader := fakeapi.Edit(e.Server, "w-0", func(pod *corev1.Pod) {
		pod.Labels[lwsv1.GroupIndexLabelKey], pod.Labels[lwsv1.RevisionKey] = "0", "r"
		gang.Tie(&pod.ObjectMeta, "w-0-r")
	})
	return e, gang.NameOf(leader)
}

func (e *eyes) group(name string) lws.GroupSnapshot {
	e.t.Helper()
	w, _, err := e.groupPlan(name)
	expect.OK(e.t, err)
	return w
}

func podGroup(name string, labels map[string]string) *unstructured.Unstructured {
	object := gang.Object(gang.Group{Namespace: fakeapi.Namespace, Name: name, Labels: labels})
	object.SetUID("pg")
	return object
}

func TestAPodGroupThatIsNotInMemoryIsReadLive(t *testing.T) {
	e, name := aGang(t)
	e.observer.Gangs = known{}
	ours := podGroup(name, map[string]string{lwsv1.SetNameLabelKey: "w"})
	leader := fakeapi.Find[*corev1.Pod](e.Server, "w-0")
	fakeapi.OwnedBy(ours, "v1", identity.RefOf(identity.KindPod, leader))
	fakeapi.Add(e.Server, ours)
	expect.Equalf(t, 1, len(e.group("w-0").Gang.Owned), "PodGroups of the group, with the new one")
}

func TestTheSetReadsAPodGroupWithoutOurLabels(t *testing.T) {
	e, name := aGang(t)
	e.observer.Gangs = known{}
	fakeapi.Add(e.Server, podGroup(name, nil))
	expect.Equalf(t, 1, len(e.group("w-0").Gang.Foreign), "foreign PodGroups")
	expect.Equalf(t, 1, len(e.set("w").Groups[0].Gang.Foreign), "foreign PodGroups that the set reads")
}

func TestWhyAGangSchedulerIsMissing(t *testing.T) {
	resource := gang.Kind.GroupVersion().WithResource("podgroups")
	unserved := apierrors.NewGenericServerResponse(404, "GET", resource.GroupResource(), "w", "404 page not found", 0, true)
	forbidden := apierrors.NewForbidden(resource.GroupResource(), "w", errors.New("no"))
	for _, tt := range []struct {
		name   string
		memory gangcache.Objects
		err    error
		want   string
		fails  bool
	}{
		{"a kind that is not served", known{}, &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "PodGroup"}}, "the API server does not serve podgroups.scheduling.volcano.sh", false},
		{"a kind that is no longer served", known{}, unserved, "the API server does not serve podgroups.scheduling.volcano.sh", false},
		{"a kind that is being deleted", known{}, apierrors.NewMethodNotSupported(resource.GroupResource(), "get"), "the API server does not serve", false},
		{"a kind that the operator may not read", known{}, forbidden, "permission is missing", false},
		{"a kind that the asker may not read", nil, forbidden, "", true},
		{"an object that is not there", known{}, apierrors.NewNotFound(resource.GroupResource(), "w"), "", false},
		{"an API server that does not answer", known{}, errors.New("no answer"), "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, _ := aGang(t)
			if tt.memory != nil {
				e.observer.Gangs = tt.memory
			}
			e.live.Fail = func(n fakeapi.Name) error {
				if n.Kind == identity.KindPodGroup {
					return tt.err
				}
				return nil
			}
			got, _, err := e.groupPlan("w-0")
			expect.Must(t, (err != nil) == tt.fails, "got %v", err)
			expect.That(t, (got.GangMissing == "") == (tt.want == "") && strings.Contains(got.GangMissing, tt.want),
				"got %q, want %q", got.GangMissing, tt.want)
			// The rest of the set can be read.
			expect.That(t, !apierrors.IsForbidden(tt.err) || e.set("w").GangMissing == "", "a set needs a right to PodGroups")
		})
	}
}

func TestKinIsReadLiveWhenTheCacheIsLate(t *testing.T) {
	e, _, _ := chained(t)
	lagging := e.Lagging()
	fakeapi.Add(e.Server, fakeapi.Set("late", 1, 2))
	for _, k := range []*lwscache.Kin{lwscache.NewKin(lagging, e.live, false), lwscache.NewKin(nil, e.live, false)} {
		for name, there := range map[string]bool{"w": true, "late": true, "missing": false, "": false} {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Labels: map[string]string{lwsv1.SetNameLabelKey: name}}}
			found, err := k.Set(context.Background(), pod)
			expect.That(t, err == nil && (found != nil) == there, "set %q: got %v, %v", name, found, err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Annotations: map[string]string{lwsv1.LeaderPodNameAnnotationKey: "w-0"}}}
		found, err := k.Leader(context.Background(), pod)
		expect.That(t, err == nil && found != nil, "leader: got %v, %v", found, err)
	}
}

// natively makes the observer read a set with spec.scheduling, whose leader 0 belongs to a Workload.
func natively(t *testing.T) (e *eyes, leader *corev1.Pod) {
	t.Helper()
	e, _, _ = chained(t)
	fakeapi.Edit(e.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Spec.Scheduling = &lwsv1.Scheduling{} })
	return e, fakeapi.Edit(e.Server, "w-0", func(pod *corev1.Pod) {
		pod.Labels[lwsv1.GroupIndexLabelKey], pod.Labels[lwsv1.RevisionKey] = "0", "r"
		pod.Annotations = map[string]string{lwsv1.WorkloadSchedulingAnnotationKey: "replica", lwsv1.WorkloadNameAnnotationKey: "w-h.abcde"}
	})
}

func TestKindsThatAreNotServedAreMissing(t *testing.T) {
	e, _ := natively(t)
	e.observer.Scheduler, e.observer.Workloads, e.observer.PodGroups = gang.Kubernetes, known{missing: true}, known{missing: true}
	expect.Says(t, e.set("w").GangMissing, "does not serve scheduling.k8s.io/v1beta1 Workload")
	w := e.group("w-0")
	expect.That(t, w.PodGroups.Empty(), "got %v", w.PodGroups)
}

// native adds a PodGroup of the set to the API server.
func (e *eyes) native(name string) *unstructured.Unstructured {
	e.t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gang.NativePodGroupKind)
	object.SetNamespace(fakeapi.Namespace)
	object.SetName(name)
	object.SetLabels(map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.GroupIndexLabelKey: "0"})
	fakeapi.OwnedBy(object, lwsv1.GroupVersion.String(), identity.RefOf(identity.KindLeaderWorkerSet, fakeapi.Find[*lwsv1.LeaderWorkerSet](e.Server, "w")))
	fakeapi.Add(e.Server, object)
	return object
}

// A set reads all of its PodGroups, to delete those without pods. A group reads those that its leader needs.
func TestASetReadsAllOfItsNativePodGroups(t *testing.T) {
	e, _ := natively(t)
	e.observer.Scheduler = gang.Kubernetes
	e.native("w-h.abcde-0-r")
	e.native("w-h.fghij-0-r")
	got := e.group("w-0").PodGroups.Owned
	expect.That(t, len(got) == 1 && got[0].GetName() == "w-h.abcde-0-r", "the group reads %v", got)
	w := e.set("w")
	expect.Equalf(t, 2, len(w.PodGroups.Owned), "PodGroups that the set reads")
	expect.Equal(t, map[string]bool{"w-h.abcde-0-r": true}, w.PodGroupsInUse)
}

// Without a scheduler in the configuration, the set is left alone, and no PodGroup is read.
func TestNativePodGroupsAreReadOnlyForTheirScheduler(t *testing.T) {
	e, _ := natively(t)
	e.native("w-h.abcde-0-r")
	w := e.group("w-0")
	expect.That(t, len(w.Beyond) > 0 && w.PodGroups.Empty(), "got %v, %v", w.Beyond, w.PodGroups)
	e.observer.Scheduler = gang.Volcano
	w = e.group("w-0")
	expect.That(t, len(w.Beyond) == 0 && w.PodGroups.Empty(), "Volcano places the set: %v, %v", w.Beyond, w.PodGroups)
}
