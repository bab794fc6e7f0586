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

// rollingBudget is the user's budget for rolling updates in groups: maxUnavailable
// rounded down, and maxSurge rounded up but never more than the replicas. Where
// both come to nothing, as percentages of few replicas may, one group may be
// away: no update would ever end.
func rollingBudget(set *lwsv1.LeaderWorkerSet) (unavailable, surge int32) {
	rolling := set.Spec.RolloutStrategy.RollingUpdateConfiguration
	if rolling == nil {
		return 1, 0
	}
	replicas := Replicas(set)
	surge = min(scaled(rolling.MaxSurge, replicas, true), replicas)
	unavailable = scaled(rolling.MaxUnavailable, replicas, false)
	if unavailable == 0 && surge == 0 {
		return 1, 0
	}
	return min(unavailable, math.MaxInt32-surge), surge
}

// unavailableBudget is how many leaders the StatefulSet controller may have away
// at a time.
func unavailableBudget(set *lwsv1.LeaderWorkerSet) int32 {
	unavailable, surge := rollingBudget(set)
	return unavailable + surge
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
