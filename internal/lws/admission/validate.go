// Package admission decides what may enter: it fills in what a user left out of a LeaderWorkerSet, refuses what can
// never work, warns of what will surprise, and completes the pods of a set as they are created.
//
// It knows the contract of the admission webhooks: which field gets which value, and which text refuses it. It refuses
// to know HTTP, certificates and the cluster: every function takes values and returns values, looks at nothing else,
// and costs no more than its input is large. What comes in may have bypassed every default and every schema; nothing
// here may panic on it.
//
// Files, each of which builds on those before it: pod.go, pod_subgroup.go, numbers.go, keys.go, scheduling.go,
// validate.go, draft.go, warn.go, default.go, tpu.go.
package admission

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/backoff"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// rules are what a set must be, in the order of the contract. The last ones are beyond it:
// each refuses only what no implementation of the API could run.
var rules = []func(*lwsv1.LeaderWorkerSet) field.ErrorList{
	checkMetadata,
	checkCounts,
	checkRollingUpdate,
	checkSubgroups,
	checkSubgroupTopology,
	checkGroupRestarts,
	checkHashIdentity,

	checkNameLength,
	checkContainers,
	checkTopologies,
	checkRetention,
	checkPodLifetime,
	checkLeaderMark,
	checkAnnotations,
}

// changes are what an update may change.
var changes = []func(set, old *lwsv1.LeaderWorkerSet) field.ErrorList{
	checkSubgroupChange,
	checkSubdomainChange,
	checkClaimsChange,
	checkIdentityChange,
	checkSchedulingChange,
}

// ValidateCreate returns what is wrong with a new set where spec.scheduling is served so. Run it after Default.
func (s Scheduling) ValidateCreate(set *lwsv1.LeaderWorkerSet) (faults field.ErrorList) {
	for _, check := range rules {
		faults = append(faults, check(set)...)
	}
	return append(faults, s.check(set)...)
}

// ValidateUpdate returns what is wrong with a set as the successor of another. Run it after Default.
func (s Scheduling) ValidateUpdate(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	faults := Made(s.ValidateCreate(set), s.ValidateCreate(old))
	for _, check := range changes {
		faults = append(faults, check(set, old)...)
	}
	return faults
}

// Made returns the faults that a write makes: those that the stored set does not have. A set may be older
// than a rule. It must stay open to all other changes, also to those of the garbage collector.
func Made(faults, stored field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(slices.Clone(faults), func(f *field.Error) bool { return isIn(stored, f) })
}

// isIn knows a fault by its text, or by its origin: the number in its text may follow from other fields.
func isIn(faults field.ErrorList, fault *field.Error) bool {
	return slices.ContainsFunc(faults, func(f *field.Error) bool {
		if fault.Origin != "" {
			return f.Field == fault.Field && f.Origin == fault.Origin
		}
		return f.Error() == fault.Error()
	})
}

// checkMetadata requires a DNS-1035 label as the name: it becomes the name of a Service.
func checkMetadata(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	return apivalidation.ValidateObjectMeta(&set.ObjectMeta, true, apivalidation.NameIsDNS1035Label, field.NewPath("metadata"))
}

// checkNameLength refuses a name with which the last group never gets its pods.
func checkNameLength(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	if !workload.IsNameTooLong(set) {
		return nil
	}
	fault := field.TooLong(field.NewPath("metadata", "name"), set.Name, workload.NameLimit(set))
	fault.Detail, fault.Origin = nameTooLong(set), "name-length" // its number follows from the replicas
	return field.ErrorList{fault}
}

func nameTooLong(set *lwsv1.LeaderWorkerSet) string {
	return fmt.Sprintf("has %d characters, and labels of pods hold it with the group index and a revision hash; use at most %d for %d groups",
		len(set.Name), workload.NameLimit(set), workload.Replicas(set))
}

// checkContainers refuses a template without containers, as one without a spec: no pod is made from it.
func checkContainers(set *lwsv1.LeaderWorkerSet) (faults field.ErrorList) {
	for _, template := range templatesInUse(set) {
		faults = append(faults, when(len(template.Spec.Containers) == 0,
			field.Required(template.path.Child("spec", "containers"), "a pod needs at least one container"))...)
	}
	return faults
}

// checkSubdomainChange refuses to remove the policy. After Default it is never absent.
func checkSubdomainChange(set, _ *lwsv1.LeaderWorkerSet) field.ErrorList {
	network := set.Spec.NetworkConfig
	path, none := specPath.Child("networkConfig", "subdomainPolicy"), (*lwsv1.SubdomainPolicy)(nil)
	return when(network != nil && network.SubdomainPolicy == nil, field.Invalid(path, none, "cannot set subdomainPolicy as null"))
}

// checkGroupRestarts refuses a budget of restarts where no group is restarted.
func checkGroupRestarts(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	given, path := set.Spec.LeaderWorkerTemplate.MaxGroupRestarts, templatePath.Child("maxGroupRestarts")
	limit := ptr.Deref(given, 0)
	return append(when(limit < 0, field.Invalid(path, limit, apivalidation.IsNegativeErrorMsg)),
		when(given != nil && limit >= 0 && !restart.Recreates(set), field.Invalid(path, field.OmitValueType{},
			"maxGroupRestarts is only supported when restartPolicy recreates the group"))...)
}

// templatesInUse leaves out a worker template from which nothing is made: it must be there, and may say anything.
func templatesInUse(set *lwsv1.LeaderWorkerSet) []podTemplate {
	leader, worker := leaderTemplate(set), workerTemplate(set)
	if workload.Size(set) > 1 && leader.PodTemplateSpec != worker.PodTemplateSpec {
		return []podTemplate{leader, worker}
	}
	return []podTemplate{leader}
}

// checkPodLifetime refuses pods that end by themselves: StatefulSets do not take them.
func checkPodLifetime(set *lwsv1.LeaderWorkerSet) (faults field.ErrorList) {
	for _, template := range templatesInUse(set) {
		spec, policy := template.path.Child("spec"), template.Spec.RestartPolicy
		faults = slices.Concat(faults,
			when(policy != "" && policy != corev1.RestartPolicyAlways, field.Invalid(spec.Child("restartPolicy"), policy,
				"must be Always: the pods of a StatefulSet are always restarted")),
			when(template.Spec.ActiveDeadlineSeconds != nil, field.Forbidden(spec.Child("activeDeadlineSeconds"),
				"the pods of a StatefulSet have no deadline; remove it")))
	}
	return faults
}

// checkLeaderMark refuses leaders that look like workers, which are given no workers, and leaders that all ask to restart.
func checkLeaderMark(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	template, isWorker, asks := leaderTemplate(set), lwsv1.LeaderPodNameAnnotationKey, lwsv1.RecreateAnnotationKey
	path := template.path.Child("metadata", "annotations")
	return append(when(metav1.HasAnnotation(template.ObjectMeta, isWorker) && workload.Size(set) > 1, field.Forbidden(path.Key(isWorker), "a leader with this annotation gets no workers; remove it")),
		when(metav1.HasAnnotation(template.ObjectMeta, asks), field.Forbidden(path.Key(asks), "every leader would ask again; write it on one leader pod"))...)
}

// checkRetention is stricter than the schema, whose fields are plain strings. An
// empty one is the StatefulSet's default.
func checkRetention(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	policy := ptr.Deref(set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy,
		appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	path := templatePath.Child("persistentVolumeClaimRetentionPolicy")
	known := []appsv1.PersistentVolumeClaimRetentionPolicyType{
		"", appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
	}
	refuse := func(what appsv1.PersistentVolumeClaimRetentionPolicyType, name string) field.ErrorList {
		return when(!slices.Contains(known, what), field.Invalid(path.Child(name), what, "must be Retain or Delete"))
	}
	return append(refuse(policy.WhenDeleted, "whenDeleted"), refuse(policy.WhenScaled, "whenScaled")...)
}

// checkClaimsChange keeps the claims as they were made. The StatefulSets cannot take a change, and would refuse every
// later update of the set with it. What does not reach them may change.
func checkClaimsChange(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	is, was := set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates, old.Spec.LeaderWorkerTemplate.VolumeClaimTemplates
	return when(!workload.SameClaimTemplates(is, was), field.Invalid(claimsPath, field.OmitValueType{},
		"field is immutable: the claims of a StatefulSet cannot be changed; put back what it was; to enlarge a volume, resize its claim; for other claims, delete the set and create it again, with whenDeleted Retain if data is to stay"))
}

var annotationsPath = field.NewPath("metadata", "annotations")

// checkAnnotations refuses an unknown gang scheduler too: groups would be placed pod by pod.
func checkAnnotations(set *lwsv1.LeaderWorkerSet) (faults field.ErrorList) {
	for _, rule := range []struct {
		key     string
		choices []string
		parse   func(value string) error
	}{
		{lwsv1.PausedAnnotationKey, []string{lwsv1.PausedValue, "false"}, nil},
		{workload.DisruptionBudgetAnnotationKey, []string{workload.DisruptionByGroup, workload.UnlimitedDisruption}, nil},
		{workload.ProgressDeadlineAnnotationKey, nil, errorOf(workload.ParseProgressDeadline)},
		{lwsv1.HistoryLimitAnnotationKey, nil, parseHistoryLimit},
		{lwsv1.GangSchedulerAnnotationKey, []string{gang.Volcano, lwsv1.NoGangScheduler}, nil},
		{backoff.AnnotationKey, nil, errorOf(backoff.Parse)},
		{lwsv1.GroupRestartCountsAnnotationKey, nil, errorOf(restart.OthersCounts)},
	} {
		value, isGiven := set.Annotations[rule.key]
		path := annotationsPath.Key(rule.key)
		switch {
		case !isGiven, rule.key == lwsv1.GangSchedulerAnnotationKey && value == "":
		case rule.parse == nil:
			faults = append(faults, when(!slices.Contains(rule.choices, value), field.NotSupported(path, value, rule.choices))...)
		default:
			if err := rule.parse(value); err != nil {
				faults = append(faults, field.Invalid(path, shortened(value), err.Error()))
			}
		}
	}
	return faults
}

// errorOf is a parser of which only the error counts.
func errorOf[T any](parse func(string) (T, error)) func(string) error {
	return func(value string) error {
		_, err := parse(value)
		return err
	}
}

func parseHistoryLimit(value string) error {
	if limit, err := strconv.Atoi(value); err != nil || limit < 0 {
		return errors.New("must be a whole number from 0")
	}
	return nil
}

func checkSubgroupTopology(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	topology, isWanted := set.Annotations[lwsv1.SubGroupExclusiveKeyAnnotationKey]
	path := annotationsPath.Child(lwsv1.SubGroupExclusiveKeyAnnotationKey)
	return when(isWanted && set.Spec.LeaderWorkerTemplate.SubGroupPolicy == nil,
		field.Invalid(path, topology, "cannot have subgroup-exclusive-topology without subGroupSize set"))
}

// topologyKeys are the annotations that name a node label.
var topologyKeys = []string{lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey}

// checkTopologies refuses what is no node label: it goes into the affinity of every leader, and the API server would
// refuse them one by one. An empty value is the same as none.
func checkTopologies(set *lwsv1.LeaderWorkerSet) (faults field.ErrorList) {
	for _, key := range topologyKeys {
		topology := set.Annotations[key]
		for _, why := range validation.IsQualifiedName(topology) {
			faults = append(faults, when(topology != "",
				field.Invalid(annotationsPath.Child(key), topology, "must be the key of a node label: "+why))...)
		}
	}
	return faults
}

const (
	// maxHashName leaves room for the longest label of a worker: the name of its StatefulSet with
	// eight digits of the group's key, and a revision hash.
	maxHashName = 43
	// maxLoneHashName is the same for a set without workers: only the host names of leaders count.
	maxLoneHashName = 54
)

var identityPath = specPath.Child("groupIdentity")

// checkHashIdentity refuses what needs groups with numbers, names that leave no room for a key, and what needs keys.
func checkHashIdentity(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	if policy := set.Spec.GroupReplacementPolicy; !workload.HasHashIdentity(set) {
		return when(policy == lwsv1.ImmediateGroupReplacement, field.Invalid(specPath.Child("groupReplacementPolicy"), policy,
			"Immediate is only supported with groupIdentity Hash"))
	}
	refuse := func(isWrong bool, why string) field.ErrorList {
		return when(isWrong, field.Invalid(identityPath, set.Spec.GroupIdentity, why+" with groupIdentity Hash"))
	}
	rolling := ptr.Deref(set.Spec.RolloutStrategy.RollingUpdateConfiguration, lwsv1.RollingUpdateConfiguration{})
	limit := maxHashName
	if workload.Size(set) < 2 {
		limit = maxLoneHashName
	}
	return slices.Concat(
		refuse(len(set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates) > 0, "volumeClaimTemplates are not supported"),
		refuse(ptr.Deref(rolling.Partition, 0) != 0, "rollingUpdateConfiguration.partition is not supported"),
		refuse(leaderTemplate(set).Spec.Hostname != "", "a leader pod hostname is not supported"),
		when(len(set.Name) > limit, field.Invalid(field.NewPath("metadata", "name"), set.Name,
			fmt.Sprintf("must be no more than %d characters with groupIdentity Hash", limit))),
	)
}

// checkIdentityChange keeps the identity that groups were made with: absent is Ordinal.
func checkIdentityChange(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	is, was := cmp.Or(set.Spec.GroupIdentity, lwsv1.OrdinalGroupIdentity), cmp.Or(old.Spec.GroupIdentity, lwsv1.OrdinalGroupIdentity)
	return when(is != was, field.Invalid(identityPath, is, "groupIdentity is immutable"))
}
