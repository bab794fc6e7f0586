package lwscache

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/sieve"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// incarnation is set w with a UID.
func incarnation(uid types.UID) *lwsv1.LeaderWorkerSet {
	return &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: uid}}
}

var key = client.ObjectKeyFromObject(incarnation(""))

func after(seconds int) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(seconds) * time.Second)
}

func TestAVigilDatesWhatComesAndGoes(t *testing.T) {
	m := NewMemory()
	type times = map[types.UID]time.Time
	for _, step := range []struct {
		name    string
		at      int
		objects []types.UID
		want    lws.Vigil
	}{
		{"none yet", 1, nil, lws.Vigil{}},
		{"one comes", 2, []types.UID{"a"}, lws.Vigil{Moved: after(2), Seen: times{"a": after(2)}}},
		{"none moves", 3, []types.UID{"a"}, lws.Vigil{Moved: after(2), Seen: times{"a": after(2)}}},
		{"another comes", 4, []types.UID{"a", "b"}, lws.Vigil{Moved: after(4), Seen: times{"a": after(2), "b": after(4)}}},
		{"one goes", 5, []types.UID{"b"}, lws.Vigil{Moved: after(5), Seen: times{"b": after(4)}}},
		{"the last goes", 6, nil, lws.Vigil{Moved: after(6)}},
	} {
		diff := cmp.Diff(step.want, m.awaits(incarnation("1"), step.objects, nil, after(step.at)), cmpopts.EquateEmpty())
		expect.That(t, diff == "", "%s (-want +got)\n%s", step.name, diff)
		expect.Equalf(t, slices.Contains(step.objects, "a"), m.Awaits(key, "a"), "%s: Awaits", step.name)
	}
	expect.That(t, !m.Awaits(types.NamespacedName{Namespace: "other", Name: "w"}, "a"), "a set of another namespace waits")
}

func TestStalledSince(t *testing.T) {
	m := NewMemory()
	for _, step := range []struct {
		name           string
		at             int
		observed, have int32
		stalled        bool
	}{
		{"not observed", 0, 0, 1, false},
		{"lacks pods", 20, 1, 1, false},
		{"creates one", 29, 1, 2, false},
		{"nine seconds later", 38, 1, 2, false},
		{"ten seconds later", 39, 1, 2, true},
		{"has all", 40, 1, 3, false},
		{"lacks one again", 60, 1, 2, false},
	} {
		sts := &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{UID: "u", Generation: 1}, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3))},
			Status: appsv1.StatefulSetStatus{ObservedGeneration: int64(step.observed), Replicas: step.have},
		}
		expect.Equalf(t, step.stalled, !m.stalledSince(sts, after(step.at)).IsZero(), "%s: it stalls", step.name)
	}
}

func TestASetThatIsGoneIsForgotten(t *testing.T) {
	m := NewMemory()
	m.awaits(incarnation("1"), []types.UID{"a"}, nil, after(1))
	m.StatusWritten(incarnation("1"), after(1))
	m.Taken(identity.Ref{Kind: identity.KindStatefulSet, Namespace: "ns", Name: "w-0"})
	m.forget(key)
	expect.Equalf(t, 0, len(m.inTheWay), "sets that wait")
	written, _ := m.Recall(incarnation("1"))
	expect.That(t, written.IsZero() && len(m.TakenOf(key, identity.KindStatefulSet)) == 0, "remembered: %v, %v", written, m.TakenOf(key, identity.KindStatefulSet))
}

// indexes are the functions that Index adds, by the type of their objects.
type indexes map[string]client.IndexerFunc

func (i indexes) IndexField(_ context.Context, object client.Object, _ string, keys client.IndexerFunc) error {
	i[fmt.Sprintf("%T", object)] = keys
	return nil
}

func TestClaimKeys(t *testing.T) {
	added := indexes{}
	expect.OK(t, Index(t.Context(), added))
	owned := func(meta metav1.ObjectMeta) metav1.ObjectMeta {
		meta.OwnerReferences = []metav1.OwnerReference{{UID: "not the controller"}, {UID: "u", Controller: new(true)}}
		return meta
	}
	labels := map[string]string{lwsv1.SetNameLabelKey: "w"}
	for _, tt := range []struct {
		name   string
		object client.Object
		want   []string
	}{
		{"a leader", &corev1.Pod{ObjectMeta: owned(metav1.ObjectMeta{Name: "w-0"})}, []string{"name:w"}},
		{"a worker", &corev1.Pod{ObjectMeta: owned(metav1.ObjectMeta{Name: "w-0-1"})}, []string{"group:w", "name:w-0"}},
		{"a worker of a set whose name ends in a number", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w-0-1-2"}}, []string{"group:w-0", "name:w-0-1"}},
		{"without owner", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w-0", Labels: labels}}, []string{"name:w"}},
		{"no ordinal", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w", Labels: labels}}, nil},
		{"a name that no StatefulSet gives", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w-007", Labels: labels}}, []string{"misspelt:w"}},
		{"the workers of a group", &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "w-0", Labels: labels}}, []string{"group:w"}},
		{"the Service of a group", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "w-0", Labels: labels}}, []string{"group:w"}},
		{"the Service of a set", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "w", Labels: labels}}, nil},
		{"a revision", &appsv1.ControllerRevision{ObjectMeta: owned(metav1.ObjectMeta{Name: "w-x-1", Labels: labels})}, []string{"uid:u", "name:w"}},
	} {
		expect.Equalf(t, tt.want, added[fmt.Sprintf("%T", tt.object)](tt.object), "%s", tt.name)
	}
}

func TestACachedStatefulSetKeepsTheEntryOfItsCreate(t *testing.T) {
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, subresource string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, Subresource: subresource, FieldsV1: metav1.NewFieldsV1("{}")}
	}
	applied := entry(lws.FieldOwner, metav1.ManagedFieldsOperationApply, "")
	controller := entry("kube-controller-manager", metav1.ManagedFieldsOperationUpdate, "status")
	posted := entry(lws.FieldOwner, metav1.ManagedFieldsOperationUpdate, "")
	for name, test := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		left    bool
	}{
		"by an apply": {[]metav1.ManagedFieldsEntry{applied, controller}, false},
		"by a post":   {[]metav1.ManagedFieldsEntry{controller, posted}, true},
	} {
		sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{ManagedFields: test.entries}}
		trimStatefulSet(sts)
		left := len(sts.ManagedFields) == 1 && lws.LeftByCreate(sts.ManagedFields[0])
		expect.Equalf(t, test.left, left, "%s: %+v", name, sts.ManagedFields)
		for _, kept := range sts.ManagedFields {
			expect.That(t, kept.FieldsV1 == nil, "%s: fields are kept", name)
		}
	}
}

// A set's own StatefulSet is compared with what it should be; of its workers' there
// is one for each group, and nothing compares them.
func TestOnlyTheLeaderStatefulSetKeepsItsTemplate(t *testing.T) {
	for name, kept := range map[string]bool{"w": true, "w-0": false} {
		sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{lwsv1.SetNameLabelKey: "w"}}}
		sts.Spec.Template.Labels = map[string]string{"a": "b"}
		sts.Spec.Template.Spec.Containers = []corev1.Container{{Name: "w"}}
		trimStatefulSet(sts)
		expect.That(t, (len(sts.Spec.Template.Spec.Containers) > 0) == kept && len(sts.Spec.Template.Labels) == 1,
			"%s: %+v", name, sts.Spec.Template)
	}
}

// A cached pod keeps what decisions and reports of failures read. A row adds to a part of the pod
// what is kept and what is dropped.
func TestACachedPodKeepsWhatIsRead(t *testing.T) {
	kept := map[string]string{
		"controller-revision-hash": "w-0-abc", lwsv1.SetNameLabelKey: "w", lwsv1.GroupIndexLabelKey: "0", lwsv1.WorkerIndexLabelKey: "1",
		lwsv1.GroupUniqueHashLabelKey: "g", lwsv1.RevisionKey: "r", lwsv1.SubGroupIndexLabelKey: "0", lwsv1.SubGroupUniqueHashLabelKey: "s", dsv1.ReadyForTrafficLabelKey: "true",
	}
	limits := corev1.ResourceRequirements{Limits: fakeapi.Resources("google.com/tpu", "4")}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 7, Reason: "OOMKilled", Message: "no more"}}
	where := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, Message: "where"}
	ready, unready := corev1.PodCondition{Type: corev1.PodReady, Status: "True"}, corev1.PodCondition{Type: corev1.PodReady, Status: "False", Reason: "why"}
	drained := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse}
	evicted := corev1.PodCondition{Type: "TerminationTarget", Status: corev1.ConditionTrue}
	for name, tt := range map[string]struct{ keeps, drops func(*corev1.Pod) }{
		"metadata": {
			func(p *corev1.Pod) {
				p.Name, p.Labels, p.Finalizers = "w-0", kept, []string{"f"}
				p.Annotations = map[string]string{lwsv1.SizeAnnotationKey: "2", "scheduling.k8s.io/group-name": "w-0-r"}
			},
			func(p *corev1.Pod) {
				p.Labels["app"], p.Labels["apps.kubernetes.io/pod-index"], p.Annotations["big"] = "llm", "1", "x"
				p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
			},
		},
		"spec": {
			func(p *corev1.Pod) {
				with := []corev1.Container{{Name: "c", Image: "i", Resources: limits}}
				p.Spec = corev1.PodSpec{NodeName: "n", Containers: with, InitContainers: with}
			},
			func(p *corev1.Pod) {
				p.Spec.Volumes, p.Spec.Containers = []corev1.Volume{{Name: "v"}}, slices.Clone(p.Spec.Containers)
				p.Spec.Containers[0].Command = []string{"x"}
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "plain", Image: "i"})
			},
		},
		"status": {
			func(p *corev1.Pod) {
				p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "node is low on memory", ObservedGeneration: 2}
				of := []corev1.ContainerStatus{{Name: "c", RestartCount: 3, State: ended, LastTerminationState: ended, Ready: true, Started: new(true)}}
				p.Status.ContainerStatuses, p.Status.InitContainerStatuses = of, slices.Clone(of)
			},
			func(p *corev1.Pod) {
				p.Status.PodIP, p.Status.HostIP = "10.0.0.1", "10.0.0.2"
				c := &p.Status.ContainerStatuses[0]
				c.Image, c.ImageID, c.ContainerID = "i", "sha", "id"
			},
		},
		"conditions until it is ready": {
			func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{unready, drained, where} }, func(*corev1.Pod) {},
		},
		"conditions once it is ready": {
			func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{ready, drained, evicted} },
			func(p *corev1.Pod) { p.Status.Conditions = append(p.Status.Conditions, where) },
		},
	} {
		pod := &corev1.Pod{}
		tt.keeps(pod)
		want := pod.DeepCopy()
		tt.drops(pod)
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		data := fakeapi.Encode(t, fakeapi.Protobuf(clientgoscheme.Codecs.WithoutConversion()), pod)
		got := fakeapi.Decode[*corev1.Pod](t, fakeapi.Protobuf(sieve.Codecs(keptFields())), data)
		trimPod(got)
		diff := cmp.Diff(want, got, cmpopts.IgnoreFields(metav1.TypeMeta{}, "Kind", "APIVersion"))
		expect.That(t, diff == "", "%s (-want +got)\n%s", name, diff)
	}
}
