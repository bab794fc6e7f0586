package workload

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

const (
	// DisruptionBudgetAnnotationKey on a set says what limits evictions of its pods: DisruptionByGroup, which lets one
	// group be evicted at a time, or UnlimitedDisruption.
	DisruptionBudgetAnnotationKey = "lockstep.dev/disruption-budget"
	DisruptionByGroup             = "groups"
	UnlimitedDisruption           = "none"
	// ManagedByLabelKey has ManagedByValue on each PodDisruptionBudget that is made for a set.
	ManagedByLabelKey = "app.kubernetes.io/managed-by"
	ManagedByValue    = "lockstep"
)

// LimitsEvictions reports whether a set asks for a PodDisruptionBudget. byDefault holds for a set without an annotation
// that admission allows.
func LimitsEvictions(set *lwsv1.LeaderWorkerSet, byDefault bool) bool {
	value := set.Annotations[DisruptionBudgetAnnotationKey]
	return value == DisruptionByGroup || byDefault && value != UnlimitedDisruption
}

// BudgetName is the name of the PodDisruptionBudget of a set. The name of a set has no dot, so no other set makes it.
func BudgetName(set *lwsv1.LeaderWorkerSet) string { return set.Name + ".groups" }

// DisruptionBudget is the PodDisruptionBudget over all pods of a set. Pods that are not ready may always be evicted:
// their group is down already.
func DisruptionBudget(set *lwsv1.LeaderWorkerSet, minAvailable int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: BudgetName(set), OwnerReferences: OwnedBySet(set),
			Labels: map[string]string{lwsv1.SetNameLabelKey: set.Name, ManagedByLabelKey: ManagedByValue},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable:               new(intstr.FromInt32(minAvailable)),
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
			Selector:                   &metav1.LabelSelector{MatchLabels: map[string]string{lwsv1.SetNameLabelKey: set.Name}},
		},
	}
}

// Evictions says what limits evictions of a set's pods.
type Evictions struct {
	// IsAsked is set if the set asks for a PodDisruptionBudget.
	IsAsked bool
	// Budget holds what has the name of that budget.
	Budget identity.Claim[*policyv1.PodDisruptionBudget]
	// Others are the names of other budgets that select a pod of the set.
	Others []string
	// Living counts the pods with the label of the set that are not terminating, by the name of their leader.
	Living map[string]int32
	// Missing says why budgets cannot be read, or is empty.
	Missing string
}

// Blocked begins what an Allowance says while evictions wait, and not where they are not limited.
const Blocked = "blocked: "

// Allowance is how many groups of a set may be evicted now.
type Allowance struct {
	// Budget is the name of its PodDisruptionBudget.
	Budget string `json:"budget"`
	// Allowed is 0 or 1, and Why says so, or what keeps evictions from it.
	Allowed int32  `json:"allowed"`
	Why     string `json:"why"`
}
