package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// StartedGroup is what one group was made of when all of its pods ran for the
// first time.
type StartedGroup struct {
	// index is that of the group. A group with a key has the number of the first seven
	// digits of the key.
	Index int32 `json:"index"`

	// leader is the UID of the leader pod. Under another leader the group is
	// another one.
	Leader types.UID `json:"leader"`

	// pods tells, in a form of its own, the pods and how often their containers had
	// been restarted.
	Pods string `json:"pods"`

	// counted is set while another leader is no failure of the group: its failure is
	// counted, or a rollout replaces the leader.
	// +optional
	Counted bool `json:"counted,omitempty"`
}

// GroupRestarts is what is known of the failures of one group.
type GroupRestarts struct {
	// index is that of the group. A group with a key has the number of the first seven
	// digits of the key.
	Index int32 `json:"index"`

	// leader is the UID of the leader pod that the group had when it failed last.
	Leader types.UID `json:"leader"`

	// revision is the key of the revision that leader ran.
	// +optional
	Revision string `json:"revision,omitempty"`

	// count is the number of failures in a row at that revision, the last one included.
	Count int32 `json:"count"`

	// recreations is how often the group was recreated at that revision while
	// maxGroupRestarts was set. It is absent as long as nothing was counted.
	// +optional
	Recreations *int32 `json:"recreations,omitempty"`

	// failedAt is when the group was last found to have failed.
	FailedAt metav1.Time `json:"failedAt"`

	// dueAt is from when on it is recreated for that.
	DueAt metav1.Time `json:"dueAt"`

	// heldUntil is until when no pod of the group is scheduled, because one was evicted or ended without
	// evidence: drains may retry it by its name. It is set only where evictions of the set are limited.
	// +optional
	HeldUntil *metav1.Time `json:"heldUntil,omitempty"`

	// wholeAt is when all pods of the group that came after ran; absent until then.
	// +optional
	WholeAt *metav1.Time `json:"wholeAt,omitempty"`

	// failures are the last ones, the latest last.
	// +optional
	// +listType=atomic
	Failures []PodFailure `json:"failures,omitempty"`

	// containers are those that failed with the group when it failed last, the first to end
	// first.
	// +optional
	// +listType=atomic
	Containers []ContainerFailure `json:"containers,omitempty"`
}

// ContainerFailure is what a container left when it failed.
type ContainerFailure struct {
	// pod is the name of its pod.
	Pod string `json:"pod"`

	// name is that of the container.
	Name string `json:"name"`

	// exitCode is that of the container.
	ExitCode int32 `json:"exitCode"`

	// reason is a word for what happened, such as OOMKilled or Error.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message is the end of its termination message.
	// +optional
	Message string `json:"message,omitempty"`

	// log is the end of its log. It is kept only if the operator runs with --crash-log-lines.
	// +optional
	Log string `json:"log,omitempty"`

	// logUnread is why there is no log although one is to be kept.
	// +optional
	LogUnread string `json:"logUnread,omitempty"`

	// at is when it ended, or was found.
	At metav1.Time `json:"at"`
}

// PodFailure is what was seen of a pod for whose sake a group is recreated.
type PodFailure struct {
	// pod is its name.
	Pod string `json:"pod"`

	// container is the one that ended; absent when the pod as a whole did.
	// +optional
	Container string `json:"container,omitempty"`

	// exitCode is that of the container.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`

	// reason is a word for what happened, such as OOMKilled, Evicted or PodGone.
	Reason string `json:"reason"`

	// message is the end of what the container, or the kubelet, left to say.
	// +optional
	Message string `json:"message,omitempty"`

	// node is where the pod ran, where that is known.
	// +optional
	Node string `json:"node,omitempty"`

	// at is when it happened, or was found.
	At metav1.Time `json:"at"`
}
