// Package consequence says what a change of a workload does before it is made: what restarts, is deleted or has no room.
//
// It folds what the operator decides from: the survey of a workload as it is stored, and as it would be. It reads no
// cluster, and simulates no controller. Another kind of workload fills the same values.
package consequence

import (
	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/cli/diff"
	"lockstep.dev/lockstep/internal/cli/render"
)

// Consequence is what a change does until its rollout ends, if no user changes the workload meanwhile.
type Consequence struct {
	// Verdict is the first sentence for people.
	Verdict string `json:"verdict"`
	// Changes are the fields that differ between the stored object and the one that would be stored.
	Changes []Change `json:"changes,omitempty"`
	// Rest is how many groups there are in the end.
	Rest int `json:"groups"`
	// Replaced are the groups that restart. If Ordered, they restart in the order of their names.
	Replaced Groups `json:"replaced,omitzero"`
	Ordered  bool   `json:"ordered,omitempty"`
	// Kept are groups that the partition keeps at another revision.
	Kept    Groups `json:"kept,omitzero"`
	Created Groups `json:"created,omitzero"`
	Deleted Groups `json:"deleted,omitzero"`
	// Surge are groups that are created beyond replicas. Most end with the rollout.
	Surge Groups `json:"surge,omitzero"`
	// Down is how much less than what is wanted, and ran before, is ready at any moment; absent if nothing is replaced.
	Down *Amount `json:"down,omitempty"`
	// Peak is what exists at most, and More what it has beyond what exists now; absent if nothing starts.
	Peak *Amount `json:"peak,omitempty"`
	More *Amount `json:"more,omitempty"`
	// Free is what nodes have on which the pods may run, and Missing says why that is unknown.
	Free    *Amount `json:"free,omitempty"`
	Missing string  `json:"missing,omitempty"`
	// ClaimsReused are PVCs that exist, and that groups which are created use again.
	ClaimsCreated []string `json:"claimsCreated,omitempty"`
	ClaimsReused  []string `json:"claimsReused,omitempty"`
	ClaimsStay    []string `json:"claimsStay,omitempty"`
	ClaimsDeleted []string `json:"claimsDeleted,omitempty"`
	// Revision is the number of the revision that groups are rolled to, and RevisionWas its former one if it is used again.
	Revision    int64 `json:"revision,omitempty"`
	RevisionWas int64 `json:"revisionWas,omitempty"`
	// Waits may last for ever.
	Waits []render.Wait `json:"waits,omitempty"`
	// Steps is how many times one group after another starts, and StepSeconds how long that took last; absent if unknown.
	Steps       int   `json:"steps,omitempty"`
	StepSeconds int64 `json:"stepSeconds,omitempty"`
	// starts are the pods that may start, and needs what they request beyond what is requested now.
	starts []*corev1.Pod
	needs  corev1.ResourceList
}

// Change is one field that differs. Hidden reports whether its values are left out: they may be confidential.
type Change struct {
	diff.Change `json:",inline"`
	Hidden      bool `json:"hidden,omitempty"`
}

// Groups are groups of a workload, by the names of their leaders. No names are known if another controller chooses them.
type Groups struct {
	Count int      `json:"count"`
	Names []string `json:"names,omitempty"`
}

// Amount is how much of a workload there is, or what nodes have.
type Amount struct {
	Groups       int                 `json:"groups,omitempty"`
	Nodes        int                 `json:"nodes,omitempty"`
	Pods         int64               `json:"pods"`
	Accelerators corev1.ResourceList `json:"accelerators,omitempty"`
}
