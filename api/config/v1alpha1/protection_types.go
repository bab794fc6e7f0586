package v1alpha1

import (
	"encoding/json"
	"fmt"
)

// ProtectionMode is how far the protection of claims in use goes. Each includes
// the ones before it.
type ProtectionMode string

// The modes. A namespace chooses its own by the label
// protection.lockstep.dev/mode, a claim by the annotation of that name; there
// they are written in lower case.
const (
	// ProtectionOff leaves claims to what is built into Kubernetes.
	ProtectionOff ProtectionMode = "Off"
	// ProtectionObserve tells who holds a claim, and changes nothing.
	ProtectionObserve ProtectionMode = "Observe"
	// ProtectionBarrier makes removal safe: a claim goes when no pod uses it.
	ProtectionBarrier ProtectionMode = "Barrier"
	// ProtectionHold refuses the deletion of what a workload wants.
	ProtectionHold ProtectionMode = "Hold"
	// ProtectionStrict binds a pod only after its use is written on its claims.
	ProtectionStrict ProtectionMode = "Strict"
)

// IdlePolicy is what becomes of a claim that only an idle workload would use.
type IdlePolicy string

// What a DELETE of such a claim meets.
const (
	// IdleHold refuses it, as if the workload were not idle.
	IdleHold IdlePolicy = "Hold"
	// IdleWarn lets it pass, with a warning.
	IdleWarn IdlePolicy = "Warn"
	// IdleFree lets it pass without a word.
	IdleFree IdlePolicy = "Free"
)

// InitialHold is what a claim bears from its creation until the operator has looked.
type InitialHold string

// How a claim begins.
const (
	// InitialHoldNone lets it be deleted until somebody was seen to hold it.
	InitialHoldNone InitialHold = "None"
	// InitialHoldPending has its deletion refused until nobody was seen to hold it.
	InitialHoldPending InitialHold = "Pending"
)

// Protection is how PersistentVolumeClaims in use are kept from being lost.
type Protection struct {
	// Enabled turns it on. Default true.
	Enabled *bool `json:"enabled,omitempty"`

	// Mode is that of namespaces and claims that choose none. Default Barrier.
	Mode ProtectionMode `json:"mode,omitempty"`

	// Alone says that the cluster runs without the controller and the admission
	// plugin built into Kubernetes, so that their finalizers are ours to give and to
	// take. Default false.
	Alone bool `json:"alone,omitempty"`

	// UnusedCondition is accepted and ignored, with a warning: the operator does not write
	// the condition Unused.
	UnusedCondition *bool `json:"unusedCondition,omitempty"`

	// ExemptNamespaces are never protected. The operator's own is not either, named
	// here or not. Left out: kube-system; an empty list: no other.
	// +optional
	ExemptNamespaces []string `json:"exemptNamespaces"`

	// Idle is what becomes of a claim that only an idle workload would use: one
	// scaled to zero, suspended, or with fewer replicas. Default Warn.
	Idle IdlePolicy `json:"idle,omitempty"`

	// GraceSeconds is how long a claim stays held after its last holder has gone, 0
	// to 86400. Default 300.
	GraceSeconds *int32 `json:"graceSeconds,omitempty"`

	// ReleaseTTLSeconds is how long a permission to delete what is held lasts when it
	// is not made use of, 1 to 86400. Default 3600.
	ReleaseTTLSeconds *int32 `json:"releaseTTLSeconds,omitempty"`

	// ReleaseByTwo is accepted and ignored, with a warning: one person with the verb
	// release suffices.
	ReleaseByTwo bool `json:"releaseByTwo,omitempty"`

	// InitialHold is whether a new claim in mode hold or strict is held until the
	// operator has looked who holds it. Takes API servers from 1.36 on. Default None.
	InitialHold InitialHold `json:"initialHold,omitempty"`

	// Kinds are workloads whose claims are held although their kind is not built in.
	// JobSet is known without being named.
	Kinds []WorkloadKind `json:"kinds,omitempty"`
}

// WorkloadKind says where a kind of workload names claims. Paths are names of
// fields with dots between; "*" is every element of a list.
type WorkloadKind struct {
	// APIVersion of the kind: group/version.
	APIVersion string `json:"apiVersion"`

	// Kind as objects name it.
	Kind string `json:"kind"`

	// PodTemplates lead to pod templates, as
	// spec.replicatedJobs.*.template.spec.template does.
	PodTemplates []string `json:"podTemplates,omitempty"`

	// ClaimTemplates lead to lists of claims that are made for each workload.
	ClaimTemplates []string `json:"claimTemplates,omitempty"`

	// ClaimName is how claims of templates are named, of {template}, {name} and, at
	// the end after a dash, {ordinal}. Required with claimTemplates.
	ClaimName string `json:"claimName,omitempty"`

	// Replicas leads to the number of replicas: the largest counts where it leads to
	// several. Required with {ordinal}.
	Replicas string `json:"replicas,omitempty"`

	// Suspend leads to a switch that makes the workload idle: all of them have to be
	// on where it leads to several.
	Suspend string `json:"suspend,omitempty"`

	// Finished are the types of conditions in status.conditions that, when True, say
	// that the workload is over.
	Finished []string `json:"finished,omitempty"`
}

// UnmarshalJSON reads a mode. Off without quotes is false in YAML, and means what
// it says.
func (m *ProtectionMode) UnmarshalJSON(text []byte) error {
	if string(text) == "false" {
		*m = ProtectionOff
		return nil
	}
	var word string
	if err := json.Unmarshal(text, &word); err != nil {
		return fmt.Errorf("a mode is a word such as %s, not %s", ProtectionBarrier, text)
	}
	*m = ProtectionMode(word)
	return nil
}
