package lws

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// RetryRefusedAfter is how long a refused spec is left alone: what refused it
// may be a policy that somebody lifts.
const RetryRefusedAfter = 5 * time.Minute

// Refusal is what the API server said of a write that the present spec led to
// and that no retry can mend. The zero value means that nothing was refused.
type Refusal struct {
	Sentence string
	At       time.Time
}

// refused leaves a spec alone that the API server has refused, and says so.
// Another spec is tried at once.
func (d *setDecision) refused() {
	if d.Refusal.Sentence == "" {
		return
	}
	again := d.Refusal.At.Add(RetryRefusedAfter)
	if !d.Now.Before(again) {
		return
	}
	d.held = true
	d.refusal = fmt.Sprintf("the API server refuses what the spec asks for: %s; change the spec", d.Refusal.Sentence)
	d.plan.wait(Wait{Reason: because(CodeRefused, d.refusal), Until: again})
}

func (d *setDecision) refusedCondition() metav1.Condition {
	return holding(lwsv1.LeaderWorkerSetProgressing, CodeRefused, d.refusal)
}
