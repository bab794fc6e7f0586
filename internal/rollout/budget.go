package rollout

import (
	"math"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Groups resolves a number or percentage of total. An unreadable one is zero: admission refuses it, and a set from
// before admission must not crash the operator.
func Groups(value intstr.IntOrString, total int32, up bool) int32 {
	if n, err := intstr.GetScaledValueFromIntOrPercent(&value, int(total), up); err == nil && n > 0 {
		return int32(min(n, math.MaxInt32))
	}
	return 0
}
