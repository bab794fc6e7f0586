package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Images that tell pods apart. No node pulls them.
const (
	imageA = "registry.example/serve:a"
	imageB = "registry.example/serve:b"
)

// edit changes a set before it is created.
type edit func(*lwsv1.LeaderWorkerSet)

// newSet returns a set with one container per pod. All groups may be unavailable during an update.
func (s *scene) newSet(name string, replicas, size int32, image string, edits ...edit) *lwsv1.LeaderWorkerSet {
	all := intstr.FromString("100%")
	set := &lwsv1.LeaderWorkerSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: lwsv1.LeaderWorkerSetSpec{
			Replicas:      &replicas,
			StartupPolicy: lwsv1.LeaderCreatedStartupPolicy,
			RolloutStrategy: lwsv1.RolloutStrategy{
				Type:                       lwsv1.RollingUpdateStrategyType,
				RollingUpdateConfiguration: &lwsv1.RollingUpdateConfiguration{MaxUnavailable: all},
			},
			LeaderWorkerTemplate: lwsv1.LeaderWorkerTemplate{Size: &size, WorkerTemplate: template(image)},
		},
	}
	for _, change := range edits {
		change(set)
	}
	return set
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "serve", Image: image}}}}
}

// uniquePerReplica gives every group a Service of its own.
func uniquePerReplica(set *lwsv1.LeaderWorkerSet) {
	policy := lwsv1.SubdomainUniquePerReplica
	set.Spec.NetworkConfig = &lwsv1.NetworkConfig{SubdomainPolicy: &policy}
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

func imageOf(pod *corev1.Pod) string { return pod.Spec.Containers[0].Image }
