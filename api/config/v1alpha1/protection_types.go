package v1alpha1

import (
	"encoding/json"
	"fmt"
)

// ProtectionMode is the level of protection of PVCs in use. Each includes the ones before it.
type ProtectionMode string

// The modes. A namespace chooses its own by the label protection.lockstep.dev/mode, a PVC by
// the annotation of that name, in lower case.
const (
	// ProtectionOff leaves PVCs to the controller that is built into Kubernetes.
	ProtectionOff ProtectionMode = "Off"
	// ProtectionObserve reports what holds a PVC, and changes nothing.
	ProtectionObserve ProtectionMode = "Observe"
	// ProtectionBarrier makes removal safe: a PVC goes when no pod uses it.
	ProtectionBarrier ProtectionMode = "Barrier"
	// ProtectionHold refuses the deletion of a PVC that a workload uses.
	ProtectionHold ProtectionMode = "Hold"
	// ProtectionStrict binds a pod only after its use is written on its PVCs.
	ProtectionStrict ProtectionMode = "Strict"
)

// IdlePolicy is what happens to a PVC that only an idle workload uses.
type IdlePolicy string

// What happens to a DELETE of such a PVC.
const (
	// IdleHold refuses it, as if the workload were not idle.
	IdleHold IdlePolicy = "Hold"
	// IdleWarn allows it, with a warning.
	IdleWarn IdlePolicy = "Warn"
	// IdleFree allows it.
	IdleFree IdlePolicy = "Free"
)

// InitialHold is the hold of a PVC from its creation until the operator has read its holders.
type InitialHold string

// The initial holds.
const (
	// InitialHoldNone allows its deletion until a holder is found.
	InitialHoldNone InitialHold = "None"
	// InitialHoldPending refuses its deletion until no holder is found.
	InitialHoldPending InitialHold = "Pending"
)

// Protection keeps PersistentVolumeClaims in use from being lost.
type Protection struct {
	// Enabled turns it on. Default true.
	Enabled *bool `json:"enabled,omitempty"`

	// Mode is that of namespaces and PVCs that choose none. Default Barrier.
	Mode ProtectionMode `json:"mode,omitempty"`

	// Alone says that the cluster runs without the controller and the admission plugin
	// that are built into Kubernetes: Lockstep adds and removes their finalizers. Default
	// false.
	Alone bool `json:"alone,omitempty"`

	// UnusedCondition is accepted and ignored, with a warning: the operator does not write
	// the condition Unused.
	UnusedCondition *bool `json:"unusedCondition,omitempty"`

	// ExemptNamespaces are never protected, nor is the operator's own. Left out:
	// kube-system; an empty list: no other.
	// +optional
	ExemptNamespaces []string `json:"exemptNamespaces"`

	// Idle is what happens to a PVC that only an idle workload uses: one scaled to zero,
	// suspended, or with fewer replicas. Default Warn.
	Idle IdlePolicy `json:"idle,omitempty"`

	// GraceSeconds is how long a PVC stays held after its last holder is gone, 0 to
	// 86400. Default 300.
	GraceSeconds *int32 `json:"graceSeconds,omitempty"`

	// ReleaseTTLSeconds is how long an unused permission to delete a held PVC lasts, 1 to
	// 86400. Default 3600.
	ReleaseTTLSeconds *int32 `json:"releaseTTLSeconds,omitempty"`

	// ReleaseByTwo is accepted and ignored, with a warning: one person with the verb
	// release suffices.
	ReleaseByTwo bool `json:"releaseByTwo,omitempty"`

	// InitialHold is whether a new PVC in mode hold or strict is held until the operator
	// has read its holders. Needs Kubernetes 1.36. Default None.
	InitialHold InitialHold `json:"initialHold,omitempty"`

	// Kinds are workloads whose PVCs are held although their kind is not built in.
	// JobSet and DisaggregatedSet are built in unless they are listed.
	Kinds []WorkloadKind `json:"kinds,omitempty"`
}

// WorkloadKind says where a kind of workload names PVCs. Paths are names of fields with
// dots between; "*" is every element of a list.
type WorkloadKind struct {
	// APIVersion of the kind: group/version.
	APIVersion string `json:"apiVersion"`

	// Kind as objects name it.
	Kind string `json:"kind"`

	// PodTemplates lead to pod templates, as
	// spec.replicatedJobs.*.template.spec.template does.
	PodTemplates []string `json:"podTemplates,omitempty"`

	// ClaimTemplates lead to lists of PVCs that are created for each workload.
	ClaimTemplates []string `json:"claimTemplates,omitempty"`

	// ClaimName is the name of PVCs from templates, made of {template}, {name} and, at the
	// end after a dash, {ordinal}. Required with claimTemplates.
	ClaimName string `json:"claimName,omitempty"`

	// Replicas leads to the number of replicas. If it leads to several, the largest
	// counts. Required with {ordinal}.
	Replicas string `json:"replicas,omitempty"`

	// Suspend leads to a switch that makes the workload idle. If it leads to several, all
	// of them must be on.
	Suspend string `json:"suspend,omitempty"`

	// Finished are the types of conditions in status.conditions that end the workload
	// when True.
	Finished []string `json:"finished,omitempty"`
}

// UnmarshalJSON reads a mode. Off without quotes is false in YAML.
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
