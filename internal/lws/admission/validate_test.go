package admission_test

import (
	"math"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
	subgroupSize  = "spec.leaderWorkerTemplate.SubGroupPolicy.subGroupSize: "
	subgroupTopo  = "metadata.annotations.leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology: Invalid value: "
	immutableText = "spec.leaderWorkerTemplate.volumeClaimTemplates: Invalid value: field is immutable: the claims of a StatefulSet cannot be changed; put back what it was; to enlarge a volume, resize its claim; for other claims, delete the set and create it again, with whenDeleted Retain if data is to stay"
)

// What the laws of config/crd show to be taken, on both sides of each limit, is not here.
func TestValidateCreate(t *testing.T) {
	policy := func(p lwsv1.SubGroupPolicy) change {
		return func(s *lwsv1.LeaderWorkerSet) { s.Spec.LeaderWorkerTemplate.SubGroupPolicy = &p }
	}
	indivisible := subgroupSize + "Invalid value: 3: size or size - 1 must be divisible by subGroupSize"
	never := func(p *corev1.PodTemplateSpec) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }
	always := func(p *corev1.PodTemplateSpec) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }
	deadline := func(p *corev1.PodTemplateSpec) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](1) }
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
			[]string{`metadata.name: Invalid value: "` + strings.Repeat("a", 64) + `": must be no more than 63 characters`},
		},
		{"longest name", newSet(withName(strings.Repeat("a", 63))), nil},
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
		{"no size given", newSet(policy(lwsv1.SubGroupPolicy{})), []string{subgroupSize + "Required value: a subGroupPolicy needs a subGroupSize, the number of pods of a subgroup"}},
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
			checkFaults(t, admission.ValidateCreate(tt.set), tt.want)
		})
	}
}
