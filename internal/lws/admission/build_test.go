package admission_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/test/fakeapi"
)

// newSet is a set of 2 groups of 4 that nothing is wrong with, as it is after
// every default.
func newSet(changes ...func(*lwsv1.LeaderWorkerSet)) *lwsv1.LeaderWorkerSet {
	set := fakeapi.Set("w", 2, 4)
	admission.Default(set)
	for _, change := range changes {
		change(set)
	}
	return set
}

type change = func(*lwsv1.LeaderWorkerSet)

func withReplicas(n int32) change {
	return func(s *lwsv1.LeaderWorkerSet) { s.Spec.Replicas = &n }
}

func withSize(n int32) change {
	return func(s *lwsv1.LeaderWorkerSet) { s.Spec.LeaderWorkerTemplate.Size = &n }
}

func withBudget(unavailable, surge string) change {
	return func(s *lwsv1.LeaderWorkerSet) {
		s.Spec.RolloutStrategy.RollingUpdateConfiguration.MaxUnavailable = intstr.Parse(unavailable)
		s.Spec.RolloutStrategy.RollingUpdateConfiguration.MaxSurge = intstr.Parse(surge)
	}
}

func withPartition(n int32) change {
	return func(s *lwsv1.LeaderWorkerSet) { s.Spec.RolloutStrategy.RollingUpdateConfiguration.Partition = &n }
}

func withSubgroups(n int32) change {
	return func(s *lwsv1.LeaderWorkerSet) {
		s.Spec.LeaderWorkerTemplate.SubGroupPolicy = &lwsv1.SubGroupPolicy{
			Type: ptr.To(lwsv1.SubGroupPolicyTypeLeaderWorker), SubGroupSize: &n,
		}
	}
}

func withLeaderExcluded() change {
	return func(s *lwsv1.LeaderWorkerSet) {
		s.Spec.LeaderWorkerTemplate.SubGroupPolicy.Type = ptr.To(lwsv1.SubGroupPolicyTypeLeaderExcluded)
	}
}

var withAnnotation = fakeapi.Annotation

func withName(name string) change {
	return func(s *lwsv1.LeaderWorkerSet) { s.Name = name }
}

func withLeaderTemplate(changes ...func(*corev1.PodTemplateSpec)) change {
	return func(s *lwsv1.LeaderWorkerSet) {
		leader := fakeapi.Template("leader", "image:1")
		for _, change := range changes {
			change(&leader)
		}
		s.Spec.LeaderWorkerTemplate.LeaderTemplate = &leader
	}
}

func withWorkers(change func(*corev1.PodTemplateSpec)) change {
	return func(s *lwsv1.LeaderWorkerSet) { change(&s.Spec.LeaderWorkerTemplate.WorkerTemplate) }
}

func withClaims(claims ...corev1.PersistentVolumeClaim) change {
	return func(s *lwsv1.LeaderWorkerSet) { s.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = claims }
}

// checkTexts compares the faults of named cases with a file of testdata: their texts are a contract.
func checkTexts(t *testing.T, name string, faults map[string]field.ErrorList) {
	t.Helper()
	var got strings.Builder
	for _, of := range slices.Sorted(maps.Keys(faults)) {
		got.WriteString("# " + of + "\n")
		for _, fault := range faults[of] {
			got.WriteString(fault.Error() + "\n")
		}
	}
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if diff := cmp.Diff(string(want), got.String()); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

// checkFaults compares whole messages.
func checkFaults(t *testing.T, faults field.ErrorList, want []string) {
	t.Helper()
	var got []string
	for _, fault := range faults {
		got = append(got, fault.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

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
	parallel := spec(lwsv1.NoneRestartPolicy, rolling, shared)
	parallel.PodTerminationPolicy = lwsv1.ParallelPodTermination
	hashed := spec(lwsv1.NoneRestartPolicy, rolling, shared)
	hashed.GroupIdentity, hashed.GroupReplacementPolicy = lwsv1.HashGroupIdentity, lwsv1.ImmediateGroupReplacement

	tests := []struct {
		name     string
		in, want lwsv1.LeaderWorkerSetSpec
	}{
		{"nothing given", lwsv1.LeaderWorkerSetSpec{}, spec(lwsv1.RecreateGroupOnPodRestart, rolling, shared)},
		{"deprecated restart policy", spec(lwsv1.DeprecatedDefaultRestartPolicy, rolling, shared), spec(lwsv1.NoneRestartPolicy, rolling, shared)},
		{"restart policy given", spec(lwsv1.RecreateGroupAfterStart, rolling, shared), spec(lwsv1.RecreateGroupAfterStart, rolling, shared)},
		{"rolling update given in part", spec(lwsv1.NoneRestartPolicy, given, unique), spec(lwsv1.NoneRestartPolicy, given, unique)},
		{"unknown strategy", spec(lwsv1.NoneRestartPolicy, unknown, unique), spec(lwsv1.NoneRestartPolicy, unknown, unique)},
		{"termination policy given", parallel, parallel},
		{"identity and replacement given", hashed, hashed},
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
		PodTerminationPolicy: lwsv1.DefaultPodTermination,
		GroupIdentity:        lwsv1.OrdinalGroupIdentity,

		GroupReplacementPolicy: lwsv1.PostTerminationGroupReplacement,
	}
}
