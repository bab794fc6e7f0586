package workload

import (
	"cmp"
	"encoding/json"
	"math"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/rollout"
)

// Replicas returns the wanted number of groups.
func Replicas(set *lwsv1.LeaderWorkerSet) int32 {
	return ptr.Deref(set.Spec.Replicas, 1)
}

// Size returns the wanted number of pods in a group, the leader included.
func Size(set *lwsv1.LeaderWorkerSet) int32 {
	return ptr.Deref(set.Spec.LeaderWorkerTemplate.Size, 1)
}

// Subdomain returns the policy that decides which Services a set has.
func Subdomain(set *lwsv1.LeaderWorkerSet) lwsv1.SubdomainPolicy {
	return ptr.Deref(ptr.Deref(set.Spec.NetworkConfig, lwsv1.NetworkConfig{}).SubdomainPolicy, lwsv1.SubdomainShared)
}

// WithSubdomain returns a set with another subdomain policy. An empty one is Shared.
func WithSubdomain(set *lwsv1.LeaderWorkerSet, policy lwsv1.SubdomainPolicy) *lwsv1.LeaderWorkerSet {
	other := *set
	other.Spec.NetworkConfig = &lwsv1.NetworkConfig{SubdomainPolicy: new(cmp.Or(policy, lwsv1.SubdomainShared))}
	return &other
}

// HasHashIdentity reports whether a group of the set is known by a random key, and not by an index.
func HasHashIdentity(set *lwsv1.LeaderWorkerSet) bool {
	return set.Spec.GroupIdentity == lwsv1.HashGroupIdentity
}

// EndsInParallel reports whether the workers of a set's groups end as soon as their leader terminates.
func EndsInParallel(set *lwsv1.LeaderWorkerSet) bool {
	return set.Spec.PodTerminationPolicy == lwsv1.ParallelPodTermination
}

// WrittenParallel reports the same of one group, by the annotation of its worker StatefulSet, or by
// that of its leader, which another implementation may have written.
func WrittenParallel(workers *appsv1.StatefulSet, leader *corev1.Pod) bool {
	const key = lwsv1.PodTerminationPolicyAnnotationKey
	return cmp.Or(workers.Annotations[key], leader.Annotations[key]) == string(lwsv1.ParallelPodTermination)
}

// WrittenPolicy returns the annotation that the worker StatefulSet of a leader is to have. It is
// empty where the leader says the same: a leader without an annotation says Default.
func WrittenPolicy(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) string {
	said := leader.Annotations[lwsv1.PodTerminationPolicyAnnotationKey] == string(lwsv1.ParallelPodTermination)
	if EndsInParallel(set) == said {
		return ""
	}
	return string(cmp.Or(set.Spec.PodTerminationPolicy, lwsv1.DefaultPodTermination))
}

// SizeOf returns the size of the group that a pod was created for: the annotation of the
// pod, or the size of the set if the pod has none that is valid.
func SizeOf(pod *corev1.Pod, set *lwsv1.LeaderWorkerSet) int32 {
	if size := annotatedSize(pod.Annotations); size > 0 {
		return size
	}
	return Size(set)
}

// annotatedSize returns the size of the group that annotations of a pod say, or 0.
func annotatedSize(annotations map[string]string) int32 {
	if size, err := strconv.ParseInt(annotations[lwsv1.SizeAnnotationKey], 10, 32); err == nil {
		return int32(max(size, 0))
	}
	return 0
}

// Partition returns the user's partition: groups below it keep their revision.
func Partition(set *lwsv1.LeaderWorkerSet) int32 {
	return ptr.Deref(rollingUpdate(set).Partition, 0)
}

func rollingUpdate(set *lwsv1.LeaderWorkerSet) lwsv1.RollingUpdateConfiguration {
	return ptr.Deref(set.Spec.RolloutStrategy.RollingUpdateConfiguration, lwsv1.RollingUpdateConfiguration{})
}

// Budget returns the user's budget for rolling updates in groups: maxUnavailable rounded
// down, and maxSurge rounded up but never more than the replicas. If both are zero, as
// percentages of few replicas may be, one group may be down: no update would ever end.
func Budget(set *lwsv1.LeaderWorkerSet) (unavailable, surge int32) {
	surge = min(Surge(set), Replicas(set))
	unavailable = max(rollout.Groups(rollingUpdate(set).MaxUnavailable, Replicas(set), false), 1-surge)
	return min(unavailable, math.MaxInt32-surge), surge
}

// Surge is how many groups beyond replicas a rollout of a Deployment may have. It is not capped.
func Surge(set *lwsv1.LeaderWorkerSet) int32 {
	return rollout.Groups(rollingUpdate(set).MaxSurge, Replicas(set), true)
}

// MaxUnavailable returns how many leaders the StatefulSet controller may have down at a time.
func MaxUnavailable(set *lwsv1.LeaderWorkerSet) int32 {
	unavailable, surge := Budget(set)
	return unavailable + surge
}

// Unmet returns what a set asks for by fields that the definition has and no rule meets yet, with their values.
// scheduler places sets with spec.scheduling, or is empty.
func Unmet(set *lwsv1.LeaderWorkerSet, scheduler string) (unmet []string, err error) {
	if set.Spec.Scheduling == nil || IsPlaced(set, scheduler) {
		return unmet, nil
	}
	value, err := json.Marshal(set.Spec.Scheduling)
	return append(unmet, "spec.scheduling="+string(value)), err
}

// IsPlaced reports whether a scheduler places a set, which has spec.scheduling. Volcano has no PodGroup for less or
// more than a group, and the Workload of a controller above the set is not read.
func IsPlaced(set *lwsv1.LeaderWorkerSet, scheduler string) bool {
	if set.Spec.Scheduling == nil {
		return false
	}
	_, isDelegated := set.Annotations[lwsv1.GroupTemplateNameAnnotationKey]
	levels := gang.Levels(set.Spec.Scheduling)
	switch {
	case isDelegated || len(levels) > 1:
		return false
	case scheduler == gang.Volcano:
		return levels[0] == gang.ReplicaLevel
	}
	return scheduler == gang.Kubernetes
}
