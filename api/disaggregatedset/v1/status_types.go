package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DisaggregatedSetStatus is what was found of a DisaggregatedSet.
type DisaggregatedSetStatus struct {
	// observedGeneration is the generation of the set this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// roleStatuses says of each role what was found, in the order of spec.roles.
	// +optional
	// +listType=map
	// +listMapKey=name
	RoleStatuses []RoleStatus `json:"roleStatuses,omitempty"`

	// conditions say in which state the set is.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// roles is the number of roles in the spec.
	// +optional
	Roles int32 `json:"roles,omitempty"`

	// readyRoles is the number of roles that have as many ready groups as they want.
	// +optional
	ReadyRoles int32 `json:"readyRoles,omitempty"`

	// updatedRoles is the number of roles that have as many groups of the current revision
	// as they want.
	// +optional
	UpdatedRoles int32 `json:"updatedRoles,omitempty"`
}

// RoleStatus is what was found of a role, in all slices.
type RoleStatus struct {
	// name is the name of the role.
	// +required
	Name string `json:"name"`

	// replicas is the number of groups that exist, of all revisions.
	// +optional
	Replicas int32 `json:"replicas"`

	// readyReplicas is the number of groups that are ready, of all revisions.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// updatedReplicas is the number of groups of the current revision.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`
}

// Types of conditions of a DisaggregatedSet.
const (
	// ConditionAvailable says that every role has as many groups as it wants, all of them
	// ready and of the current revision.
	ConditionAvailable = "Available"

	// ConditionProgressing says that some role does not.
	ConditionProgressing = "Progressing"
)
