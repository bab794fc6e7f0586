package admission

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// checkSubdomainChange lets the policy change both ways, but not vanish. After
// Default it never does; who calls without is told.
func checkSubdomainChange(set, _ *lwsv1.LeaderWorkerSet) field.ErrorList {
	network := set.Spec.NetworkConfig
	if network == nil || network.SubdomainPolicy != nil {
		return nil
	}
	return field.ErrorList{field.Invalid(specPath.Child("networkConfig", "subdomainPolicy"),
		network.SubdomainPolicy, "cannot set subdomainPolicy as null")}
}
