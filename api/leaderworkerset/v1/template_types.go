package v1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// LeaderWorkerTemplate says what a group is made of.
type LeaderWorkerTemplate struct {
	// leaderTemplate is the template of leaders. Left out, leaders are made from
	// workerTemplate.
	// +optional
	LeaderTemplate *corev1.PodTemplateSpec `json:"leaderTemplate,omitempty"`

	// workerTemplate is the template of workers.
	// +required
	WorkerTemplate corev1.PodTemplateSpec `json:"workerTemplate"`

	// size is the number of pods of a group, leader included. A group of size 1
	// is its leader alone: no StatefulSet is made for workers.
	// +optional
	// +kubebuilder:default=1
	Size *int32 `json:"size,omitempty"`

	// restartPolicy says what becomes of a group when one of its pods fails.
	// +optional
	// +kubebuilder:default=RecreateGroupOnPodRestart
	RestartPolicy RestartPolicyType `json:"restartPolicy,omitempty"`

	// subGroupPolicy divides every group into subgroups, which can be placed
	// apart. It can neither be added nor removed later.
	// +optional
	SubGroupPolicy *SubGroupPolicy `json:"subGroupPolicy,omitempty"`

	// volumeClaimTemplates are the claims every pod of the set gets one of each
	// of. They cannot be changed.
	// +optional
	VolumeClaimTemplates []corev1.PersistentVolumeClaim `json:"volumeClaimTemplates,omitempty"`

	// persistentVolumeClaimRetentionPolicy says what becomes of those claims when
	// the set is deleted or scaled down.
	// +optional
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
type SubGroupPolicy struct {
	// subGroupPolicyType says whether the leader belongs to a subgroup.
	// +optional
	// +kubebuilder:default=LeaderWorker
	Type *SubGroupPolicyType `json:"subGroupPolicyType,omitempty"`

	// subGroupSize is the number of pods of a subgroup. It must divide size or
	// size-1, and can never be changed.
	// +optional
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
