package admission_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
)

func TestDefault(t *testing.T) {
	rolling := lwsv1.RolloutStrategy{
		Type: lwsv1.RollingUpdateStrategyType,
		RollingUpdateConfiguration: &lwsv1.RollingUpdateConfiguration{
			Partition: ptr.To[int32](0), MaxUnavailable: intstr.FromInt32(1), MaxSurge: intstr.FromInt32(0),
		},
	}
	shared := &lwsv1.NetworkConfig{SubdomainPolicy: ptr.To(lwsv1.SubdomainShared)}
	unique := &lwsv1.NetworkConfig{SubdomainPolicy: ptr.To(lwsv1.SubdomainUniquePerReplica)}
	given := lwsv1.RolloutStrategy{
		Type:                       lwsv1.RollingUpdateStrategyType,
		RollingUpdateConfiguration: &lwsv1.RollingUpdateConfiguration{MaxSurge: intstr.FromString("10%")},
	}
	unknown := lwsv1.RolloutStrategy{Type: "OnDelete"}

	tests := []struct {
		name     string
		in, want lwsv1.LeaderWorkerSetSpec
	}{
		{"nothing given", lwsv1.LeaderWorkerSetSpec{}, spec(lwsv1.RecreateGroupOnPodRestart, rolling, shared)},
		{"deprecated restart policy", spec(lwsv1.DeprecatedDefaultRestartPolicy, rolling, shared), spec(lwsv1.NoneRestartPolicy, rolling, shared)},
		{"restart policy given", spec(lwsv1.RecreateGroupAfterStart, rolling, shared), spec(lwsv1.RecreateGroupAfterStart, rolling, shared)},
		{"rolling update given in part", spec(lwsv1.NoneRestartPolicy, given, unique), spec(lwsv1.NoneRestartPolicy, given, unique)},
		{"unknown strategy", spec(lwsv1.NoneRestartPolicy, unknown, unique), spec(lwsv1.NoneRestartPolicy, unknown, unique)},
		{"network without a policy", spec(lwsv1.NoneRestartPolicy, rolling, &lwsv1.NetworkConfig{}), spec(lwsv1.NoneRestartPolicy, rolling, shared)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := &lwsv1.LeaderWorkerSet{Spec: tt.in}
			admission.Default(set)
			if diff := cmp.Diff(tt.want, set.Spec); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func spec(restart lwsv1.RestartPolicyType, rollout lwsv1.RolloutStrategy, network *lwsv1.NetworkConfig) lwsv1.LeaderWorkerSetSpec {
	return lwsv1.LeaderWorkerSetSpec{
		LeaderWorkerTemplate: lwsv1.LeaderWorkerTemplate{RestartPolicy: restart},
		RolloutStrategy:      rollout,
		NetworkConfig:        network,
	}
}
