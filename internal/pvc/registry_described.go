package pvc

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"lockstep.dev/lockstep/api/config/v1alpha1"
)

// KindsOf are the kinds that a configuration describes, and JobSet unless it describes
// that as well.
func KindsOf(described []v1alpha1.WorkloadKind) []Kind {
	var kinds []Kind
	for _, k := range described {
		kinds = append(kinds, KindOf(k))
	}
	known := slices.ContainsFunc(kinds, func(k Kind) bool { return k.GroupKind() == JobSet.GroupKind() })
	if !known {
		kinds = append(kinds, JobSet)
	}
	return kinds
}

// KindOf is a kind as a configuration describes it.
func KindOf(k v1alpha1.WorkloadKind) Kind {
	return Kind{
		GroupVersionKind: schema.FromAPIVersionAndKind(k.APIVersion, k.Kind),
		Templates:        k.PodTemplates,
		ClaimTemplates:   k.ClaimTemplates,
		ClaimName:        k.ClaimName,
		Replicas:         k.Replicas,
		Suspend:          k.Suspend,
		Finished:         k.Finished,
	}
}
