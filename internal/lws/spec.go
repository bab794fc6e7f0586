package lws

import (
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// The accessors below give a set's fields with the defaults of the API, so that
// no rule depends on a webhook or a schema having filled them in.

// Replicas is the wanted number of groups.
func Replicas(set *lwsv1.LeaderWorkerSet) int32 {
	return orDefault(set.Spec.Replicas, 1)
}

// Size is the wanted number of pods in a group, the leader included.
func Size(set *lwsv1.LeaderWorkerSet) int32 {
	return orDefault(set.Spec.LeaderWorkerTemplate.Size, 1)
}

// Subdomain is the policy that decides which Services a set has.
func Subdomain(set *lwsv1.LeaderWorkerSet) lwsv1.SubdomainPolicy {
	if set.Spec.NetworkConfig == nil {
		return lwsv1.SubdomainShared
	}
	return orDefault(set.Spec.NetworkConfig.SubdomainPolicy, lwsv1.SubdomainShared)
}

// SizeOf is the size of the group that a pod was made for: what the pod says,
// or the set's when the pod says nothing sensible.
func SizeOf(pod *corev1.Pod, set *lwsv1.LeaderWorkerSet) int32 {
	size, err := strconv.ParseInt(pod.Annotations[lwsv1.SizeAnnotationKey], 10, 32)
	if err != nil || size < 1 {
		return Size(set)
	}
	return int32(size)
}

// strategyPartition is the user's partition: groups below it keep their revision.
func strategyPartition(set *lwsv1.LeaderWorkerSet) int32 {
	if rolling := set.Spec.RolloutStrategy.RollingUpdateConfiguration; rolling != nil {
		return orDefault(rolling.Partition, 0)
	}
	return 0
}

// unavailableBudget is how many groups may be away at a time: maxUnavailable
// (rounded down) and maxSurge (rounded up, never more than the replicas), at
// least one.
func unavailableBudget(set *lwsv1.LeaderWorkerSet) int32 {
	rolling := set.Spec.RolloutStrategy.RollingUpdateConfiguration
	if rolling == nil {
		return 1
	}
	replicas := Replicas(set)
	surge := min(scaled(rolling.MaxSurge, replicas, true), replicas)
	unavailable := scaled(rolling.MaxUnavailable, replicas, false)
	return int32(min(max(1, int64(unavailable)+int64(surge)), math.MaxInt32))
}

// scaled resolves a number or percentage of total. What cannot be read is zero:
// admission refuses it, and a set from before admission must not crash us.
func scaled(value intstr.IntOrString, total int32, up bool) int32 {
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, int(total), up)
	if err != nil || n < 0 {
		return 0
	}
	return int32(min(n, math.MaxInt32))
}

func orDefault[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}
