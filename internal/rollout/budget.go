package rollout

import (
	"math"

	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Groups resolves a number or percentage of total. An unreadable one is zero: admission refuses it, and a set from
// before admission must not crash the operator.
func Groups(value intstr.IntOrString, total int32, up bool) int32 {
	if n, err := intstr.GetScaledValueFromIntOrPercent(&value, int(total), up); err == nil && n > 0 {
		return int32(min(n, math.MaxInt32))
	}
	return 0
}

// Budget returns how many groups above and below replicas a role may have in a rolling update of several roles. It is one
// above where nothing is allowed: no update would ever end.
func Budget(config *lwsv1.RollingUpdateConfiguration, replicas int32) (surge, unavailable int32) {
	if config != nil {
		surge, unavailable = Groups(config.MaxSurge, replicas, true), Groups(config.MaxUnavailable, replicas, false)
	}
	if surge == 0 && unavailable == 0 {
		return 1, 0
	}
	return surge, unavailable
}
