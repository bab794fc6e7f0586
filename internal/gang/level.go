package gang

import (
	"cmp"
	"math"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Level says which pods spec.scheduling places as one PodGroup.
type Level string

const (
	// SetLevel is one PodGroup for all pods of a set.
	SetLevel Level = "lws"
	// ReplicaLevel is one PodGroup for each group.
	ReplicaLevel Level = "replica"
	// RoleLevel is two PodGroups for each group: its leader, and its workers.
	RoleLevel Level = "role"
)

// Levels returns the levels that a set asks for. Exactly one is valid.
func Levels(s *lwsv1.Scheduling) (active []Level) {
	if s.SchedulingPolicy != nil || s.SchedulingConstraints != nil || s.DisruptionMode != nil {
		active = append(active, SetLevel)
	}
	replica := s.Replica
	if replica != nil && (replica.SchedulingPolicy != nil || replica.SchedulingConstraints != nil || replica.DisruptionMode != nil) {
		active = append(active, ReplicaLevel)
	}
	if replica != nil && (replica.Leader != nil || replica.Worker != nil) {
		active = append(active, RoleLevel)
	}
	if len(active) == 0 {
		return []Level{ReplicaLevel}
	}
	return active
}

// LevelOf returns the level of a valid set.
func LevelOf(s *lwsv1.Scheduling) Level { return Levels(s)[0] }

// Unit is one template of PodGroups of a set.
type Unit struct {
	// Name is that of the template in the Workload.
	Name string
	// Path is where the user describes it, below spec.scheduling.
	Path []string
	// Members is the number of pods of a PodGroup.
	Members int32

	Policy      *schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy
	Constraints *schedulingv1alpha3.WorkloadPodGroupSchedulingConstraints
	Disruption  *schedulingv1alpha3.WorkloadPodGroupDisruptionMode
	Claims      []schedulingv1alpha3.WorkloadPodGroupResourceClaim
	// isGang is the policy of a unit that names none.
	isGang bool
}

// IsGang reports whether the pods of a unit are placed together or not at all.
func (u *Unit) IsGang() bool {
	if u.Policy == nil {
		return u.isGang
	}
	return u.Policy.Gang != nil
}

// IsConstrained reports whether the pods of a unit have to be in one topology domain.
func (u *Unit) IsConstrained() bool { return u.Constraints != nil && len(u.Constraints.Topology) > 0 }

// Units returns the units of a level, for groups of the given number and size. A template of the
// Workload is described by the same fields at each level.
func Units(s *lwsv1.Scheduling, level Level, replicas, size int32) []Unit {
	replica := cmp.Or(s.Replica, &lwsv1.ReplicaScheduling{})
	switch level {
	case SetLevel:
		u := Unit{Name: "lws", Members: product(replicas, size)}
		return u.composite(s.SchedulingPolicy, s.SchedulingConstraints, s.DisruptionMode)
	case RoleLevel:
		return []Unit{roleUnit("leader", replica.Leader, 1), roleUnit("worker", replica.Worker, size-1)}
	}
	u := Unit{Name: "replica", Path: []string{"replica"}, Members: size, isGang: true}
	return u.composite(replica.SchedulingPolicy, replica.SchedulingConstraints, replica.DisruptionMode)
}

// product is bounded: admission refuses sets with more pods.
func product(replicas, size int32) int32 {
	return int32(min(int64(replicas)*int64(size), math.MaxInt32))
}

func roleUnit(role string, s *lwsv1.RoleScheduling, members int32) Unit {
	u := Unit{Name: role, Path: []string{"replica", role}, Members: members}
	if s != nil {
		u.Policy, u.Constraints, u.Disruption, u.Claims = s.SchedulingPolicy, s.SchedulingConstraints, s.DisruptionMode, s.ResourceClaims
	}
	return u
}

// composite is the only unit of a level that is described as a group of groups.
func (u Unit) composite(
	policy *schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy,
	constraints *schedulingv1alpha3.WorkloadCompositePodGroupSchedulingConstraints,
	mode *schedulingv1alpha3.WorkloadCompositePodGroupDisruptionMode,
) []Unit {
	u.Constraints = (*schedulingv1alpha3.WorkloadPodGroupSchedulingConstraints)(constraints)
	if policy != nil {
		u.Policy = &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{Basic: (*schedulingv1alpha3.WorkloadPodGroupBasicSchedulingPolicy)(policy.Basic)}
		if policy.Gang != nil {
			u.Policy.Gang = &schedulingv1alpha3.WorkloadPodGroupGangSchedulingPolicy{}
		}
	}
	if mode != nil {
		u.Disruption = &schedulingv1alpha3.WorkloadPodGroupDisruptionMode{
			Single: (*schedulingv1alpha3.WorkloadPodGroupSingleDisruptionMode)(mode.Single),
			All:    (*schedulingv1alpha3.WorkloadPodGroupAllDisruptionMode)(mode.All),
		}
	}
	return []Unit{u}
}
