package admission

import (
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
	checkReplicas,
	checkSize,
	checkProduct,
	checkRollingUpdate,
	checkBudget,
	checkSubgroups,
	checkSubgroupTopology,
	checkGroupRestarts,
	checkHashIdentity,
	checkGroupReplacement,

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

// ValidateCreate returns what is wrong with a new set. Run it after Default.
func ValidateCreate(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	return Scheduling{}.ValidateCreate(set)
}

// ValidateUpdate is the same of a set as the successor of another.
func ValidateUpdate(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	return Scheduling{}.ValidateUpdate(set, old)
}

// ValidateCreate returns what is wrong with a new set where spec.scheduling is served so. Run it after
// Default.
func (s Scheduling) ValidateCreate(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	var faults field.ErrorList
	for _, check := range rules {
		faults = append(faults, check(set)...)
	}
	return append(faults, s.check(set)...)
}

// ValidateUpdate returns what is wrong with a set as the successor of another. Run it after
// Default.
func (s Scheduling) ValidateUpdate(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	faults := Made(s.ValidateCreate(set), s.ValidateCreate(old))
	for _, check := range changes {
		faults = append(faults, check(set, old)...)
	}
	return faults
}

var (
	specPath     = field.NewPath("spec")
	replicasPath = specPath.Child("replicas")
	templatePath = specPath.Child("leaderWorkerTemplate")
	sizePath     = templatePath.Child("size")
	rollingPath  = specPath.Child("rolloutStrategy", "rollingUpdateConfiguration")
	claimsPath   = templatePath.Child("volumeClaimTemplates")
)

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
		if len(template.Spec.Containers) == 0 {
			faults = append(faults, field.Required(template.path.Child("spec", "containers"), "a pod needs at least one container"))
		}
	}
	return faults
}

// checkSubdomainChange refuses to remove the policy. After Default it is never absent.
func checkSubdomainChange(set, _ *lwsv1.LeaderWorkerSet) field.ErrorList {
	network := set.Spec.NetworkConfig
	if network == nil || network.SubdomainPolicy != nil {
		return nil
	}
	return field.ErrorList{field.Invalid(specPath.Child("networkConfig", "subdomainPolicy"),
		network.SubdomainPolicy, "cannot set subdomainPolicy as null")}
}

// checkGroupRestarts refuses a budget of restarts where no group is restarted.
func checkGroupRestarts(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	limit, path := set.Spec.LeaderWorkerTemplate.MaxGroupRestarts, templatePath.Child("maxGroupRestarts")
	switch {
	case limit == nil:
		return nil
	case *limit < 0:
		return field.ErrorList{field.Invalid(path, *limit, apivalidation.IsNegativeErrorMsg)}
	case !restart.Recreates(set):
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "maxGroupRestarts is only supported when restartPolicy recreates the group")}
	}
	return nil
}

// podTemplate is a template pods are made from, and where the user wrote it.
type podTemplate struct {
	path *field.Path
	*corev1.PodTemplateSpec
}

// leaderTemplate is what leaders are made from.
func leaderTemplate(set *lwsv1.LeaderWorkerSet) podTemplate {
	if own := set.Spec.LeaderWorkerTemplate.LeaderTemplate; own != nil {
		return podTemplate{templatePath.Child("leaderTemplate"), own}
	}
	return workerTemplate(set)
}

func workerTemplate(set *lwsv1.LeaderWorkerSet) podTemplate {
	return podTemplate{templatePath.Child("workerTemplate"), &set.Spec.LeaderWorkerTemplate.WorkerTemplate}
}

// templatesInUse leaves out a worker template from which nothing is made: it
// must be there, and may say anything.
func templatesInUse(set *lwsv1.LeaderWorkerSet) []podTemplate {
	leader, worker := leaderTemplate(set), workerTemplate(set)
	if workload.Size(set) > 1 && leader.PodTemplateSpec != worker.PodTemplateSpec {
		return []podTemplate{leader, worker}
	}
	return []podTemplate{leader}
}

// checkPodLifetime refuses pods that end by themselves: StatefulSets do not take
// them.
func checkPodLifetime(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	var faults field.ErrorList
	for _, template := range templatesInUse(set) {
		spec := template.path.Child("spec")
		if policy := template.Spec.RestartPolicy; policy != "" && policy != corev1.RestartPolicyAlways {
			faults = append(faults, field.Invalid(spec.Child("restartPolicy"), policy,
				"must be Always: the pods of a StatefulSet are always restarted"))
		}
		if template.Spec.ActiveDeadlineSeconds != nil {
			faults = append(faults, field.Forbidden(spec.Child("activeDeadlineSeconds"),
				"the pods of a StatefulSet have no deadline; remove it"))
		}
	}
	return faults
}

// checkLeaderMark refuses leaders that look like workers: such a leader is given
// no workers, lest workers be given workers without end.
func checkLeaderMark(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	template := leaderTemplate(set)
	if _, marked := template.Annotations[lwsv1.LeaderPodNameAnnotationKey]; !marked || workload.Size(set) < 2 {
		return nil
	}
	return field.ErrorList{field.Forbidden(template.path.Child("metadata", "annotations").Key(lwsv1.LeaderPodNameAnnotationKey),
		"a leader with this annotation gets no workers; remove it")}
}

// checkRetention is stricter than the schema, whose fields are plain strings. An
// empty one is the StatefulSet's default.
func checkRetention(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	policy := set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy
	if policy == nil {
		return nil
	}
	path := templatePath.Child("persistentVolumeClaimRetentionPolicy")
	return append(checkRetentionType(policy.WhenDeleted, path.Child("whenDeleted")),
		checkRetentionType(policy.WhenScaled, path.Child("whenScaled"))...)
}

func checkRetentionType(policy appsv1.PersistentVolumeClaimRetentionPolicyType, path *field.Path) field.ErrorList {
	switch policy {
	case "", appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType:
		return nil
	}
	return field.ErrorList{field.Invalid(path, policy, "must be Retain or Delete")}
}

// checkClaimsChange keeps the claims as they were made. The StatefulSets cannot
// take a change, and would refuse every later update of the set with it. What
// does not reach them may change.
func checkClaimsChange(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	if workload.SameClaimTemplates(set.Namespace, set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates, old.Spec.LeaderWorkerTemplate.VolumeClaimTemplates) {
		return nil
	}
	return field.ErrorList{field.Invalid(claimsPath, field.OmitValueType{},
		"field is immutable: the claims of a StatefulSet cannot be changed; put back what it was; to enlarge a volume, resize its claim; for other claims, delete the set and create it again, with whenDeleted Retain if data is to stay")}
}

// The rules below refuse annotations that cannot be read: the operator would ignore them,
// and the user would not know.

var annotationsPath = field.NewPath("metadata", "annotations")

// checkAnnotations refuses an unknown gang scheduler too: groups would be placed pod by pod.
func checkAnnotations(set *lwsv1.LeaderWorkerSet) (faults field.ErrorList) {
	for _, rule := range []struct {
		key     string
		choices []string
		check   func(path *field.Path, value string) *field.Error
	}{
		{lwsv1.PausedAnnotationKey, []string{lwsv1.PausedValue, "false"}, nil},
		{lwsv1.HistoryLimitAnnotationKey, nil, checkHistoryLimit},
		{lwsv1.GangSchedulerAnnotationKey, []string{gang.Volcano, lwsv1.NoGangScheduler}, nil},
		{backoff.AnnotationKey, nil, checkBackoff},
		{lwsv1.GroupRestartCountsAnnotationKey, nil, checkRestartCounts},
	} {
		value, given := set.Annotations[rule.key]
		path := annotationsPath.Key(rule.key)
		switch {
		case !given, rule.key == lwsv1.GangSchedulerAnnotationKey && value == "":
		case rule.check != nil:
			if fault := rule.check(path, value); fault != nil {
				faults = append(faults, fault)
			}
		case !slices.Contains(rule.choices, value):
			faults = append(faults, field.NotSupported(path, value, rule.choices))
		}
	}
	return faults
}

func checkHistoryLimit(path *field.Path, value string) *field.Error {
	if limit, err := strconv.Atoi(value); err == nil && limit >= 0 {
		return nil
	}
	return field.Invalid(path, shortened(value), "must be a whole number from 0")
}

func checkBackoff(path *field.Path, value string) *field.Error {
	if _, err := backoff.Parse(value); err != nil {
		return field.Invalid(path, value, err.Error())
	}
	return nil
}

func checkRestartCounts(path *field.Path, value string) *field.Error {
	if _, err := restart.OthersCounts(value); err != nil {
		return field.Invalid(path, shortened(value), err.Error())
	}
	return nil
}

func checkSubgroupTopology(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	topology, wanted := set.Annotations[lwsv1.SubGroupExclusiveKeyAnnotationKey]
	if !wanted || set.Spec.LeaderWorkerTemplate.SubGroupPolicy != nil {
		return nil
	}
	return field.ErrorList{field.Invalid(annotationsPath.Child(lwsv1.SubGroupExclusiveKeyAnnotationKey), topology,
		"cannot have subgroup-exclusive-topology without subGroupSize set")}
}

// topologyKeys are the annotations that name a node label.
var topologyKeys = []string{lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey}

// checkTopologies refuses what is no node label: it goes into the affinity of
// every leader, and the API server would refuse them one by one. An empty value
// is the same as none.
func checkTopologies(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	var faults field.ErrorList
	for _, key := range topologyKeys {
		topology := set.Annotations[key]
		if topology == "" {
			continue
		}
		for _, why := range validation.IsQualifiedName(topology) {
			faults = append(faults, field.Invalid(annotationsPath.Child(key), topology, "must be the key of a node label: "+why))
		}
	}
	return faults
}
