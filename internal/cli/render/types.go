package render

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// APIVersion is the version of all JSON that this package prints. Fields are added to it.
const APIVersion = "cli.lockstep.dev/v1"

const (
	kindStatus   = "SetStatus"
	kindPlan     = "SetPlan"
	kindPlanList = "SetPlanList"
	kindHistory  = "SetHistory"
	kindRevision = "SetRevision"
)

// Wait is a state that the set, or a group, waits for.
type Wait struct {
	// Reason is a stable code.
	Reason string `json:"reason"`
	// Message is a sentence for people.
	Message string `json:"message"`
	// Since is when the condition with this reason became true.
	Since *metav1.Time `json:"since,omitempty"`
	// Until is when the operator reconciles again without an event; absent when it waits for an event.
	Until *metav1.Time `json:"until,omitempty"`
}

func kind(k string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: APIVersion, Kind: k} }
