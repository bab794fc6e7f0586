package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LeaderWorkerSet runs a number of groups of pods. A group is one leader and
// its workers: it is created, updated, restarted and placed as one.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.hpaPodSelector
// +kubebuilder:resource:shortName=lws
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Up-to-date",type=integer,JSONPath=`.status.updatedReplicas`
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.groupRestarts`,description="The failures in a row of all groups."
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="What the set waits for, or that all groups are ready."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What the operator says of the status."
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule=`oldSelf.hasValue() || self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')`,message="metadata.name: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule=`oldSelf.hasValue() || self.metadata.name.size() <= 63`,message="metadata.name: must be no more than 63 characters"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule=`oldSelf.hasValue() || has(self.spec)`,message="spec: a set needs at least spec.leaderWorkerTemplate.workerTemplate",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule=`self.metadata.name.size() <= 43 || self.?spec.?groupIdentity.orValue("") != 'Hash' || !(self.?spec.?leaderWorkerTemplate.?size.orValue(1) > 1) || (oldSelf.?spec.?groupIdentity.orValue("") == 'Hash' && oldSelf.?spec.?leaderWorkerTemplate.?size.orValue(1) > 1)`,message="metadata.name: must be no more than 43 characters with groupIdentity Hash"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule=`self.metadata.name.size() <= 54 || self.?spec.?groupIdentity.orValue("") != 'Hash' || !(self.?spec.?leaderWorkerTemplate.?size.orValue(1) < 2) || (oldSelf.?spec.?groupIdentity.orValue("") == 'Hash' && oldSelf.?spec.?leaderWorkerTemplate.?size.orValue(1) < 2)`,message="metadata.name: must be no more than 54 characters with groupIdentity Hash"
type LeaderWorkerSet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is wanted.
	// +optional
	Spec LeaderWorkerSetSpec `json:"spec,omitempty"`

	// status is what was found. Until the operator finds something, observedGeneration
	// is -1: tools do not take a new set for one that is ready.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status LeaderWorkerSetStatus `json:"status,omitempty"`
}

// LeaderWorkerSetList is a list of LeaderWorkerSets.
//
// +kubebuilder:object:root=true
type LeaderWorkerSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LeaderWorkerSet `json:"items"`
}

// LeaderWorkerSetTemplateSpec describes a LeaderWorkerSet to be made by
// something else.
type LeaderWorkerSetTemplateSpec struct {
	// metadata is copied to the set.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is copied to the set.
	// +optional
	Spec LeaderWorkerSetSpec `json:"spec,omitempty"`
}

// LeaderWorkerSetSpec is what is wanted of a set.
// ---
// The rules below read several fields; each is asked only when one of the
// fields it reads has changed, so that a set stored before the rule existed can
// still be updated. A change of replicas alone does not ask the second: it
// comes through the scale subresource, where an autoscaler could do nothing
// about the refusal.
//
// +kubebuilder:validation:XValidation:optionalOldSelf=true,fieldPath=`.replicas`,rule=`self.replicas * self.leaderWorkerTemplate.size <= 2147483647 || (oldSelf.?replicas.orValue(0) == self.replicas && oldSelf.?leaderWorkerTemplate.?size.orValue(0) == self.leaderWorkerTemplate.size)`,message="the product of replicas and worker replicas must not exceed 2147483647"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,fieldPath=`.rolloutStrategy.rollingUpdateConfiguration.maxUnavailable`,rule=`self.replicas == 0 || !has(self.rolloutStrategy) || !has(self.rolloutStrategy.rollingUpdateConfiguration) || (oldSelf.?rolloutStrategy.?rollingUpdateConfiguration.hasValue() && oldSelf.value().rolloutStrategy.rollingUpdateConfiguration.maxUnavailable == self.rolloutStrategy.rollingUpdateConfiguration.maxUnavailable && oldSelf.value().rolloutStrategy.rollingUpdateConfiguration.maxSurge == self.rolloutStrategy.rollingUpdateConfiguration.maxSurge) || [self.rolloutStrategy.rollingUpdateConfiguration.maxUnavailable].exists(v, type(v) == int ? v != 0 : !string(v).matches('^0*[0-9]{1,3}%$') || int(string(v).replace('%', "")) * self.replicas >= 100) || [self.rolloutStrategy.rollingUpdateConfiguration.maxSurge].exists(v, type(v) == int ? v != 0 : !string(v).matches('^0+%$'))`,message="must not be 0 when `maxSurge` is 0"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,fieldPath=`.groupIdentity`,rule=`self.?groupIdentity.orValue("") != 'Hash' || !self.?leaderWorkerTemplate.?volumeClaimTemplates[?0].hasValue() || (oldSelf.?groupIdentity.orValue("") == 'Hash' && oldSelf.?leaderWorkerTemplate.?volumeClaimTemplates[?0].hasValue())`,message="volumeClaimTemplates are not supported with groupIdentity Hash"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,fieldPath=`.groupIdentity`,rule=`self.?groupIdentity.orValue("") != 'Hash' || self.?rolloutStrategy.?rollingUpdateConfiguration.?partition.orValue(0) == 0 || (oldSelf.?groupIdentity.orValue("") == 'Hash' && oldSelf.?rolloutStrategy.?rollingUpdateConfiguration.?partition.orValue(0) != 0)`,message="rollingUpdateConfiguration.partition is not supported with groupIdentity Hash"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,fieldPath=`.groupIdentity`,rule=`self.?groupIdentity.orValue("") != 'Hash' || (self.?leaderWorkerTemplate.?leaderTemplate.hasValue() ? self.?leaderWorkerTemplate.?leaderTemplate.?spec.?hostname.orValue("") : self.?leaderWorkerTemplate.?workerTemplate.?spec.?hostname.orValue("")) == "" || (oldSelf.?groupIdentity.orValue("") == 'Hash' && (oldSelf.?leaderWorkerTemplate.?leaderTemplate.hasValue() ? oldSelf.?leaderWorkerTemplate.?leaderTemplate.?spec.?hostname.orValue("") : oldSelf.?leaderWorkerTemplate.?workerTemplate.?spec.?hostname.orValue("")) != "")`,message="a leader pod hostname is not supported with groupIdentity Hash"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,fieldPath=`.groupReplacementPolicy`,rule=`self.?groupReplacementPolicy.orValue("") != 'Immediate' || self.?groupIdentity.orValue("") == 'Hash' || (oldSelf.?groupReplacementPolicy.orValue("") == 'Immediate' && oldSelf.?groupIdentity.orValue("") != 'Hash')`,message="Immediate is only supported with groupIdentity Hash"
type LeaderWorkerSetSpec struct {
	// replicas is the number of groups.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Replicas *int32 `json:"replicas,omitempty"`

	// leaderWorkerTemplate says what a group is made of. A change of it is
	// rolled out.
	// +required
	LeaderWorkerTemplate LeaderWorkerTemplate `json:"leaderWorkerTemplate"`

	// rolloutStrategy says how a change of the template reaches the groups.
	// +optional
	RolloutStrategy RolloutStrategy `json:"rolloutStrategy,omitempty"`

	// startupPolicy says when the workers of a group are created.
	// +optional
	// +kubebuilder:default=LeaderCreated
	StartupPolicy StartupPolicyType `json:"startupPolicy"`

	// networkConfig says how pods find each other. Left out, the pods of all
	// groups share one subdomain.
	// +optional
	NetworkConfig *NetworkConfig `json:"networkConfig,omitempty"`

	// podTerminationPolicy says when the workers of a group end whose leader is
	// deleted. It may be changed, and a change restarts no pod.
	// +optional
	// +kubebuilder:default=Default
	PodTerminationPolicy PodTerminationPolicyType `json:"podTerminationPolicy,omitempty"`

	// scheduling says how Kubernetes' own scheduler places pods together. It needs
	// the feature gate WorkloadAwareScheduling, and a scheduler in the configuration.
	// +optional
	Scheduling *Scheduling `json:"scheduling,omitempty"`

	// groupIdentity says what a group is known by. It cannot be changed.
	// +optional
	// +kubebuilder:default=Ordinal
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="groupIdentity is immutable"
	GroupIdentity GroupIdentityType `json:"groupIdentity,omitempty"`

	// groupReplacementPolicy says when the next group takes the room of one that
	// ends. It may be changed, and a change restarts no pod.
	// +optional
	// +kubebuilder:default=PostTermination
	GroupReplacementPolicy GroupReplacementPolicyType `json:"groupReplacementPolicy,omitempty"`
}

// GroupIdentityType says what a group is known by.
// +kubebuilder:validation:Enum=Ordinal;Hash
type GroupIdentityType string

const (
	// OrdinalGroupIdentity numbers groups from 0. A group that is recreated has the
	// names of the one before it.
	OrdinalGroupIdentity GroupIdentityType = "Ordinal"

	// HashGroupIdentity gives each group a random key. A group that is recreated has
	// other names, and any group may be scaled away.
	HashGroupIdentity GroupIdentityType = "Hash"
)

// GroupReplacementPolicyType says when the next group takes the room of one that
// ends.
// +kubebuilder:validation:Enum=Immediate;PostTermination
type GroupReplacementPolicyType string

const (
	// ImmediateGroupReplacement schedules the next leader at once. It needs
	// groupIdentity Hash.
	ImmediateGroupReplacement GroupReplacementPolicyType = "Immediate"

	// PostTerminationGroupReplacement schedules the next leader once the pods of a
	// group that ends are gone.
	PostTerminationGroupReplacement GroupReplacementPolicyType = "PostTermination"
)

// PodTerminationPolicyType says when the workers of a group end whose leader is
// deleted.
// +kubebuilder:validation:Enum=Default;Parallel
type PodTerminationPolicyType string

const (
	// DefaultPodTermination ends workers once their leader is gone. A group that
	// failed ends at once.
	DefaultPodTermination PodTerminationPolicyType = "Default"

	// ParallelPodTermination ends workers as soon as their leader terminates.
	ParallelPodTermination PodTerminationPolicyType = "Parallel"
)

// StartupPolicyType says when the workers of a group are created.
// +kubebuilder:validation:Enum=LeaderCreated;LeaderReady
type StartupPolicyType string

const (
	// LeaderCreatedStartupPolicy creates workers as soon as their leader exists.
	LeaderCreatedStartupPolicy StartupPolicyType = "LeaderCreated"

	// LeaderReadyStartupPolicy creates workers once their leader is ready.
	LeaderReadyStartupPolicy StartupPolicyType = "LeaderReady"
)

// NetworkConfig says how pods find each other.
type NetworkConfig struct {
	// subdomainPolicy says which headless Service the DNS names of pods hang
	// from. It may be changed; the change is rolled out.
	// +required
	SubdomainPolicy *SubdomainPolicy `json:"subdomainPolicy"`
}

// SubdomainPolicy says which headless Service the DNS names of pods hang from.
// +kubebuilder:validation:Enum=Shared;UniquePerReplica
type SubdomainPolicy string

const (
	// SubdomainShared makes one Service per set, named like the set. The leader
	// of group 0 of set "a" is a-0.a, its first worker a-0-1.a.
	SubdomainShared SubdomainPolicy = "Shared"

	// SubdomainUniquePerReplica makes one Service per group, named like its
	// leader. The leader of group 0 of set "a" is a-0.a-0, its first worker
	// a-0-1.a-0.
	SubdomainUniquePerReplica SubdomainPolicy = "UniquePerReplica"
)
