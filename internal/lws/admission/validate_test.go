package admission_test

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/backoff"
	"lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// What the laws of config/crd show to be taken, on both sides of each limit, is not here.
func TestValidateCreate(t *testing.T) {
	policy := func(p lwsv1.SubGroupPolicy) change {
		return func(s *lwsv1.LeaderWorkerSet) { s.Spec.LeaderWorkerTemplate.SubGroupPolicy = &p }
	}
	never := func(p *corev1.PodTemplateSpec) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }
	always := func(p *corev1.PodTemplateSpec) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }
	deadline := func(p *corev1.PodTemplateSpec) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](1) }
	host := func(p *corev1.PodTemplateSpec) { p.Spec.Hostname = "host" }
	immediate := func(s *lwsv1.LeaderWorkerSet) { s.Spec.GroupReplacementPolicy = lwsv1.ImmediateGroupReplacement }
	marked := func(p *corev1.PodTemplateSpec) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, lwsv1.LeaderPodNameAnnotationKey, "w-0")
	}
	asks := func(p *corev1.PodTemplateSpec) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, lwsv1.RecreateAnnotationKey, "now")
	}
	retention := func(deleted, scaled appsv1.PersistentVolumeClaimRetentionPolicyType) change {
		return func(s *lwsv1.LeaderWorkerSet) {
			s.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: deleted, WhenScaled: scaled,
			}
		}
	}
	faults := map[string]field.ErrorList{}
	for name, set := range map[string]*lwsv1.LeaderWorkerSet{
		"name begins with a digit":      newSet(withName("2cube")),
		"name too long":                 newSet(withName(strings.Repeat("a", 64))),
		"longest name of a Service":     newSet(withName(strings.Repeat("a", 63))),
		"no name":                       newSet(withName("")),
		"no namespace":                  newSet(func(s *lwsv1.LeaderWorkerSet) { s.Namespace = "" }),
		"negative replicas":             newSet(withReplicas(-1)),
		"too many replicas":             newSet(withReplicas(1000001)),
		"size 0":                        newSet(withSize(0)),
		"largest size":                  newSet(withSize(1000000)),
		"too large a size":              newSet(withSize(1000001)),
		"more pods than can be counted": newSet(withReplicas(65536), withSize(32768)),
		"product beyond 32 bits":        newSet(withReplicas(1000000), withSize(math.MaxInt32)),

		"neither number nor percentage": newSet(withBudget("abc", "1")),
		"negative":                      newSet(withBudget("-1", "-2")),
		"more than all":                 newSet(withBudget("101%", "200%")),
		"negative partition":            newSet(withPartition(-1)),
		"both zero":                     newSet(withBudget("0", "0")),
		"rounded down to zero":          newSet(withBudget("49%", "0")),

		"both zero of nothing":             newSet(withBudget("0", "0"), withReplicas(0)),
		"policy without type":              newSet(policy(lwsv1.SubGroupPolicy{SubGroupSize: ptr.To[int32](2)})),
		"subgroups of none":                newSet(withSubgroups(0)),
		"no size given":                    newSet(policy(lwsv1.SubGroupPolicy{})),
		"divides neither":                  newSet(withSubgroups(3), withSize(5)),
		"larger than size":                 newSet(withSubgroups(5)),
		"larger than size by one":          newSet(withSubgroups(2), withSize(1)),
		"leader excluded, divides neither": newSet(withSubgroups(3), withSize(5), withLeaderExcluded()),
		"topology without subgroups":       newSet(withAnnotation(lwsv1.SubGroupExclusiveKeyAnnotationKey, "rack")),

		"restarted always":                              newSet(withWorkers(always), withLeaderTemplate(always)),
		"workers that end":                              newSet(withWorkers(never), withLeaderTemplate()),
		"leaders that end":                              newSet(withLeaderTemplate(never)),
		"unused workers that end":                       newSet(withSize(1), withLeaderTemplate(), withWorkers(never)),
		"a deadline":                                    newSet(withWorkers(deadline)),
		"leaders marked as workers":                     newSet(withLeaderTemplate(marked)),
		"all marked as workers":                         newSet(withWorkers(marked)),
		"workers marked as workers":                     newSet(withLeaderTemplate(), withWorkers(marked)),
		"leaders that ask to be recreated":              newSet(withLeaderTemplate(asks)),
		"marked, without workers":                       newSet(withSize(1), withLeaderTemplate(marked)),
		"retention unknown":                             newSet(retention("retain", "Recycle")),
		"topology":                                      newSet(withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "cloud.google.com/gke-nodepool")),
		"paused":                                        newSet(withAnnotation(lwsv1.PausedAnnotationKey, "true")),
		"paused by nothing":                             newSet(withAnnotation(lwsv1.PausedAnnotationKey, "")),
		"a long history":                                newSet(withAnnotation(lwsv1.HistoryLimitAnnotationKey, "50")),
		"an endless history":                            newSet(withAnnotation(lwsv1.HistoryLimitAnnotationKey, "-1")),
		"a history in words":                            newSet(withAnnotation(lwsv1.HistoryLimitAnnotationKey, "ten")),
		"a deadline in words":                           newSet(withAnnotation(workload.ProgressDeadlineAnnotationKey, "abc")),
		"an endless deadline":                           newSet(withAnnotation(workload.ProgressDeadlineAnnotationKey, "169h")),
		"no deadline":                                   newSet(withAnnotation(workload.ProgressDeadlineAnnotationKey, "off")),
		"back-off off":                                  newSet(withAnnotation(backoff.AnnotationKey, "off")),
		"a back-off":                                    newSet(withAnnotation(backoff.AnnotationKey, "first=30s,max=10m")),
		"a back-off without a unit":                     newSet(withAnnotation(backoff.AnnotationKey, "first=30")),
		"group restarts":                                newSet(groupRestarts(0, lwsv1.RecreateGroupAfterStart)),
		"group restarts by default":                     newSet(groupRestarts(3, "")),
		"fewer than no group restarts":                  newSet(groupRestarts(-1, "")),
		"group restarts that never happen":              newSet(groupRestarts(1, lwsv1.NoneRestartPolicy)),
		"counts of group restarts":                      newSet(withAnnotation(lwsv1.GroupRestartCountsAnnotationKey, `{"a/0": 0, "a/1": 7}`)),
		"counts that are negative":                      newSet(withAnnotation(lwsv1.GroupRestartCountsAnnotationKey, `{"a/0": -1}`)),
		"counts that are none":                          newSet(withAnnotation(lwsv1.GroupRestartCountsAnnotationKey, `[]`)),
		"hash":                                          newSet(hash, immediate, withSubgroups(2)),
		"hash with what needs an index":                 newSet(hash, withClaims(claimOf("data", "fast", "1Gi")), withPartition(1), withWorkers(host)),
		"hash with a host name of workers":              newSet(hash, withWorkers(host), withLeaderTemplate()),
		"hash with the longest name":                    newSet(hash, withName(strings.Repeat("a", 43))),
		"hash with too long a name":                     newSet(hash, withName(strings.Repeat("a", 44))),
		"hash without workers and with too long a name": newSet(hash, withSize(1), withName(strings.Repeat("a", 55))),
		"ordinals at once":                              newSet(immediate),
		"native gangs":                                  newSet(scheduled),
		"no gang":                                       newSet(withAnnotation(lwsv1.GangSchedulerAnnotationKey, "none")),
		"a gang left to the configuration":              newSet(withAnnotation(lwsv1.GangSchedulerAnnotationKey, "")),
		"an unknown gang scheduler":                     newSet(withAnnotation(lwsv1.GangSchedulerAnnotationKey, "Volcano")),
		"topology that is no label":                     newSet(withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "no label")),
	} {
		faults[name] = admission.Scheduling{}.ValidateCreate(set)
	}
	checkTexts(t, "creates.txt", faults)
}

func scheduled(s *lwsv1.LeaderWorkerSet) { s.Spec.Scheduling = &lwsv1.Scheduling{} }

func hash(s *lwsv1.LeaderWorkerSet) { s.Spec.GroupIdentity = lwsv1.HashGroupIdentity }

func groupRestarts(limit int32, policy lwsv1.RestartPolicyType) func(*lwsv1.LeaderWorkerSet) {
	return func(s *lwsv1.LeaderWorkerSet) {
		s.Spec.LeaderWorkerTemplate.MaxGroupRestarts, s.Spec.LeaderWorkerTemplate.RestartPolicy = &limit, policy
	}
}

func TestUpdates(t *testing.T) {
	withoutSize := func(s *lwsv1.LeaderWorkerSet) { s.Spec.LeaderWorkerTemplate.SubGroupPolicy.SubGroupSize = nil }
	network := func(network *lwsv1.NetworkConfig) change {
		return func(s *lwsv1.LeaderWorkerSet) { s.Spec.NetworkConfig = network }
	}
	unique := network(&lwsv1.NetworkConfig{SubdomainPolicy: ptr.To(lwsv1.SubdomainUniquePerReplica)})
	policies := func(s *lwsv1.LeaderWorkerSet) {
		s.Spec.StartupPolicy, s.Spec.PodTerminationPolicy = lwsv1.LeaderReadyStartupPolicy, lwsv1.ParallelPodTermination
		s.Spec.LeaderWorkerTemplate.RestartPolicy = lwsv1.NoneRestartPolicy
	}
	image := withWorkers(func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = "b" })
	data := claimOf("data", "fast", "1Gi")
	edited := func(edit func(*corev1.PersistentVolumeClaim)) change {
		return withClaims(claimOf("data", "fast", "1Gi", edit))
	}
	mode := func(mode corev1.PersistentVolumeMode) change {
		return edited(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &mode })
	}
	filesystem, block := mode(corev1.PersistentVolumeFilesystem), mode(corev1.PersistentVolumeBlock)
	many := edited(func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes[0] = corev1.ReadWriteMany })
	labelled := edited(func(c *corev1.PersistentVolumeClaim) {
		c.Labels, c.Status.Phase = map[string]string{"a": "b"}, corev1.ClaimBound
	})
	type changes = []change
	faults := map[string]field.ErrorList{}
	for name, tt := range map[string]struct{ old, is changes }{
		"subgroups changed":         {changes{withSubgroups(2)}, changes{withSubgroups(4)}},
		"subgroups added":           {nil, changes{withSubgroups(2)}},
		"subgroups removed":         {changes{withSubgroups(2)}, nil},
		"size of subgroups removed": {changes{withSubgroups(2)}, changes{withSubgroups(2), withoutSize}},
		"type of subgroups changed": {changes{withSize(5), withSubgroups(2)}, changes{withSize(5), withSubgroups(2), withLeaderExcluded()}},
		"size of the group changed": {changes{withSubgroups(2)}, changes{withSubgroups(2), withSize(6)}},

		"subdomain to unique":      {nil, changes{unique}},
		"network without a policy": {nil, changes{network(&lwsv1.NetworkConfig{})}},

		"all that may change": {nil, changes{
			withReplicas(7), withSize(7), withPartition(9), withBudget("9", "9"), withLeaderTemplate(), image, policies, withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "rack"),
		}},
		"group restarts limited":         {nil, changes{groupRestarts(2, "")}},
		"group restarts limited no more": {changes{groupRestarts(2, "")}, nil},
		"limited, and then none":         {changes{groupRestarts(2, "")}, changes{groupRestarts(2, lwsv1.NoneRestartPolicy)}},
		"a label that is none":           {nil, changes{func(s *lwsv1.LeaderWorkerSet) { s.Labels = map[string]string{"a": "b c"} }}},

		"native gangs later":                        {nil, changes{scheduled}},
		"native gangs no more":                      {changes{scheduled}, nil},
		"native gangs of before":                    {changes{scheduled}, changes{scheduled, withPartition(1)}},
		"identity to hash":                          {nil, changes{hash}},
		"identity to ordinals":                      {changes{hash}, nil},
		"identity left out before":                  {changes{func(s *lwsv1.LeaderWorkerSet) { s.Spec.GroupIdentity = "" }}, nil},
		"a set of before with a partition and hash": {changes{hash, withPartition(1)}, changes{hash, withPartition(2)}},

		"PVCs empty for none":             {nil, changes{withClaims()}},
		"PVCs added":                      {nil, changes{withClaims(data)}},
		"PVCs removed":                    {changes{withClaims(data)}, nil},
		"PVCs in another notation":        {changes{withClaims(data)}, changes{withClaims(claimOf("data", "fast", "1024Mi"))}},
		"PVCs with the default spelt out": {changes{withClaims(data)}, changes{filesystem}},
		"PVCs in what reaches none":       {changes{withClaims(data)}, changes{labelled}},
		"larger PVCs":                     {changes{withClaims(data)}, changes{withClaims(claimOf("data", "fast", "2Gi"))}},
		"PVCs of another class":           {changes{withClaims(data)}, changes{withClaims(claimOf("data", "slow", "1Gi"))}},
		"block for filesystem":            {changes{withClaims(data)}, changes{block}},
		"shared for one":                  {changes{withClaims(data)}, changes{many}},
	} {
		faults[name] = admission.Scheduling{}.ValidateUpdate(newSet(tt.is...), newSet(tt.old...))
	}
	checkTexts(t, "updates.txt", faults)
}

func claimOf(name, class, storage string, changes ...func(*corev1.PersistentVolumeClaim)) corev1.PersistentVolumeClaim {
	claim := corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(storage)},
			},
		},
	}
	return *fakeapi.Edited(&claim, changes...)
}

// A set may be older than a rule. Other changes of it must be allowed: the garbage collector could
// not remove its finalizer otherwise. The laws of config/crd check the faults in the spec.
func TestUpdateLeavesOldFaultsAlone(t *testing.T) {
	faulty := map[string]change{
		"name":              withName("2cube"),
		"subgroup topology": withAnnotation(lwsv1.SubGroupExclusiveKeyAnnotationKey, "rack"),
		"topology":          withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "no label"),
		"backoff":           withAnnotation(backoff.AnnotationKey, "first=30"),
	}
	touches := map[string]change{
		"finalizers": func(s *lwsv1.LeaderWorkerSet) { s.Finalizers = []string{"foregroundDeletion"} },
		"image":      withWorkers(func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = "new" }),
	}
	for name, fault := range faulty {
		for what, touch := range touches {
			t.Run(name+"/"+what, func(t *testing.T) {
				old := newSet(fault)
				expect.Must(t, len((admission.Scheduling{}).ValidateCreate(old)) > 0, "the set has no fault to begin with")
				checkFaults(t, admission.Scheduling{}.ValidateUpdate(newSet(fault, touch), old), nil)
			})
		}
	}
}

// newSet is a set of 2 groups of 4 that nothing is wrong with, as it is after
// every default.
func newSet(changes ...func(*lwsv1.LeaderWorkerSet)) *lwsv1.LeaderWorkerSet {
	set := fakeapi.Set("w", 2, 4)
	admission.Default(set)
	return fakeapi.Edited(set, changes...)
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
		fakeapi.Edited(&leader, changes...)
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
	golden(t, name, got.String())
}

// checkYAML compares what named pods become with a file of testdata.
func checkYAML(t *testing.T, name string, pods map[string]any) {
	t.Helper()
	got := expect.Value(yaml.Marshal(pods))(t)
	golden(t, name, string(got))
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		expect.OK(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want := expect.Value(os.ReadFile(file))(t)
	expect.Equal(t, string(want), got)
}

// checkFaults compares whole messages.
func checkFaults(t *testing.T, faults field.ErrorList, want []string) {
	t.Helper()
	got := fakeapi.Each(faults, (*field.Error).Error)
	expect.Equalf(t, want, got, "faults")
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

	for _, tt := range []struct {
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
	} {
		set := &lwsv1.LeaderWorkerSet{Spec: tt.in}
		admission.Default(set)
		expect.Equalf(t, tt.want, set.Spec, "%s", tt.name)
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
