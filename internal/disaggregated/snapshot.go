package disaggregated

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// Snapshot is a set as it was read, with all that bears its name. No decision changes what it points to.
type Snapshot struct {
	Set *dsv1.DisaggregatedSet
	Now time.Time
	// Children, Scalers, Services and Records bear the label of the set, or a name that it needs. None is adopted.
	Children identity.Claim[*lwsv1.LeaderWorkerSet]
	Scalers  identity.Claim[*dsv1.DisaggregatedSetRoleScaler]
	Services identity.Claim[*corev1.Service]
	Records  identity.Claim[*appsv1.ControllerRevision]
	// Pods bear the label of the set.
	Pods []*corev1.Pod
	// Beyond is what the set has that this version lacks: fields and values.
	Beyond []string
	// Refused is what the API server refused in the last pass.
	Refused []action.Refusal
}
