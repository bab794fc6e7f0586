package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DisaggregatedSetRoleScaler is where an autoscaler sets the number of groups of a role
// whose scaling is External. The operator creates it, and deletes it with the role.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=dsrs
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DisaggregatedSetRoleScaler struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is wanted.
	// +optional
	// +kubebuilder:default:={"replicas":0}
	Spec DisaggregatedSetRoleScalerSpec `json:"spec,omitempty"`

	// status is what was found.
	// +optional
	Status DisaggregatedSetRoleScalerStatus `json:"status,omitempty"`
}

// DisaggregatedSetRoleScalerList is a list of DisaggregatedSetRoleScalers.
//
// +kubebuilder:object:root=true
type DisaggregatedSetRoleScalerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DisaggregatedSetRoleScaler `json:"items"`
}

// DisaggregatedSetRoleScalerSpec is what is wanted of a role.
type DisaggregatedSetRoleScalerSpec struct {
	// replicas is the number of groups. It is always written, also when it is 0: the scale
	// subresource cannot be read without it.
	// +required
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Replicas int32 `json:"replicas"`
}

// DisaggregatedSetRoleScalerStatus is what was found of a role.
type DisaggregatedSetRoleScalerStatus struct {
	// observedGeneration is the generation of the scaler this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// replicas is the number of groups that exist, of all revisions.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// selector selects one pod of each group, for a HorizontalPodAutoscaler that reads the
	// scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`

	// conditions say whether the scaler has a role.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The condition of a DisaggregatedSetRoleScaler, and its reason.
const (
	// ConditionReady says that the scaler sets the number of groups of a role.
	ConditionReady = "Ready"

	// BoundReason is the reason of ConditionReady.
	BoundReason = "Bound"
)
