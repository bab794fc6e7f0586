package admission

import (
	"math"

	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// The controller of StatefulSets takes memory for every pod that one of them asks for,
// before it makes the first: 17 GB for a size of two thousand million, which takes that controller away
// from everybody. A million pods take 8 MB, and are more than any cluster holds.
const (
	maxReplicas = 1_000_000
	maxSize     = 1_000_000
)

func checkReplicas(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	switch n := workload.Replicas(set); {
	case n < 0:
		return field.ErrorList{field.Invalid(replicasPath, n, "replicas must be equal or greater than 0")}
	case n > maxReplicas:
		return field.ErrorList{field.Invalid(replicasPath, n, "replicas must be equal or less than 1000000")}
	}
	return nil
}

func checkSize(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	switch n := workload.Size(set); {
	case n < 1:
		return field.ErrorList{field.Invalid(sizePath, n, "size must be equal or greater than 1")}
	case n > maxSize:
		return field.ErrorList{field.Invalid(sizePath, n, "size must be equal or less than 1000000: more pods than a cluster holds; use more groups")}
	}
	return nil
}

// checkProduct keeps the number of pods of a set within an int32, in which
// others count them.
func checkProduct(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	if int64(workload.Replicas(set))*int64(workload.Size(set)) > math.MaxInt32 {
		return field.ErrorList{field.Invalid(replicasPath, workload.Replicas(set),
			"the product of replicas and worker replicas must not exceed 2147483647")}
	}
	return nil
}
