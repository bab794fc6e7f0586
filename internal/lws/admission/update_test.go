package admission_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
)

type updateTest struct {
	name    string
	old, is *lwsv1.LeaderWorkerSet
	want    []string
}

func runUpdateTests(t *testing.T, tests []updateTest) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkFaults(t, admission.ValidateUpdate(tt.is, tt.old), tt.want)
		})
	}
}

func TestUpdateOfSubgroups(t *testing.T) {
	withoutSize := func(s *lwsv1.LeaderWorkerSet) { s.Spec.LeaderWorkerTemplate.SubGroupPolicy.SubGroupSize = nil }
	required := subgroupSize + "Required value: a subGroupPolicy needs a subGroupSize, the number of pods of a subgroup"
	runUpdateTests(t, []updateTest{
		{"as they were", newSet(withSubgroups(2)), newSet(withSubgroups(2)), nil},
		{"changed", newSet(withSubgroups(2)), newSet(withSubgroups(4)), []string{subgroupSize + "Invalid value: 4: field is immutable"}},
		{"changed to zero", newSet(withSubgroups(2)), newSet(withSubgroups(0)), []string{
			subgroupSize + "Invalid value: 0: subGroupSize must be equal or greater than 1",
			subgroupSize + "Invalid value: 0: field is immutable",
		}},
		{"added", newSet(), newSet(withSubgroups(2)), []string{subgroupSize + "Invalid value: 2: cannot enable subGroupSize after the lws is already created"}},
		{"removed", newSet(withSubgroups(2)), newSet(), []string{subgroupSize + "Invalid value: null: cannot remove subGroupSize after enabled"}},
		{"added without a size", newSet(), newSet(withSubgroups(2), withoutSize), []string{required}},
		{"size removed", newSet(withSubgroups(2)), newSet(withSubgroups(2), withoutSize), []string{
			required, subgroupSize + "Invalid value: null: cannot remove subGroupSize after enabled",
		}},
		{"type changed", newSet(withSize(5), withSubgroups(2)), newSet(withSize(5), withSubgroups(2), withLeaderExcluded()), nil},
		{"size of the group changed", newSet(withSubgroups(2)), newSet(withSubgroups(2), withSize(6)), nil},
		{"size of the group no longer divisible", newSet(withSubgroups(4)), newSet(withSubgroups(4), withSize(6)), []string{
			subgroupSize + "Invalid value: 4: size or size - 1 must be divisible by subGroupSize",
		}},
	})
}

func TestUpdateOfSubdomain(t *testing.T) {
	with := func(network *lwsv1.NetworkConfig) change {
		return func(s *lwsv1.LeaderWorkerSet) { s.Spec.NetworkConfig = network }
	}
	unique := with(&lwsv1.NetworkConfig{SubdomainPolicy: ptr.To(lwsv1.SubdomainUniquePerReplica)})
	runUpdateTests(t, []updateTest{
		{"to unique", newSet(), newSet(unique), nil},
		{"to shared", newSet(unique), newSet(), nil},
		{"from none", newSet(with(nil)), newSet(unique), nil},
		{"to none", newSet(), newSet(with(nil)), nil},
		{"to a network without a policy", newSet(), newSet(with(&lwsv1.NetworkConfig{})), []string{
			"spec.networkConfig.subdomainPolicy: Invalid value: null: cannot set subdomainPolicy as null",
		}},
	})
}

func TestUpdateOfEverythingElse(t *testing.T) {
	runUpdateTests(t, []updateTest{
		{"replicas", newSet(), newSet(withReplicas(7)), nil},
		{"size", newSet(), newSet(withSize(7)), nil},
		{"partition beyond replicas", newSet(), newSet(withPartition(9)), nil},
		{"budget beyond replicas", newSet(), newSet(withBudget("9", "9")), nil},
		{"templates", newSet(), newSet(withLeaderTemplate(), withWorkers(func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = "b" })), nil},
		{"policies", newSet(), newSet(func(s *lwsv1.LeaderWorkerSet) {
			s.Spec.StartupPolicy = lwsv1.LeaderReadyStartupPolicy
			s.Spec.LeaderWorkerTemplate.RestartPolicy = lwsv1.NoneRestartPolicy
		}), nil},
		{"placement", newSet(), newSet(withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "rack")), nil},
		{"to too many replicas", newSet(), newSet(withReplicas(1000001)), []string{
			"spec.replicas: Invalid value: 1000001: replicas must be equal or less than 1000000",
		}},
		{"to too large a size", newSet(), newSet(withReplicas(1), withSize(2_000_000_000)), []string{
			"spec.leaderWorkerTemplate.size: Invalid value: 2000000000: size must be equal or less than 1000000: more pods than a cluster holds; use more groups",
		}},
		{"budget that rounds to nothing after scaling", newSet(withBudget("10%", "0"), withReplicas(10)), newSet(withBudget("10%", "0"), withReplicas(5)), []string{
			unavailable + `"10%": must not be 0 when ` + "`maxSurge` is 0",
		}},
		{"to a label that is none", newSet(), newSet(func(s *lwsv1.LeaderWorkerSet) { s.Labels = map[string]string{"a": "b c"} }), []string{
			`metadata.labels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
		}},
	})
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

func TestUpdateOfClaims(t *testing.T) {
	type claim = corev1.PersistentVolumeClaim
	data := claimOf("data", "fast", "1Gi")
	runUpdateTests(t, []updateTest{
		{"as they were", newSet(withClaims(data)), newSet(withClaims(data)), nil},
		{"in another notation", newSet(withClaims(data)), newSet(withClaims(claimOf("data", "fast", "1024Mi"))), nil},
		{"with the default spelt out", newSet(withClaims(data)), newSet(withClaims(claimOf("data", "fast", "1Gi", func(c *claim) {
			c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeFilesystem)
		}))), nil},
		{"what reaches no claim", newSet(withClaims(data)), newSet(withClaims(claimOf("data", "fast", "1Gi", func(c *claim) {
			c.Labels = map[string]string{"a": "b"}
			c.Status.Phase = corev1.ClaimBound
		}))), nil},
		{"empty for none", newSet(), newSet(withClaims()), nil},
		{"added", newSet(), newSet(withClaims(data)), []string{immutableText}},
		{"removed", newSet(withClaims(data)), newSet(), []string{immutableText}},
		{"larger", newSet(withClaims(data)), newSet(withClaims(claimOf("data", "fast", "2Gi"))), []string{immutableText}},
		{"another class", newSet(withClaims(data)), newSet(withClaims(claimOf("data", "slow", "1Gi"))), []string{immutableText}},
		{"another name", newSet(withClaims(data)), newSet(withClaims(claimOf("date", "fast", "1Gi"))), []string{immutableText}},
		{"block for filesystem", newSet(withClaims(data)), newSet(withClaims(claimOf("data", "fast", "1Gi", func(c *claim) {
			c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
		}))), []string{immutableText}},
		{"shared for one", newSet(withClaims(data)), newSet(withClaims(claimOf("data", "fast", "1Gi", func(c *claim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}))), []string{immutableText}},
		{"one more", newSet(withClaims(data)), newSet(withClaims(data, claimOf("more", "fast", "1Gi"))), []string{immutableText}},
	})
}

// A set may have been stored before a rule existed, or past it through the scale
// subresource. Whoever touches something else must not be stopped, least of all
// the garbage collector taking its finalizer away.
func TestUpdateLeavesOldFaultsAlone(t *testing.T) {
	faulty := map[string]change{
		"name":       withName("2cube"),
		"replicas":   withReplicas(-5),
		"size":       withSize(0),
		"large size": withSize(2_000_000_000),
		"product":    func(s *lwsv1.LeaderWorkerSet) { withReplicas(1000000)(s); withSize(1000000)(s) },
		"percentage": withBudget("abc", "200%"),
		"partition":  withPartition(-1),
		"budget":     withBudget("10%", "0"),
		"subgroups":  withSubgroups(5),
		"no subgroup size": func(s *lwsv1.LeaderWorkerSet) {
			s.Spec.LeaderWorkerTemplate.SubGroupPolicy = &lwsv1.SubGroupPolicy{}
		},
		"subgroup topology": withAnnotation(lwsv1.SubGroupExclusiveKeyAnnotationKey, "rack"),
		"topology":          withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "no label"),
		"restart policy":    withWorkers(func(p *corev1.PodTemplateSpec) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }),
	}
	touches := map[string]change{
		"finalizers": func(s *lwsv1.LeaderWorkerSet) { s.Finalizers = []string{"foregroundDeletion"} },
		"image":      withWorkers(func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = "new" }),
	}
	for name, fault := range faulty {
		for what, touch := range touches {
			t.Run(name+"/"+what, func(t *testing.T) {
				old := newSet(fault)
				if len(admission.ValidateCreate(old)) == 0 {
					t.Fatal("the set has no fault to begin with")
				}
				checkFaults(t, admission.ValidateUpdate(newSet(fault, touch), old), nil)
			})
		}
	}
}
