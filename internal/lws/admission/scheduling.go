package admission

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/workload"
)

var schedulingPath = specPath.Child("scheduling")

// Scheduling is what an operator can do for sets with spec.scheduling. The zero value can do nothing.
type Scheduling struct {
	// IsEnabled is set with the feature gate.
	IsEnabled bool
	// Provider is the scheduler of the configuration, or empty.
	Provider string
	// Unserved says why the API server does not serve a kind that the provider needs. It may be nil.
	Unserved func(kind string) error
}

// check returns what is wrong with spec.scheduling. Where the operator can do nothing with the field, no more is said.
func (s Scheduling) check(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	if set.Spec.Scheduling == nil {
		return nil
	}
	levels := gang.Levels(set.Spec.Scheduling)
	switch {
	case !s.IsEnabled:
		return forbid(true, "requires the "+v1alpha1.WorkloadAwareScheduling+" feature gate")
	case s.Provider == "":
		return field.ErrorList{field.Required(schedulingPath, "requires a configured scheduler provider")}
	case len(levels) > 1:
		return field.ErrorList{field.Invalid(schedulingPath, field.OmitValueType{}, fmt.Sprintf("exactly one active scheduling level is required, got %v", levels))}
	}
	faults := slices.Concat(
		checkUnits(set, levels[0]),
		checkGangPods(set, levels[0]),
		checkManagedTemplates(set),
		checkDelegation(set, levels[0]),
	)
	if s.Provider == gang.Volcano {
		return append(faults, checkVolcano(set.Spec.Scheduling, levels[0])...)
	}
	return append(faults, s.checkServed()...)
}

func (s Scheduling) checkServed() field.ErrorList {
	if s.Unserved == nil {
		return nil
	}
	for _, kind := range []string{gang.WorkloadKind.Kind, gang.NativePodGroupKind.Kind} {
		if err := s.Unserved(kind); err != nil {
			return forbid(true, fmt.Sprintf("%s %s API is not available: %v", gang.WorkloadKind.GroupVersion(), kind, err))
		}
	}
	return nil
}

// forbid returns a fault of spec.scheduling if a rule is broken, and nothing else.
func forbid(isBroken bool, why string) field.ErrorList {
	return when(isBroken, field.Forbidden(schedulingPath, why))
}

// checkUnits refuses counts that are not those of all pods. Who calls this checks the unions, too.
func checkUnits(set *lwsv1.LeaderWorkerSet, level gang.Level) field.ErrorList {
	size := workload.Size(set)
	faults := append(checkGroupCounts(set.Spec.Scheduling), when(level == gang.RoleLevel && size < 2,
		field.Invalid(sizePath, size, "leader/worker scheduling requires size >= 2"))...)
	for _, unit := range gang.UnitsOf(set) {
		if unit.Policy != nil && unit.Policy.Gang != nil {
			count := ptr.Deref(unit.Policy.Gang.MinCount, unit.Members)
			faults = append(faults, when(count != unit.Members, field.Invalid(schedulingPath, count,
				fmt.Sprintf("must equal complete leaf membership %d", unit.Members)))...)
		}
		faults = append(faults, checkClaims(set, &unit)...)
	}
	return faults
}

// checkGroupCounts refuses counts of groups: a PodGroup waits for pods.
func checkGroupCounts(s *lwsv1.Scheduling) field.ErrorList {
	refuse := func(policy *schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy) field.ErrorList {
		return when(policy != nil && policy.Gang != nil && policy.Gang.MinGroupCount != nil,
			field.Forbidden(schedulingPath, "minGroupCount is not supported"))
	}
	replica := ptr.Deref(s.Replica, lwsv1.ReplicaScheduling{})
	return append(refuse(s.SchedulingPolicy), refuse(replica.SchedulingPolicy)...)
}

// checkClaims requires that the pods of a role use what their PodGroup claims.
func checkClaims(set *lwsv1.LeaderWorkerSet, unit *gang.Unit) (faults field.ErrorList) {
	template := workerTemplate(set)
	if unit.Name == lwsv1.LeaderRole {
		template = leaderTemplate(set)
	}
	for _, claim := range unit.Claims {
		same := corev1.PodResourceClaim{
			Name: claim.Name, ResourceClaimName: claim.ResourceClaimName, ResourceClaimTemplateName: claim.ResourceClaimTemplateName,
		}
		if !slices.ContainsFunc(template.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return equality.Semantic.DeepEqual(c, same) }) {
			faults = append(faults, field.Invalid(schedulingPath, claim.Name, "must have a matching reference in every member pod template"))
		}
	}
	return faults
}

// checkGangPods refuses gangs of pods that wait for one another elsewhere: they would never be placed.
func checkGangPods(set *lwsv1.LeaderWorkerSet, level gang.Level) field.ErrorList {
	units := gang.UnitsOf(set)
	isGang := slices.ContainsFunc(units, func(u gang.Unit) bool { return u.IsGang() })
	isConstrained := slices.ContainsFunc(units, func(u gang.Unit) bool { return u.IsConstrained() })
	hasBoth := level != gang.RoleLevel && isGang && workload.Size(set) > 1
	isExclusive := set.Annotations[lwsv1.ExclusiveKeyAnnotationKey] != ""
	return append(
		forbid(hasBoth && set.Spec.StartupPolicy == lwsv1.LeaderReadyStartupPolicy,
			"a gang containing the leader and workers is incompatible with startupPolicy LeaderReady"),
		forbid(isExclusive && (isGang || isConstrained),
			"gang scheduling or workload topology constraints cannot be combined with exclusive topology in alpha")...)
}

// checkManagedTemplates refuses templates whose pods would be in another PodGroup, or of two priorities.
func checkManagedTemplates(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	templates := templatesInUse(set)
	hasGroup := slices.ContainsFunc(templates, func(t podTemplate) bool { return t.Spec.SchedulingGroup != nil })
	faults := forbid(hasGroup, "managed pod templates must not set spec.schedulingGroup")
	for _, template := range templates[1:] {
		if class := template.Spec.PriorityClassName; class != templates[0].Spec.PriorityClassName {
			faults = append(faults, field.Invalid(schedulingPath, class, "all managed pod templates must use the same priorityClassName"))
		}
	}
	return faults
}

// checkDelegation checks the annotations of a controller above the set.
func checkDelegation(set *lwsv1.LeaderWorkerSet, level gang.Level) field.ErrorList {
	template, hasTemplate := set.Annotations[lwsv1.GroupTemplateNameAnnotationKey]
	parent, hasParent := set.Annotations[lwsv1.ParentPodGroupAnnotationKey]
	if !hasTemplate && !hasParent {
		return nil
	}
	refuse := func(isWrong bool, key, why string) field.ErrorList {
		return when(isWrong, field.Invalid(annotationsPath.Key(key), shortened(set.Annotations[key]), why))
	}
	isLabel, isSubdomain := len(validation.IsDNS1123Label(template)) == 0, len(validation.IsDNS1123Subdomain(parent)) == 0
	return slices.Concat(
		refuse(hasTemplate && !isLabel, lwsv1.GroupTemplateNameAnnotationKey, "must name a parent Workload template"),
		refuse(hasParent && !hasTemplate, lwsv1.ParentPodGroupAnnotationKey, "requires the group-template-name delegation annotation"),
		refuse(hasParent && !isSubdomain, lwsv1.ParentPodGroupAnnotationKey, "must name a parent CompositePodGroup"),
		forbid(metav1.GetControllerOfNoCopy(set) == nil, "delegated scheduling requires a controller owner"),
		forbid(level == gang.RoleLevel, "delegated scheduling supports only whole-LWS or replica mode"),
	)
}

// checkVolcano refuses what Volcano's PodGroups cannot say.
func checkVolcano(s *lwsv1.Scheduling, level gang.Level) field.ErrorList {
	if level != gang.ReplicaLevel {
		return forbid(true, "the Volcano provider supports the typed API only at replica level")
	}
	refuse := func(isGiven bool, what string) field.ErrorList {
		return forbid(isGiven, "the Volcano provider does not support "+what)
	}
	replica := ptr.Deref(s.Replica, lwsv1.ReplicaScheduling{})
	return slices.Concat(
		refuse(replica.SchedulingPolicy != nil && replica.SchedulingPolicy.Basic != nil, "the Basic policy"),
		refuse(replica.SchedulingConstraints != nil, "scheduling constraints"),
		refuse(replica.DisruptionMode != nil, "a disruption mode"),
	)
}

// checkSchedulingChange keeps the pods of a set in the PodGroups that they were made for.
func checkSchedulingChange(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	is, was := set.Spec.Scheduling, old.Spec.Scheduling
	switch {
	case is != nil && was == nil:
		return forbid(true, "cannot add scheduling after creation")
	case is == nil && was != nil:
		return forbid(true, "cannot remove scheduling after creation")
	case is == nil:
		return nil
	case !slices.Equal(gang.Levels(is), gang.Levels(was)):
		return forbid(true, "cannot switch the active scheduling level after creation")
	}
	return slices.Concat(checkUnitChange(set, old), checkDelegationChange(set, old),
		when(leaderTemplate(set).Spec.PriorityClassName != leaderTemplate(old).Spec.PriorityClassName,
			field.Forbidden(templatePath, "cannot change priorityClassName while workload-aware scheduling is configured")))
}

// checkUnitChange keeps policies and constraints: PodGroups cannot take a change. Counts may follow the
// size, and what means the same may be written in another way.
func checkUnitChange(set, old *lwsv1.LeaderWorkerSet) (faults field.ErrorList) {
	is, was := gang.UnitsOf(set), gang.UnitsOf(old)
	for i := range is {
		path := field.NewPath("spec", append([]string{"scheduling"}, is[i].Path...)...)
		isChanged := !means(&is[i], &was[i])
		faults = append(faults, when(isChanged, field.Invalid(path, field.OmitValueType{}, apivalidation.FieldImmutableErrorMsg))...)
	}
	return faults
}

// means reports whether two units place pods in the same way.
func means(one, other *gang.Unit) bool {
	none := schedulingv1alpha3.WorkloadPodGroupSchedulingConstraints{}
	return one.IsGang() == other.IsGang() &&
		equality.Semantic.DeepEqual(
			ptr.Deref(one.Constraints, none).Topology, ptr.Deref(other.Constraints, none).Topology) &&
		equality.Semantic.DeepEqual(one.Disruption, other.Disruption) &&
		equality.Semantic.DeepEqual(sortedClaims(one), sortedClaims(other))
}

func sortedClaims(unit *gang.Unit) []schedulingv1alpha3.WorkloadPodGroupResourceClaim {
	return slices.SortedFunc(slices.Values(unit.Claims), func(a, b schedulingv1alpha3.WorkloadPodGroupResourceClaim) int {
		return cmp.Compare(a.Name, b.Name)
	})
}

func checkDelegationChange(set, old *lwsv1.LeaderWorkerSet) (faults field.ErrorList) {
	for _, key := range []string{lwsv1.GroupTemplateNameAnnotationKey, lwsv1.ParentPodGroupAnnotationKey} {
		is, was := set.Annotations[key], old.Annotations[key]
		faults = append(faults, when(is != was,
			field.Invalid(annotationsPath.Key(key), shortened(is), "is immutable once spec.scheduling is set"))...)
	}
	return faults
}
