package v1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// LeaderWorkerTemplate says what a group is made of.
// ---
// Rules that read several fields are asked only when one of these has changed.
// Claims are compared by what the StatefulSets are given of them, since a typed
// client that sends a set back adds empty members to each.
//
// +kubebuilder:validation:XValidation:optionalOldSelf=true,fieldPath=`.subGroupPolicy.subGroupSize`,rule=`self.?subGroupPolicy.?subGroupSize.orValue(0) < 1 || (oldSelf.?size.orValue(0) == self.size && oldSelf.?subGroupPolicy.?subGroupSize.orValue(0) == self.subGroupPolicy.subGroupSize) || self.size % self.subGroupPolicy.subGroupSize == 0 || (self.size - 1) % self.subGroupPolicy.subGroupSize == 0`,message="size or size - 1 must be divisible by subGroupSize"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,fieldPath=`.subGroupPolicy.subGroupSize`,rule=`self.?subGroupPolicy.?subGroupSize.orValue(0) < 1 || (oldSelf.?size.orValue(0) == self.size && oldSelf.?subGroupPolicy.?subGroupSize.orValue(0) == self.subGroupPolicy.subGroupSize) || self.size >= self.subGroupPolicy.subGroupSize`,message="subGroupSize cannot be larger than size"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,fieldPath=`.subGroupPolicy.subGroupSize`,rule=`self.?subGroupPolicy.?subGroupSize.orValue(0) < 1 || (oldSelf.?size.orValue(0) == self.size && oldSelf.?subGroupPolicy.?subGroupSize.orValue(0) == self.subGroupPolicy.subGroupSize && oldSelf.?subGroupPolicy.?subGroupPolicyType.orValue("") == 'LeaderExcluded') || self.subGroupPolicy.subGroupPolicyType != 'LeaderExcluded' || (self.size - 1) % self.subGroupPolicy.subGroupSize == 0`,message="size-1 must be divisible by subGroupSize when using LeaderExcluded"
// +kubebuilder:validation:XValidation:fieldPath=`.subGroupPolicy`,rule=`oldSelf.?subGroupPolicy.?subGroupSize.hasValue() || !self.?subGroupPolicy.?subGroupSize.hasValue()`,message="cannot enable subGroupSize after the lws is already created"
// +kubebuilder:validation:XValidation:fieldPath=`.subGroupPolicy`,rule=`!oldSelf.?subGroupPolicy.?subGroupSize.hasValue() || self.?subGroupPolicy.?subGroupSize.hasValue()`,message="cannot remove subGroupSize after enabled"
// +kubebuilder:validation:XValidation:fieldPath=`.volumeClaimTemplates`,rule=`(has(self.volumeClaimTemplates) && self.volumeClaimTemplates.size() > 0) == (has(oldSelf.volumeClaimTemplates) && oldSelf.volumeClaimTemplates.size() > 0)`,message="field is immutable: the claims of a StatefulSet cannot be changed; put back what it was; to enlarge a volume, resize its claim; for other claims, delete the set and create it again, with whenDeleted Retain if data is to stay"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,fieldPath=`.leaderTemplate.spec.restartPolicy`,rule=`self.?leaderTemplate.?spec.?restartPolicy.orValue("") in ["", 'Always'] || !(oldSelf.?leaderTemplate.?spec.?restartPolicy.orValue("") in ["", 'Always'])`,message="must be Always: the pods of a StatefulSet are always restarted"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,fieldPath=`.workerTemplate.spec.restartPolicy`,rule=`(has(self.leaderTemplate) && self.size < 2) || self.?workerTemplate.?spec.?restartPolicy.orValue("") in ["", 'Always'] || !(oldSelf.?leaderTemplate.hasValue() && oldSelf.?size.orValue(1) < 2 || oldSelf.?workerTemplate.?spec.?restartPolicy.orValue("") in ["", 'Always'])`,message="must be Always: the pods of a StatefulSet are always restarted"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,fieldPath=`.leaderTemplate.spec.activeDeadlineSeconds`,rule=`!self.?leaderTemplate.?spec.?activeDeadlineSeconds.hasValue() || oldSelf.?leaderTemplate.?spec.?activeDeadlineSeconds.hasValue()`,message="the pods of a StatefulSet have no deadline; remove it"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,fieldPath=`.workerTemplate.spec.activeDeadlineSeconds`,rule=`(has(self.leaderTemplate) && self.size < 2) || !self.?workerTemplate.?spec.?activeDeadlineSeconds.hasValue() || (!(oldSelf.?leaderTemplate.hasValue() && oldSelf.?size.orValue(1) < 2) && oldSelf.?workerTemplate.?spec.?activeDeadlineSeconds.hasValue())`,message="the pods of a StatefulSet have no deadline; remove it"
// +kubebuilder:validation:XValidation:optionalOldSelf=true,fieldPath=`.maxGroupRestarts`,rule=`!has(self.maxGroupRestarts) || self.?restartPolicy.orValue("") in ["", 'RecreateGroupOnPodRestart', 'RecreateGroupAfterStart'] || (oldSelf.?maxGroupRestarts.hasValue() && !(oldSelf.?restartPolicy.orValue("") in ["", 'RecreateGroupOnPodRestart', 'RecreateGroupAfterStart']))`,message="maxGroupRestarts is only supported when restartPolicy recreates the group"
type LeaderWorkerTemplate struct {
	// leaderTemplate is the template of leaders. Left out, leaders are made from
	// workerTemplate.
	// +optional
	LeaderTemplate *corev1.PodTemplateSpec `json:"leaderTemplate,omitempty"`

	// workerTemplate is the template of workers.
	// +required
	WorkerTemplate corev1.PodTemplateSpec `json:"workerTemplate"`

	// size is the number of pods of a group, leader included. A group of size 1
	// is its leader alone: no StatefulSet is made for workers. A new or changed size
	// is at most 1000000: the controller of StatefulSets takes memory for every pod that
	// one of them asks for, before it makes the first.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule=`self >= 1`,message="size must be equal or greater than 1"
	// +kubebuilder:validation:XValidation:rule=`self <= 1000000`,message="size must be equal or less than 1000000: more pods than a cluster holds; use more groups"
	Size *int32 `json:"size,omitempty"`

	// restartPolicy says what becomes of a group when one of its pods fails.
	// +optional
	// +kubebuilder:default=RecreateGroupOnPodRestart
	RestartPolicy RestartPolicyType `json:"restartPolicy,omitempty"`

	// maxGroupRestarts is how often a group is recreated at one revision. A group that
	// fails once more is stopped, and its pods stay as evidence until a user recovers
	// it. Left out, there is no limit; 0 recreates no group. It may be changed, and a
	// change restarts no pod. It is not allowed where restartPolicy is None.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxGroupRestarts *int32 `json:"maxGroupRestarts,omitempty"`

	// subGroupPolicy divides every group into subgroups, which can be placed
	// apart. It can neither be added nor removed later.
	// +optional
	SubGroupPolicy *SubGroupPolicy `json:"subGroupPolicy,omitempty"`

	// volumeClaimTemplates are the claims every pod of the set gets one of each
	// of. They cannot be changed.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:XValidation:rule=`self.map(c, c.?metadata.?name.orValue("")) == oldSelf.map(c, c.?metadata.?name.orValue(""))`,message="field is immutable: the claims of a StatefulSet cannot be changed; put back what it was; to enlarge a volume, resize its claim; for other claims, delete the set and create it again, with whenDeleted Retain if data is to stay"
	// +kubebuilder:validation:XValidation:rule=`self.map(c, c.?spec.?accessModes.orValue([])) == oldSelf.map(c, c.?spec.?accessModes.orValue([]))`,message="field is immutable: the claims of a StatefulSet cannot be changed; put back what it was; to enlarge a volume, resize its claim; for other claims, delete the set and create it again, with whenDeleted Retain if data is to stay"
	// +kubebuilder:validation:XValidation:rule=`self.map(c, c.?spec.?storageClassName.orValue('(default)')) == oldSelf.map(c, c.?spec.?storageClassName.orValue('(default)'))`,message="field is immutable: the claims of a StatefulSet cannot be changed; put back what it was; to enlarge a volume, resize its claim; for other claims, delete the set and create it again, with whenDeleted Retain if data is to stay"
	// +kubebuilder:validation:XValidation:rule=`self.map(c, c.?spec.?volumeMode.orValue('Filesystem')) == oldSelf.map(c, c.?spec.?volumeMode.orValue('Filesystem'))`,message="field is immutable: the claims of a StatefulSet cannot be changed; put back what it was; to enlarge a volume, resize its claim; for other claims, delete the set and create it again, with whenDeleted Retain if data is to stay"
	// +kubebuilder:validation:XValidation:rule=`self.map(c, [c.?spec.?resources.?requests[?'storage'].orValue('0')].map(q, quantity(string(q)).asApproximateFloat())) == oldSelf.map(c, [c.?spec.?resources.?requests[?'storage'].orValue('0')].map(q, quantity(string(q)).asApproximateFloat()))`,message="field is immutable: the claims of a StatefulSet cannot be changed; put back what it was; to enlarge a volume, resize its claim; for other claims, delete the set and create it again, with whenDeleted Retain if data is to stay"
	VolumeClaimTemplates []corev1.PersistentVolumeClaim `json:"volumeClaimTemplates,omitempty"`

	// persistentVolumeClaimRetentionPolicy says what becomes of those claims when
	// the set is deleted or scaled down.
	// +optional
	// +kubebuilder:validation:XValidation:fieldPath=`.whenDeleted`,rule=`self.?whenDeleted.orValue("") in ['', 'Retain', 'Delete']`,message="must be Retain or Delete"
	// +kubebuilder:validation:XValidation:fieldPath=`.whenScaled`,rule=`self.?whenScaled.orValue("") in ['', 'Retain', 'Delete']`,message="must be Retain or Delete"
	PersistentVolumeClaimRetentionPolicy *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy `json:"persistentVolumeClaimRetentionPolicy,omitempty"`
}

// RestartPolicyType says what becomes of a group when one of its pods fails.
// +kubebuilder:validation:Enum=Default;RecreateGroupOnPodRestart;RecreateGroupAfterStart;None
type RestartPolicyType string

const (
	// RecreateGroupOnPodRestart recreates the whole group when any container of
	// it restarts or any pod of it is deleted.
	RecreateGroupOnPodRestart RestartPolicyType = "RecreateGroupOnPodRestart"

	// RecreateGroupAfterStart is RecreateGroupOnPodRestart for groups all of
	// whose pods have started; until then a failed pod restarts alone.
	RecreateGroupAfterStart RestartPolicyType = "RecreateGroupAfterStart"

	// NoneRestartPolicy restarts the failed pod alone.
	NoneRestartPolicy RestartPolicyType = "None"

	// DeprecatedDefaultRestartPolicy means NoneRestartPolicy and is rewritten to
	// it on admission.
	DeprecatedDefaultRestartPolicy RestartPolicyType = "Default"
)

// SubGroupPolicy divides every group into subgroups.
//
// +kubebuilder:validation:XValidation:rule=`has(self.subGroupSize)`,reason=FieldValueRequired,message="subGroupSize is required"
type SubGroupPolicy struct {
	// subGroupPolicyType says whether the leader belongs to a subgroup.
	// +optional
	// +kubebuilder:default=LeaderWorker
	Type *SubGroupPolicyType `json:"subGroupPolicyType,omitempty"`

	// subGroupSize is the number of pods of a subgroup. It must divide size or
	// size-1, and can never be changed.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self >= 1`,message="subGroupSize must be equal or greater than 1"
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="field is immutable"
	SubGroupSize *int32 `json:"subGroupSize,omitempty"`
}

// SubGroupPolicyType says whether the leader belongs to a subgroup.
// +kubebuilder:validation:Enum=LeaderWorker;LeaderExcluded
type SubGroupPolicyType string

const (
	// SubGroupPolicyTypeLeaderWorker puts the leader into subgroup 0: as one of
	// its members when subGroupSize divides size, else as an extra one.
	SubGroupPolicyTypeLeaderWorker SubGroupPolicyType = "LeaderWorker"

	// SubGroupPolicyTypeLeaderExcluded puts the leader into no subgroup.
	SubGroupPolicyTypeLeaderExcluded SubGroupPolicyType = "LeaderExcluded"
)
