package workload

import (
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/rollout"
)

// LeaderDeployment is the Deployment of the leaders of a set of Hash groups. While it is paused, it
// replaces no leader of an old template.
func LeaderDeployment(set *lwsv1.LeaderWorkerSet, key string, paused bool) *appsv1.Deployment {
	replicas, rolling := Replicas(set), rollingUpdate(set) // the Deployment controller resolves percentages
	if isZero(rolling.MaxUnavailable) && isZero(rolling.MaxSurge) {
		rolling.MaxUnavailable, rolling.MaxSurge = intstr.FromInt32(1), intstr.FromInt32(0)
	}
	template := leaderTemplate(set, key)
	template.Annotations[lwsv1.GroupIdentityAnnotationKey] = string(lwsv1.HashGroupIdentity)
	template.Spec.Subdomain = set.Name
	if Size(set) > 1 {
		gate := []corev1.PodReadinessGate{{ConditionType: lwsv1.GroupReadyCondition}}
		template.Spec.ReadinessGates = slices.Concat(template.Spec.ReadinessGates, gate) // those of the user are not changed
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       set.Namespace,
			Name:            set.Name,
			Labels:          labels.Merge(set.Labels, labels.Set{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: key}),
			Annotations:     labels.Merge(copied(set), labels.Set{lwsv1.ReplicasAnnotationKey: strconv.Itoa(int(replicas))}),
			OwnerReferences: OwnedBySet(set),
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: LeaderSelector(set.Name)},
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &rolling.MaxUnavailable, MaxSurge: &rolling.MaxSurge},
			},
			Template: template,
			Paused:   paused,
		},
	}
}

func isZero(value intstr.IntOrString) bool { return rollout.Groups(value, 100, true) == 0 }

// IsGated reports whether a leader waits for room.
func IsGated(leader *corev1.Pod) bool {
	return slices.Contains(leader.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: lwsv1.GroupReplacementGate})
}

// HasEnded reports whether the containers of a pod ended and do not start again.
func HasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}
