package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LeaderWorkerSetStatus is what was found of a set.
type LeaderWorkerSetStatus struct {
	// conditions say in which state the set is.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// readyReplicas is the number of groups all of whose pods are ready, surge
	// groups included.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// updatedReplicas is the number of groups made from the template in the spec,
	// surge groups included. While the rollout is paused and that template waits,
	// there are none.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas,omitempty"`

	// replicas is the number of groups that exist, surge groups included.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// hpaPodSelector selects the leaders, for a HorizontalPodAutoscaler that
	// reads the scale subresource.
	// +optional
	HPAPodSelector string `json:"hpaPodSelector,omitempty"`

	// observedGeneration is the generation of the set this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// started says of each group what it was made of when all of its pods ran for
	// the first time, by rising index. A pod that is missing since, or was
	// restarted since, failed.
	// +optional
	// +listType=atomic
	Started []StartedGroup `json:"started,omitempty"`

	// restarts says of each group that failed how often, why, and when it was or
	// will be recreated, by rising index.
	// +optional
	// +listType=atomic
	Restarts []GroupRestarts `json:"restarts,omitempty"`

	// groupRestarts is the sum of the counts in restarts.
	// +optional
	GroupRestarts int32 `json:"groupRestarts,omitempty"`

	// restartsSince is since when failures are watched for. Groups from before are
	// taken as they were found. Absent while the restart policy is None.
	// +optional
	RestartsSince *metav1.Time `json:"restartsSince,omitempty"`
}

// LeaderWorkerSetConditionType is the type of a condition of a set.
type LeaderWorkerSetConditionType string

const (
	// LeaderWorkerSetAvailable says that every group is ready and up to date.
	LeaderWorkerSetAvailable LeaderWorkerSetConditionType = "Available"

	// LeaderWorkerSetProgressing says that groups are being created or are not ready yet.
	LeaderWorkerSetProgressing LeaderWorkerSetConditionType = "Progressing"

	// LeaderWorkerSetUpdateInProgress says that groups are being brought
	// to the current template.
	LeaderWorkerSetUpdateInProgress LeaderWorkerSetConditionType = "UpdateInProgress"

	// LeaderWorkerSetDegraded says that a group exhausted maxGroupRestarts and is not
	// recreated. It is present where that field is set, or once was exhausted.
	LeaderWorkerSetDegraded LeaderWorkerSetConditionType = "Degraded"

	// LeaderWorkerSetWorkloadSchedulingCreated says whether the Workload and the PodGroups
	// of a set with spec.scheduling exist. It does not say that pods are placed.
	LeaderWorkerSetWorkloadSchedulingCreated LeaderWorkerSetConditionType = "WorkloadSchedulingCreated"

	// LeaderWorkerSetReady is True while the set is Available, and otherwise False
	// with what the set waits for. It is always present.
	LeaderWorkerSetReady LeaderWorkerSetConditionType = "Ready"

	// LeaderWorkerSetReconciling is True while the set is not ready and controllers
	// work on it. It is absent otherwise.
	LeaderWorkerSetReconciling LeaderWorkerSetConditionType = "Reconciling"

	// LeaderWorkerSetStalled is True while the set is not ready and waits for
	// what only a person can change. It is absent otherwise.
	LeaderWorkerSetStalled LeaderWorkerSetConditionType = "Stalled"
)
