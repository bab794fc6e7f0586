package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// DisaggregatedSet runs roles that serve together, such as prefill and decode. Each role
// is one LeaderWorkerSet per slice, and a change of any role rolls all of them out in step.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=dset
// +kubebuilder:printcolumn:name="Roles",type=integer,JSONPath=`.status.roles`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyRoles`,description="The number of roles all of whose groups are ready."
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updatedRoles`,description="The number of roles all of whose groups are of the current revision."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DisaggregatedSet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is wanted.
	// +required
	Spec DisaggregatedSetSpec `json:"spec"`

	// status is what was found. Until the operator finds something, observedGeneration
	// is -1: tools do not take a new set for one that is ready.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status DisaggregatedSetStatus `json:"status,omitempty"`
}

// DisaggregatedSetList is a list of DisaggregatedSets.
//
// +kubebuilder:object:root=true
type DisaggregatedSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DisaggregatedSet `json:"items"`
}

// DisaggregatedSetSpec is what is wanted of a DisaggregatedSet.
//
// +kubebuilder:validation:XValidation:rule=`self.roles.all(r, r.?scaling.?mode.orValue("") == 'External' || r.?spec.?replicas.orValue(0) == 0) || self.roles.all(r, r.?scaling.?mode.orValue("") == 'External' || r.?spec.?replicas.orValue(0) > 0)`,message="replicas must be zero for all non-External roles or non-zero for all non-External roles"
type DisaggregatedSetSpec struct {
	// roles are what the set is made of. Adding, removing or reordering one is rolled out
	// like a change of a template.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Roles []DisaggregatedRole `json:"roles"`

	// slices is the number of copies of the whole. Each has all roles, and its own rollout.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Slices *int32 `json:"slices,omitempty"`

	// placementPolicy says how slices keep apart. It holds for LeaderWorkerSets that are
	// created from then on.
	// +optional
	PlacementPolicy *PlacementPolicy `json:"placementPolicy,omitempty"`
}

// DisaggregatedRole is one role of a DisaggregatedSet.
type DisaggregatedRole struct {
	// name is unique among the roles.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// scaling says who sets the number of groups.
	// +optional
	Scaling *RoleScaling `json:"scaling,omitempty"`

	// metadata has the labels and annotations of the role's LeaderWorkerSets. Its other
	// members are not used.
	// +optional
	Metadata metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the specification of the role's LeaderWorkerSets. A change of its template
	// makes another LeaderWorkerSet in each slice.
	// +optional
	Spec lwsv1.LeaderWorkerSetSpec `json:"spec,omitempty"`
}

// RoleScaling says who sets the number of groups of a role.
type RoleScaling struct {
	// mode is Static or External.
	// +optional
	// +kubebuilder:default=Static
	Mode ScalingMode `json:"mode,omitempty"`
}

// ScalingMode says who sets the number of groups of a role.
// +kubebuilder:validation:Enum=Static;External
type ScalingMode string

const (
	// ScalingStatic takes spec.replicas of the role.
	ScalingStatic ScalingMode = "Static"

	// ScalingExternal takes spec.replicas of the role's DisaggregatedSetRoleScaler, and
	// leaves the role's own alone.
	ScalingExternal ScalingMode = "External"
)

// PlacementPolicy says how slices keep apart.
type PlacementPolicy struct {
	// type says what a topology domain is kept for.
	// +optional
	// +kubebuilder:default=None
	Type PlacementType `json:"type,omitempty"`

	// topology is the node label whose values are the domains. A type other than None
	// needs it.
	// +optional
	Topology string `json:"topology,omitempty"`
}

// PlacementType says what a topology domain is kept for.
// +kubebuilder:validation:Enum=None;ExclusiveSlice;ExclusiveTopology
type PlacementType string

const (
	// PlacementNone keeps no domain.
	PlacementNone PlacementType = "None"

	// PlacementExclusiveSlice keeps a domain for one slice among those of the set.
	PlacementExclusiveSlice PlacementType = "ExclusiveSlice"

	// PlacementExclusiveTopology keeps a domain for one slice among those of all sets in
	// the namespace.
	PlacementExclusiveTopology PlacementType = "ExclusiveTopology"
)
