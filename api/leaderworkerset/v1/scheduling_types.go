package v1

import schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"

// Scheduling says how Kubernetes' own scheduler places the pods of a set together.
// Exactly one level is active: the set, its replicas, or the roles of a replica.
type Scheduling struct {
	// schedulingPolicy places all pods of the set together.
	// +optional
	SchedulingPolicy *schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy `json:"schedulingPolicy,omitempty"`

	// schedulingConstraints holds for all pods of the set.
	// +optional
	SchedulingConstraints *schedulingv1alpha3.WorkloadCompositePodGroupSchedulingConstraints `json:"schedulingConstraints,omitempty"`

	// disruptionMode says what of the set is disrupted together.
	// +optional
	DisruptionMode *schedulingv1alpha3.WorkloadCompositePodGroupDisruptionMode `json:"disruptionMode,omitempty"`

	// replica says how the pods of one group are placed.
	// +optional
	Replica *ReplicaScheduling `json:"replica,omitempty"`
}

// ReplicaScheduling says how the pods of one group are placed.
type ReplicaScheduling struct {
	// schedulingPolicy places all pods of a group together.
	// +optional
	SchedulingPolicy *schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy `json:"schedulingPolicy,omitempty"`

	// schedulingConstraints holds for all pods of a group.
	// +optional
	SchedulingConstraints *schedulingv1alpha3.WorkloadCompositePodGroupSchedulingConstraints `json:"schedulingConstraints,omitempty"`

	// disruptionMode says what of a group is disrupted together.
	// +optional
	DisruptionMode *schedulingv1alpha3.WorkloadCompositePodGroupDisruptionMode `json:"disruptionMode,omitempty"`

	// leader says how the leader of a group is placed.
	// +optional
	Leader *RoleScheduling `json:"leader,omitempty"`

	// worker says how the workers of a group are placed.
	// +optional
	Worker *RoleScheduling `json:"worker,omitempty"`
}

// RoleScheduling says how the leader or the workers of one group are placed.
type RoleScheduling struct {
	// schedulingPolicy places the pods of the role together.
	// +optional
	SchedulingPolicy *schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy `json:"schedulingPolicy,omitempty"`

	// schedulingConstraints holds for the pods of the role.
	// +optional
	SchedulingConstraints *schedulingv1alpha3.WorkloadPodGroupSchedulingConstraints `json:"schedulingConstraints,omitempty"`

	// disruptionMode says what of the role is disrupted together.
	// +optional
	DisruptionMode *schedulingv1alpha3.WorkloadPodGroupDisruptionMode `json:"disruptionMode,omitempty"`

	// resourceClaims are shared by the pods of the role. Their templates have the same claims.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=4
	ResourceClaims []schedulingv1alpha3.WorkloadPodGroupResourceClaim `json:"resourceClaims,omitempty"`
}
