package admission_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/backoff"
	"lockstep.dev/lockstep/internal/lws/admission"
)

// The texts are a contract.
const (
	dns1035       = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
	percentText   = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
	unavailable   = "spec.rolloutStrategy.rollingUpdateConfiguration.maxUnavailable: Invalid value: "
	surge         = "spec.rolloutStrategy.rollingUpdateConfiguration.maxSurge: Invalid value: "
	partition     = "spec.rolloutStrategy.rollingUpdateConfiguration.partition: Invalid value: "
	subgroupSize  = "spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize: "
	subgroupTopo  = "metadata.annotations.leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology: Invalid value: "
	identityText  = "spec.groupIdentity: Invalid value: "
	immutableText = "spec.leaderWorkerTemplate.volumeClaimTemplates: Invalid value: field is immutable: the claims of a StatefulSet cannot be changed; put back what it was; to enlarge a volume, resize its claim; for other claims, delete the set and create it again, with whenDeleted Retain if data is to stay"
)

// nameLength is the fault of a name that leaves no room for the labels of two groups.
func nameLength(has int) string {
	return fmt.Sprintf("metadata.name: Too long: has %d characters, and labels of pods hold it with the group index and a revision hash; use at most 50 for 2 groups", has)
}

// What the laws of config/crd show to be taken, on both sides of each limit, is not here.
func TestValidateCreate(t *testing.T) {
	policy := func(p lwsv1.SubGroupPolicy) change {
		return func(s *lwsv1.LeaderWorkerSet) { s.Spec.LeaderWorkerTemplate.SubGroupPolicy = &p }
	}
	indivisible := subgroupSize + "Invalid value: 3: size or size - 1 must be divisible by subGroupSize"
	never := func(p *corev1.PodTemplateSpec) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }
	always := func(p *corev1.PodTemplateSpec) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }
	deadline := func(p *corev1.PodTemplateSpec) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](1) }
	host := func(p *corev1.PodTemplateSpec) { p.Spec.Hostname = "host" }
	immediate := func(s *lwsv1.LeaderWorkerSet) { s.Spec.GroupReplacementPolicy = lwsv1.ImmediateGroupReplacement }
	marked := func(p *corev1.PodTemplateSpec) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, lwsv1.LeaderPodNameAnnotationKey, "w-0")
	}
	retention := func(deleted, scaled appsv1.PersistentVolumeClaimRetentionPolicyType) change {
		return func(s *lwsv1.LeaderWorkerSet) {
			s.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: deleted, WhenScaled: scaled,
			}
		}
	}
	const (
		restart   = `.spec.restartPolicy: Invalid value: "Never": must be Always: the pods of a StatefulSet are always restarted`
		leaderMrk = `.metadata.annotations[leaderworkerset.sigs.k8s.io/leader-name]: Forbidden: a leader with this annotation gets no workers; remove it`
		notLabel  = `metadata.annotations.leaderworkerset.sigs.k8s.io/exclusive-topology: Invalid value: "no label": must be the key of a node label: `
	)
	for _, tt := range []struct {
		name string
		set  *lwsv1.LeaderWorkerSet
		want []string
	}{
		{"name begins with a digit", newSet(withName("2cube")), []string{`metadata.name: Invalid value: "2cube": ` + dns1035}},
		{
			"name too long", newSet(withName(strings.Repeat("a", 64))),
			[]string{`metadata.name: Invalid value: "` + strings.Repeat("a", 64) + `": must be no more than 63 characters`, nameLength(64)},
		},
		{"longest name of a Service", newSet(withName(strings.Repeat("a", 63))), []string{nameLength(63)}},
		{"no name", newSet(withName("")), []string{"metadata.name: Required value: name or generateName is required"}},
		{"no namespace", newSet(func(s *lwsv1.LeaderWorkerSet) { s.Namespace = "" }), []string{"metadata.namespace: Required value"}},
		{"negative replicas", newSet(withReplicas(-1)), []string{"spec.replicas: Invalid value: -1: replicas must be equal or greater than 0"}},
		{"too many replicas", newSet(withReplicas(1000001)), []string{"spec.replicas: Invalid value: 1000001: replicas must be equal or less than 1000000"}},
		{"size 0", newSet(withSize(0)), []string{"spec.leaderWorkerTemplate.size: Invalid value: 0: size must be equal or greater than 1"}},
		{"largest size", newSet(withSize(1000000)), nil},
		{"too large a size", newSet(withSize(1000001)), []string{"spec.leaderWorkerTemplate.size: Invalid value: 1000001: size must be equal or less than 1000000: more pods than a cluster holds; use more groups"}},
		{
			"more pods than can be counted", newSet(withReplicas(65536), withSize(32768)),
			[]string{"spec.replicas: Invalid value: 65536: the product of replicas and worker replicas must not exceed 2147483647"},
		},
		{
			"product beyond 32 bits", newSet(withReplicas(1000000), withSize(math.MaxInt32)),
			[]string{
				"spec.leaderWorkerTemplate.size: Invalid value: 2147483647: size must be equal or less than 1000000: more pods than a cluster holds; use more groups",
				"spec.replicas: Invalid value: 1000000: the product of replicas and worker replicas must not exceed 2147483647",
			},
		},

		{"neither number nor percentage", newSet(withBudget("abc", "1")), []string{
			unavailable + `"abc": ` + percentText,
			unavailable + `"abc": invalid value`,
		}},
		{"negative", newSet(withBudget("-1", "-2")), []string{
			unavailable + "-1: must be greater than or equal to 0",
			surge + "-2: must be greater than or equal to 0",
		}},
		{"more than all", newSet(withBudget("101%", "200%")), []string{
			unavailable + `"101%": must not be greater than 100%`,
			surge + `"200%": must not be greater than 100%`,
		}},
		{"negative partition", newSet(withPartition(-1)), []string{partition + "-1: must be greater than or equal to 0"}},
		{"both zero", newSet(withBudget("0", "0")), []string{unavailable + "0: must not be 0 when `maxSurge` is 0"}},
		{"rounded down to zero", newSet(withBudget("49%", "0")), []string{unavailable + `"49%": must not be 0 when ` + "`maxSurge` is 0"}},

		{"both zero of nothing", newSet(withBudget("0", "0"), withReplicas(0)), nil},
		{"policy without type", newSet(policy(lwsv1.SubGroupPolicy{SubGroupSize: ptr.To[int32](2)})), nil},
		{"subgroups of none", newSet(withSubgroups(0)), []string{subgroupSize + "Invalid value: 0: subGroupSize must be equal or greater than 1"}},
		{"no size given", newSet(policy(lwsv1.SubGroupPolicy{})), []string{subgroupSize + "Required value: subGroupSize is required"}},
		{"divides neither", newSet(withSubgroups(3), withSize(5)), []string{indivisible}},
		{"larger than size", newSet(withSubgroups(5)), []string{
			subgroupSize + "Invalid value: 5: size or size - 1 must be divisible by subGroupSize",
			subgroupSize + "Invalid value: 5: subGroupSize cannot be larger than size",
		}},
		{"larger than size by one", newSet(withSubgroups(2), withSize(1)), []string{
			subgroupSize + "Invalid value: 2: subGroupSize cannot be larger than size",
		}},
		{"leader excluded, divides neither", newSet(withSubgroups(3), withSize(5), withLeaderExcluded()), []string{
			indivisible,
			subgroupSize + "Invalid value: 3: size-1 must be divisible by subGroupSize when using LeaderExcluded",
		}},
		{"topology without subgroups", newSet(withAnnotation(lwsv1.SubGroupExclusiveKeyAnnotationKey, "rack")), []string{
			subgroupTopo + `"rack": cannot have subgroup-exclusive-topology without subGroupSize set`,
		}},

		{"restarted always", newSet(withWorkers(always), withLeaderTemplate(always)), nil},
		{"workers that end", newSet(withWorkers(never), withLeaderTemplate()), []string{"spec.leaderWorkerTemplate.workerTemplate" + restart}},
		{"leaders that end", newSet(withLeaderTemplate(never)), []string{"spec.leaderWorkerTemplate.leaderTemplate" + restart}},
		{"unused workers that end", newSet(withSize(1), withLeaderTemplate(), withWorkers(never)), nil},
		{"a deadline", newSet(withWorkers(deadline)), []string{
			"spec.leaderWorkerTemplate.workerTemplate.spec.activeDeadlineSeconds: Forbidden: the pods of a StatefulSet have no deadline; remove it",
		}},
		{"leaders marked as workers", newSet(withLeaderTemplate(marked)), []string{"spec.leaderWorkerTemplate.leaderTemplate" + leaderMrk}},
		{"all marked as workers", newSet(withWorkers(marked)), []string{"spec.leaderWorkerTemplate.workerTemplate" + leaderMrk}},
		{"workers marked as workers", newSet(withLeaderTemplate(), withWorkers(marked)), nil},
		{"marked, without workers", newSet(withSize(1), withLeaderTemplate(marked)), nil},
		{"retention unknown", newSet(retention("retain", "Recycle")), []string{
			`spec.leaderWorkerTemplate.persistentVolumeClaimRetentionPolicy.whenDeleted: Invalid value: "retain": must be Retain or Delete`,
			`spec.leaderWorkerTemplate.persistentVolumeClaimRetentionPolicy.whenScaled: Invalid value: "Recycle": must be Retain or Delete`,
		}},
		{"topology", newSet(withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "cloud.google.com/gke-nodepool")), nil},
		{"paused", newSet(withAnnotation(lwsv1.PausedAnnotationKey, "true")), nil},
		{"paused by nothing", newSet(withAnnotation(lwsv1.PausedAnnotationKey, "")), []string{
			`metadata.annotations[lockstep.dev/paused]: Unsupported value: "": supported values: "true", "false"`,
		}},
		{"a long history", newSet(withAnnotation(lwsv1.HistoryLimitAnnotationKey, "50")), nil},
		{"an endless history", newSet(withAnnotation(lwsv1.HistoryLimitAnnotationKey, "-1")), []string{
			`metadata.annotations[lockstep.dev/revision-history-limit]: Invalid value: "-1": must be a whole number from 0`,
		}},
		{"a history in words", newSet(withAnnotation(lwsv1.HistoryLimitAnnotationKey, "ten")), []string{
			`metadata.annotations[lockstep.dev/revision-history-limit]: Invalid value: "ten": must be a whole number from 0`,
		}},
		{"back-off off", newSet(withAnnotation(backoff.AnnotationKey, "off")), nil},
		{"a back-off", newSet(withAnnotation(backoff.AnnotationKey, "first=30s,max=10m")), nil},
		{"a back-off without a unit", newSet(withAnnotation(backoff.AnnotationKey, "first=30")), []string{
			`metadata.annotations[lockstep.dev/restart-backoff]: Invalid value: "first=30": "first=30" must be a duration from 1s to 24h, such as first=30s`,
		}},
		{"group restarts", newSet(groupRestarts(0, lwsv1.RecreateGroupAfterStart)), nil},
		{"group restarts by default", newSet(groupRestarts(3, "")), nil},
		{"fewer than no group restarts", newSet(groupRestarts(-1, "")), []string{
			"spec.leaderWorkerTemplate.maxGroupRestarts: Invalid value: -1: must be greater than or equal to 0",
		}},
		{"group restarts that never happen", newSet(groupRestarts(1, lwsv1.NoneRestartPolicy)), []string{
			"spec.leaderWorkerTemplate.maxGroupRestarts: Invalid value: maxGroupRestarts is only supported when restartPolicy recreates the group",
		}},
		{"counts of group restarts", newSet(withAnnotation(lwsv1.GroupRestartCountsAnnotationKey, `{"a/0": 0, "a/1": 7}`)), nil},
		{"counts that are negative", newSet(withAnnotation(lwsv1.GroupRestartCountsAnnotationKey, `{"a/0": -1}`)), []string{
			`metadata.annotations[leaderworkerset.sigs.k8s.io/group-restart-counts]: Invalid value: "{\"a/0\": -1}": must be a JSON object of whole numbers from 0, and the one of "a/0" is -1`,
		}},
		{"counts that are none", newSet(withAnnotation(lwsv1.GroupRestartCountsAnnotationKey, `[]`)), []string{
			`metadata.annotations[leaderworkerset.sigs.k8s.io/group-restart-counts]: Invalid value: "[]": must be a JSON object of whole numbers from 0, by revision key and group index`,
		}},
		{"hash", newSet(hash, immediate, withSubgroups(2)), nil},
		{"hash with what needs an index", newSet(hash, withClaims(claimOf("data", "fast", "1Gi")), withPartition(1), withWorkers(host)), []string{
			identityText + `"Hash": volumeClaimTemplates are not supported with groupIdentity Hash`,
			identityText + `"Hash": rollingUpdateConfiguration.partition is not supported with groupIdentity Hash`,
			identityText + `"Hash": a leader pod hostname is not supported with groupIdentity Hash`,
		}},
		{"hash with a host name of workers", newSet(hash, withWorkers(host), withLeaderTemplate()), nil},
		{"hash with the longest name", newSet(hash, withName(strings.Repeat("a", 43))), nil},
		{"hash with too long a name", newSet(hash, withName(strings.Repeat("a", 44))), []string{
			`metadata.name: Invalid value: "` + strings.Repeat("a", 44) + `": must be no more than 43 characters with groupIdentity Hash`,
		}},
		{"hash without workers and with too long a name", newSet(hash, withSize(1), withName(strings.Repeat("a", 55))), []string{
			`metadata.name: Invalid value: "` + strings.Repeat("a", 55) + `": must be no more than 54 characters with groupIdentity Hash`,
		}},
		{"ordinals at once", newSet(immediate), []string{
			`spec.groupReplacementPolicy: Invalid value: "Immediate": Immediate is only supported with groupIdentity Hash`,
		}},
		{"native gangs", newSet(scheduled), []string{"spec.scheduling: Forbidden: requires the WorkloadAwareScheduling feature gate"}},
		{"no gang", newSet(withAnnotation(lwsv1.GangSchedulerAnnotationKey, "none")), nil},
		{"a gang left to the configuration", newSet(withAnnotation(lwsv1.GangSchedulerAnnotationKey, "")), nil},
		{"an unknown gang scheduler", newSet(withAnnotation(lwsv1.GangSchedulerAnnotationKey, "Volcano")), []string{
			`metadata.annotations[lockstep.dev/gang-scheduler]: Unsupported value: "Volcano": supported values: "volcano", "none"`,
		}},
		{"topology that is no label", newSet(withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "no label")), []string{
			notLabel + "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkFaults(t, admission.Scheduling{}.ValidateCreate(tt.set), tt.want)
		})
	}
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
	const (
		required = subgroupSize + "Required value: subGroupSize is required"
		removed  = subgroupSize + "Invalid value: null: cannot remove subGroupSize after enabled"
	)
	for _, tt := range []struct {
		name    string
		old, is changes
		want    []string
	}{
		{"subgroups changed", changes{withSubgroups(2)}, changes{withSubgroups(4)}, []string{subgroupSize + "Invalid value: 4: field is immutable"}},
		{"subgroups added", nil, changes{withSubgroups(2)}, []string{subgroupSize + "Invalid value: 2: cannot enable subGroupSize after the lws is already created"}},
		{"subgroups removed", changes{withSubgroups(2)}, nil, []string{removed}},
		{"size of subgroups removed", changes{withSubgroups(2)}, changes{withSubgroups(2), withoutSize}, []string{required, removed}},
		{"type of subgroups changed", changes{withSize(5), withSubgroups(2)}, changes{withSize(5), withSubgroups(2), withLeaderExcluded()}, nil},
		{"size of the group changed", changes{withSubgroups(2)}, changes{withSubgroups(2), withSize(6)}, nil},

		{"subdomain to unique", nil, changes{unique}, nil},
		{"network without a policy", nil, changes{network(&lwsv1.NetworkConfig{})}, []string{
			"spec.networkConfig.subdomainPolicy: Invalid value: null: cannot set subdomainPolicy as null",
		}},

		{"all that may change", nil, changes{
			withReplicas(7), withSize(7), withPartition(9), withBudget("9", "9"), withLeaderTemplate(), image, policies, withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "rack"),
		}, nil},
		{"group restarts limited", nil, changes{groupRestarts(2, "")}, nil},
		{"group restarts limited no more", changes{groupRestarts(2, "")}, nil, nil},
		{"limited, and then none", changes{groupRestarts(2, "")}, changes{groupRestarts(2, lwsv1.NoneRestartPolicy)}, []string{
			"spec.leaderWorkerTemplate.maxGroupRestarts: Invalid value: maxGroupRestarts is only supported when restartPolicy recreates the group",
		}},
		{"a label that is none", nil, changes{func(s *lwsv1.LeaderWorkerSet) { s.Labels = map[string]string{"a": "b c"} }}, []string{
			`metadata.labels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
		}},

		{"native gangs later", nil, changes{scheduled}, []string{
			"spec.scheduling: Forbidden: requires the WorkloadAwareScheduling feature gate", "spec.scheduling: Forbidden: cannot add scheduling after creation",
		}},
		{"native gangs no more", changes{scheduled}, nil, []string{"spec.scheduling: Forbidden: cannot remove scheduling after creation"}},
		{"native gangs of before", changes{scheduled}, changes{scheduled, withPartition(1)}, nil},
		{"identity to hash", nil, changes{hash}, []string{identityText + `"Hash": groupIdentity is immutable`}},
		{"identity to ordinals", changes{hash}, nil, []string{identityText + `"Ordinal": groupIdentity is immutable`}},
		{"identity left out before", changes{func(s *lwsv1.LeaderWorkerSet) { s.Spec.GroupIdentity = "" }}, nil, nil},
		{"a set of before with a partition and hash", changes{hash, withPartition(1)}, changes{hash, withPartition(2)}, nil},

		{"PVCs empty for none", nil, changes{withClaims()}, nil},
		{"PVCs added", nil, changes{withClaims(data)}, []string{immutableText}},
		{"PVCs removed", changes{withClaims(data)}, nil, []string{immutableText}},
		{"PVCs in another notation", changes{withClaims(data)}, changes{withClaims(claimOf("data", "fast", "1024Mi"))}, nil},
		{"PVCs with the default spelt out", changes{withClaims(data)}, changes{filesystem}, nil},
		{"PVCs in what reaches none", changes{withClaims(data)}, changes{labelled}, nil},
		{"larger PVCs", changes{withClaims(data)}, changes{withClaims(claimOf("data", "fast", "2Gi"))}, []string{immutableText}},
		{"PVCs of another class", changes{withClaims(data)}, changes{withClaims(claimOf("data", "slow", "1Gi"))}, []string{immutableText}},
		{"block for filesystem", changes{withClaims(data)}, changes{block}, []string{immutableText}},
		{"shared for one", changes{withClaims(data)}, changes{many}, []string{immutableText}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkFaults(t, admission.Scheduling{}.ValidateUpdate(newSet(tt.is...), newSet(tt.old...)), tt.want)
		})
	}
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
	for _, change := range changes {
		change(&claim)
	}
	return claim
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
				if len((admission.Scheduling{}).ValidateCreate(old)) == 0 {
					t.Fatal("the set has no fault to begin with")
				}
				checkFaults(t, admission.Scheduling{}.ValidateUpdate(newSet(fault, touch), old), nil)
			})
		}
	}
}
