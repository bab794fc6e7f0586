package admission

import (
	"cmp"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Default fills in what a schema cannot: it runs before the schema is checked, and so repairs what a typed client sends
// for a field it leaves empty. Done twice it changes nothing, and on a stored set it changes nothing at all, which
// keeps an update of the operator from touching any generation.
func Default(set *lwsv1.LeaderWorkerSet) {
	defaultRestartPolicy(&set.Spec.LeaderWorkerTemplate)
	defaultRolloutStrategy(&set.Spec.RolloutStrategy)
	set.Spec.NetworkConfig = cmp.Or(set.Spec.NetworkConfig, &lwsv1.NetworkConfig{})
	set.Spec.NetworkConfig.SubdomainPolicy = cmp.Or(set.Spec.NetworkConfig.SubdomainPolicy, ptr.To(lwsv1.SubdomainShared))
	set.Spec.PodTerminationPolicy = cmp.Or(set.Spec.PodTerminationPolicy, lwsv1.DefaultPodTermination)
	set.Spec.GroupIdentity = cmp.Or(set.Spec.GroupIdentity, lwsv1.OrdinalGroupIdentity)
	set.Spec.GroupReplacementPolicy = cmp.Or(set.Spec.GroupReplacementPolicy, lwsv1.PostTerminationGroupReplacement)
}

func defaultRestartPolicy(template *lwsv1.LeaderWorkerTemplate) {
	switch template.RestartPolicy {
	case "":
		template.RestartPolicy = lwsv1.RecreateGroupOnPodRestart
	case lwsv1.DeprecatedDefaultRestartPolicy:
		template.RestartPolicy = lwsv1.NoneRestartPolicy
	}
}

func defaultRolloutStrategy(strategy *lwsv1.RolloutStrategy) {
	strategy.Type = cmp.Or(strategy.Type, lwsv1.RollingUpdateStrategyType)
	if strategy.Type != lwsv1.RollingUpdateStrategyType || strategy.RollingUpdateConfiguration != nil {
		return
	}
	strategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{
		Partition:      ptr.To[int32](0),
		MaxUnavailable: intstr.FromInt32(1),
		MaxSurge:       intstr.FromInt32(0),
	}
}
