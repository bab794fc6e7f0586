package lwscache

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/sieve"
	"lockstep.dev/lockstep/test/fakeapi"
)

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
		if left := len(sts.ManagedFields) == 1 && lws.LeftByCreate(sts.ManagedFields[0]); left != test.left {
			t.Errorf("%s: %+v", name, sts.ManagedFields)
		}
		for _, kept := range sts.ManagedFields {
			if kept.FieldsV1 != nil {
				t.Errorf("%s: fields are kept", name)
			}
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
		if (len(sts.Spec.Template.Spec.Containers) > 0) != kept || len(sts.Spec.Template.Labels) != 1 {
			t.Errorf("%s: %+v", name, sts.Spec.Template)
		}
	}
}

// A cached pod keeps what decisions and reports of failures read. A row adds to a part of the pod
// what is kept and what is dropped.
func TestACachedPodKeepsWhatIsRead(t *testing.T) {
	kept := map[string]string{
		"controller-revision-hash": "w-0-abc", lwsv1.SetNameLabelKey: "w", lwsv1.GroupIndexLabelKey: "0", lwsv1.WorkerIndexLabelKey: "1",
		lwsv1.GroupUniqueHashLabelKey: "g", lwsv1.RevisionKey: "r", lwsv1.SubGroupIndexLabelKey: "0", lwsv1.SubGroupUniqueHashLabelKey: "s",
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
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(metav1.TypeMeta{}, "Kind", "APIVersion")); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}
