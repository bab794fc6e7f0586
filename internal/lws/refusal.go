package lws

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// RetryRefusedAfter is how long a refused spec is left alone: what refused it
// may be a policy that somebody lifts.
const RetryRefusedAfter = 5 * time.Minute

// sentenceLimit bounds what is quoted of others in a message: an error may quote
// a whole object, and a status that is too large cannot be written.
const sentenceLimit = 1024

// Refusal is what the API server said of a write that the present spec led to.
// The zero value means that nothing was refused.
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
	d.refusal = fmt.Sprintf("the API server refuses what the spec asks for: %s; change the spec, or what refuses it", clipped(d.Refusal.Sentence))
	d.plan.wait(Wait{Reason: because(CodeRefused, d.refusal), Until: again})
}

func (d *setDecision) refusedCondition() metav1.Condition {
	return holding(lwsv1.LeaderWorkerSetProgressing, CodeRefused, d.refusal)
}

// clipped is a sentence within the limit, cut between characters.
func clipped(sentence string) string {
	if len(sentence) <= sentenceLimit {
		return sentence
	}
	return strings.ToValidUTF8(sentence[:sentenceLimit], "") + "…"
}
