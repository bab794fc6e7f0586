package admission_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/backoff"
	"lockstep.dev/lockstep/internal/lws/admission"
)

func TestUpdates(t *testing.T) {
	withoutSize := func(s *lwsv1.LeaderWorkerSet) { s.Spec.LeaderWorkerTemplate.SubGroupPolicy.SubGroupSize = nil }
	network := func(network *lwsv1.NetworkConfig) change {
		return func(s *lwsv1.LeaderWorkerSet) { s.Spec.NetworkConfig = network }
	}
	unique := network(&lwsv1.NetworkConfig{SubdomainPolicy: ptr.To(lwsv1.SubdomainUniquePerReplica)})
	policies := func(s *lwsv1.LeaderWorkerSet) {
		s.Spec.StartupPolicy = lwsv1.LeaderReadyStartupPolicy
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
		required = subgroupSize + "Required value: a subGroupPolicy needs a subGroupSize, the number of pods of a subgroup"
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
		{"a label that is none", nil, changes{func(s *lwsv1.LeaderWorkerSet) { s.Labels = map[string]string{"a": "b c"} }}, []string{
			`metadata.labels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
		}},

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
			checkFaults(t, admission.ValidateUpdate(newSet(tt.is...), newSet(tt.old...)), tt.want)
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
				if len(admission.ValidateCreate(old)) == 0 {
					t.Fatal("the set has no fault to begin with")
				}
				checkFaults(t, admission.ValidateUpdate(newSet(fault, touch), old), nil)
			})
		}
	}
}
