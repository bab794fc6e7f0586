package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// APIVersion is the version of everything in this package that is printed for
// programs. Within it fields are added, and never renamed or removed.
const APIVersion = "cli.lockstep.dev/v1"

// Kinds of what is printed.
const (
	kindStatus   = "SetStatus"
	kindPlan     = "SetPlan"
	kindPlanList = "SetPlanList"
	kindHistory  = "SetHistory"
	kindRevision = "SetRevision"
)

// Wait is something that is waited for.
type Wait struct {
	// Reason is a stable code.
	Reason string `json:"reason"`
	// Message is a sentence for people.
	Message string `json:"message"`
	// Since is when the waiting began, where the cluster tells.
	Since *metav1.Time `json:"since,omitempty"`
	// Until is when the operator reconciles again without an event; absent when
	// an event will come.
	Until *metav1.Time `json:"until,omitempty"`
}

// Ghost is an object on its way out, or left behind by a life that is over. It
// bears a name of the set and is never counted.
type Ghost struct {
	Kind string    `json:"kind"`
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// DeletedAt is when it was deleted; absent before.
	DeletedAt *metav1.Time `json:"deletedAt,omitempty"`
	// Node is where it runs, for a pod.
	Node string `json:"node,omitempty"`
	// Finalizers are what holds it.
	Finalizers []string `json:"finalizers,omitempty"`
}

// SetStatus is what "status -o json" prints.
type SetStatus struct {
	metav1.TypeMeta `json:",inline"`

	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	UID        types.UID   `json:"uid"`
	Generation int64       `json:"generation"`
	CreatedAt  metav1.Time `json:"createdAt"`
	// DeletedAt is when the set was deleted; absent before.
	DeletedAt *metav1.Time `json:"deletedAt,omitempty"`

	// Desired is the wanted number of groups, and Size that of pods in a group.
	Desired int32 `json:"desired"`
	Size    int32 `json:"size"`
	// Ready and UpToDate count groups, surge groups included. They are counted
	// from what is there now; status.readyReplicas may lag behind.
	Ready    int32 `json:"ready"`
	UpToDate int32 `json:"upToDate"`
	// Revision is the key that groups should be at; absent while unknown.
	Revision string `json:"revision,omitempty"`
	// Paused reports whether the user holds the set's rollout.
	Paused bool `json:"paused,omitempty"`

	// Conditions are those in the set's status.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Waiting is what the set as a whole waits for.
	Waiting []Wait `json:"waiting,omitempty"`
	// Due is the number of writes that the operator has yet to make. It is above
	// zero for a moment after each change, and for long only if no operator runs.
	Due int `json:"due"`
	// Groups are ordered by rising index: all that are wanted, and all of which
	// anything is left.
	Groups []GroupStatus `json:"groups"`
	// GroupsOmitted is the number of wanted groups left out because there are more
	// than 10,000 of which nothing exists.
	GroupsOmitted int `json:"groupsOmitted,omitempty"`
	// Ghosts are those that belong to no single group.
	Ghosts []Ghost `json:"ghosts,omitempty"`
}

// GroupStatus is one group of a SetStatus.
type GroupStatus struct {
	Index int `json:"index"`
	// Leader is the name that the leader has or would have.
	Leader string `json:"leader"`
	// Wanted reports whether the index is below the wanted number of groups.
	Wanted bool `json:"wanted"`
	// Exists reports whether the group has a leader.
	Exists bool `json:"exists"`
	Ready  bool `json:"ready"`
	// ReadyPods of Pods are ready, the leader included; ghosts are in neither.
	ReadyPods int32 `json:"readyPods"`
	Pods      int32 `json:"pods"`
	// Revision is the leader's key.
	Revision string `json:"revision,omitempty"`
	UpToDate bool   `json:"upToDate"`
	// Nodes are the distinct nodes of the group's pods, in alphabetical order.
	Nodes []string `json:"nodes,omitempty"`
	// CreatedAt is when the leader was created.
	CreatedAt *metav1.Time `json:"createdAt,omitempty"`
	// Restarts is the sum over all containers of the group's pods.
	Restarts int32 `json:"restarts"`
	// Waiting is what stands between the group and being ready.
	Waiting []Wait  `json:"waiting,omitempty"`
	Ghosts  []Ghost `json:"ghosts,omitempty"`
	// Failed is what is known of the group's failures; absent when it never failed.
	Failed *GroupFailure `json:"failed,omitempty"`
}

// GroupFailure is what is known of the failures of a group that is recreated for
// them.
type GroupFailure struct {
	// Count is the number of failures in a row, the last one included.
	Count int32 `json:"count"`
	// At is when the group was last found to have failed.
	At metav1.Time `json:"at"`
	// Due is from when on it is recreated, for a group that has not been yet.
	Due *metav1.Time `json:"due,omitempty"`
	// Pods are those that failed last, the latest last.
	Pods []lwsv1.PodFailure `json:"pods,omitempty"`
}

// SetPlan is what "plan -o json" prints for one set.
type SetPlan struct {
	metav1.TypeMeta `json:",inline"`

	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
	// File is where the spec came from; absent when it is the cluster's.
	File string `json:"file,omitempty"`
	// Exists reports whether the cluster has the set.
	Exists bool `json:"exists"`
	// InStep reports whether nothing is to be done and nothing is waited for.
	InStep bool `json:"inStep"`
	// Warnings are what admission would warn of.
	Warnings []string `json:"warnings,omitempty"`
	// Parts are the set first, then its groups by rising index; parts without
	// actions and waits are left out.
	Parts []Part `json:"parts,omitempty"`
}

// Part is what is decided about the set as such, or about one group.
type Part struct {
	// Group is the index of the group; absent for the set as such.
	Group *int `json:"group,omitempty"`
	// Actions are carried out in this order.
	Actions []Action `json:"actions,omitempty"`
	Waits   []Wait   `json:"waits,omitempty"`
}

// Action is one write.
type Action struct {
	// Verb is create, apply, delete or status.
	Verb   string `json:"verb"`
	Object Object `json:"object"`
	// Reason is a stable code, Message a sentence for people.
	Reason        string        `json:"reason"`
	Message       string        `json:"message"`
	Preconditions Preconditions `json:"preconditions"`
}

// Object names an object, and its incarnation where it has one.
type Object struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
}

// Preconditions are what must hold at the moment of a write, or nothing is
// written and the operator reconciles again.
type Preconditions struct {
	// Absent: nothing bears the name.
	Absent bool `json:"absent,omitempty"`
	// UID and ResourceVersion are the incarnation and version to be written.
	UID             types.UID `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// Alive is an owner that must exist under its UID and not be terminating.
	Alive *Object `json:"alive,omitempty"`
	// Gone is an owner that must not exist any more under its UID.
	Gone *Object `json:"gone,omitempty"`
}

// SetPlanList holds the plans for several sets of one file.
type SetPlanList struct {
	metav1.TypeMeta `json:",inline"`

	Items []SetPlan `json:"items"`
}

func kind(k string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: APIVersion, Kind: k} }

// A report is never changed once made: a copy may share everything.

// DeepCopyObject implements runtime.Object.
func (s *SetStatus) DeepCopyObject() runtime.Object { c := *s; return &c }

// DeepCopyObject implements runtime.Object.
func (p *SetPlan) DeepCopyObject() runtime.Object { c := *p; return &c }

// DeepCopyObject implements runtime.Object.
func (l *SetPlanList) DeepCopyObject() runtime.Object { c := *l; return &c }
