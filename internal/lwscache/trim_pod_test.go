package lwscache

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// A cached pod keeps the container states that reports of failures name.
func TestACachedPodKeepsItsState(t *testing.T) {
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 7, Reason: "OOMKilled", Message: "no more"}}
	pod := &corev1.Pod{Status: corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: "Evicted", Message: "node is low on memory", PodIP: "10.0.0.1", HostIP: "10.0.0.2",
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", Image: "i", ImageID: "sha", ContainerID: "id", RestartCount: 3, State: ended, LastTerminationState: ended,
		}},
	}}
	want := corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: "Evicted", Message: "node is low on memory",
		ContainerStatuses: []corev1.ContainerStatus{{Name: "c", RestartCount: 3, State: ended, LastTerminationState: ended}},
	}
	if _, err := trimPod(pod); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, pod.Status); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestConditionsAreKeptUntilAPodIsReady(t *testing.T) {
	conditions := func(ready corev1.ConditionStatus) []corev1.PodCondition {
		return []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, Message: "where"},
			{Type: corev1.PodReady, Status: ready, Reason: "why"},
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse},
		}
	}
	for status, want := range map[corev1.ConditionStatus][]corev1.PodCondition{
		corev1.ConditionFalse: conditions(corev1.ConditionFalse),
		corev1.ConditionTrue:  conditions(corev1.ConditionTrue)[1:],
	} {
		if diff := cmp.Diff(want, trimConditions(conditions(status))); diff != "" {
			t.Errorf("ready %s (-want +got)\n%s", status, diff)
		}
	}
}

// A cached pod keeps the labels and annotations that decisions read.
func TestACachedPodKeepsTheMetadataThatIsRead(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{
			"app": "llm", "apps.kubernetes.io/pod-index": "1", "statefulset.kubernetes.io/pod-name": "w-0-1",
			"controller-revision-hash": "w-0-abc", lwsv1.SetNameLabelKey: "w", lwsv1.GroupIndexLabelKey: "0", lwsv1.WorkerIndexLabelKey: "1",
			lwsv1.GroupUniqueHashLabelKey: "g", lwsv1.RevisionKey: "r", lwsv1.SubGroupIndexLabelKey: "0", lwsv1.SubGroupUniqueHashLabelKey: "s",
		},
		Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": "{}", lwsv1.SizeAnnotationKey: "2", "scheduling.k8s.io/group-name": "w-0-r",
		},
	}}
	want := metav1.ObjectMeta{
		Labels: map[string]string{
			"controller-revision-hash": "w-0-abc", lwsv1.SetNameLabelKey: "w", lwsv1.GroupIndexLabelKey: "0", lwsv1.WorkerIndexLabelKey: "1",
			lwsv1.GroupUniqueHashLabelKey: "g", lwsv1.RevisionKey: "r", lwsv1.SubGroupIndexLabelKey: "0", lwsv1.SubGroupUniqueHashLabelKey: "s",
		},
		Annotations: map[string]string{lwsv1.SizeAnnotationKey: "2", "scheduling.k8s.io/group-name": "w-0-r"},
	}
	if _, err := trimPod(pod); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, pod.ObjectMeta); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
