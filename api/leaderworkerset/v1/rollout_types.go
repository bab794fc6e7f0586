package v1

import (
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RolloutStrategy says how a change of the template reaches the groups.
type RolloutStrategy struct {
	// type is the kind of rollout.
	// +required
	// +kubebuilder:default=RollingUpdate
	Type RolloutStrategyType `json:"type"`

	// rollingUpdateConfiguration sets the pace of a rolling update.
	// +optional
	RollingUpdateConfiguration *RollingUpdateConfiguration `json:"rollingUpdateConfiguration,omitempty"`
}

// RolloutStrategyType is a kind of rollout.
// +kubebuilder:validation:Enum=RollingUpdate
type RolloutStrategyType string

const (
	// RollingUpdateStrategyType replaces group by group, from the highest index
	// down.
	RollingUpdateStrategyType RolloutStrategyType = "RollingUpdate"
)

// RollingUpdateConfiguration sets the pace of a rolling update. Percentages are
// of the current spec.replicas.
type RollingUpdateConfiguration struct {
	// partition keeps every group with a lower index at its revision. It may
	// exceed replicas: then nothing is updated.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XValidation:rule=`self >= 0`,message="must be greater than or equal to 0"
	Partition *int32 `json:"partition,omitempty"`

	// maxUnavailable is the number of groups, or the percentage rounded down,
	// that may be unavailable during an update. It must not be 0 when maxSurge
	// is.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule=`type(self) == int || string(self).matches('^[0-9]+%$')`,message="a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
	// +kubebuilder:validation:XValidation:rule=`type(self) != int || int(self) >= 0`,message="must be greater than or equal to 0"
	// +kubebuilder:validation:XValidation:rule=`type(self) == int || !string(self).matches('^[0-9]+%$') || string(self).matches('^0*(100|[0-9]{1,2})%$')`,message="must not be greater than 100%"
	MaxUnavailable intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// maxSurge is the number of groups, or the percentage rounded up, that may
	// exist beyond replicas during an update.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule=`type(self) == int || string(self).matches('^[0-9]+%$')`,message="a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
	// +kubebuilder:validation:XValidation:rule=`type(self) != int || int(self) >= 0`,message="must be greater than or equal to 0"
	// +kubebuilder:validation:XValidation:rule=`type(self) == int || !string(self).matches('^[0-9]+%$') || string(self).matches('^0*(100|[0-9]{1,2})%$')`,message="must not be greater than 100%"
	MaxSurge intstr.IntOrString `json:"maxSurge,omitempty"`
}
