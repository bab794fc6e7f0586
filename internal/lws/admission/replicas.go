package admission

import (
	"math"

	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

const maxReplicas = 1_000_000

func readReplicas(set *lwsv1.LeaderWorkerSet) any { return replicas(set) }

func checkReplicas(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	switch n := replicas(set); {
	case n < 0:
		return field.ErrorList{field.Invalid(replicasPath, n, "replicas must be equal or greater than 0")}
	case n > maxReplicas:
		return field.ErrorList{field.Invalid(replicasPath, n, "replicas must be equal or less than 1000000")}
	}
	return nil
}

func readSize(set *lwsv1.LeaderWorkerSet) any { return size(set) }

func checkSize(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	if n := size(set); n < 1 {
		return field.ErrorList{field.Invalid(sizePath, n, "size must be equal or greater than 1")}
	}
	return nil
}

func readProduct(set *lwsv1.LeaderWorkerSet) any { return [...]int32{replicas(set), size(set)} }

// checkProduct keeps the number of pods of a set within an int32, in which
// others count them.
func checkProduct(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	if int64(replicas(set))*int64(size(set)) > math.MaxInt32 {
		return field.ErrorList{field.Invalid(replicasPath, replicas(set),
			"the product of replicas and worker replicas must not exceed 2147483647")}
	}
	return nil
}
