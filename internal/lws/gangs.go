package lws

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/identity"
)

const (
	// gangLook is how often a gang scheduler that is missing is looked for.
	gangLook = 10 * time.Second

	gangSchedulerFound = "the gang scheduler of this set is there"
)

// gangs tells that the scheduler which is to place groups whole is not there.
// Nothing else waits for it.
func (d *setDecision) gangs() (p Plan) {
	if d.GangMissing != "" {
		p.wait(Wait{Reason: because(CodeGangSchedulerMissing, d.GangMissing), Until: d.Now.Add(gangLook)})
	}
	return p
}

// gangConditions says that the gang scheduler is missing, and that it is no more.
func (d *setDecision) gangConditions() []metav1.Condition {
	return d.toldWhile(CodeGangSchedulerMissing, CodeGangSchedulerMissing, d.GangMissing, "GangSchedulerFound", gangSchedulerFound)
}

// toldWhile returns a condition that is True while says has a message. It becomes False once
// when that is over. A set that never had the condition has none.
func (d *setDecision) toldWhile(kind, reason, says, overReason, over string) []metav1.Condition {
	if says != "" {
		return []metav1.Condition{holding(kind, reason, says)}
	}
	if !condition.IsTrue(d.Set.Status.Conditions, kind) {
		return nil
	}
	ended := holding(kind, overReason, over)
	ended.Status = metav1.ConditionFalse
	return []metav1.Condition{ended}
}

// gangEvents tells of a scheduler that is missing once, and once that it came.
func (d *setDecision) gangEvents() []action.Event {
	told := condition.IsTrue(d.Set.Status.Conditions, CodeGangSchedulerMissing)
	switch {
	case d.GangMissing != "" && !told:
		return []action.Event{{Warning: true, Reason: CodeGangSchedulerMissing, Action: "Wait", Note: d.GangMissing}}
	case d.GangMissing == "" && told:
		return []action.Event{{Reason: "GangSchedulerFound", Action: "Wait", Note: gangSchedulerFound}}
	}
	return nil
}

// previousGangs returns what schedulers know groups of earlier leaders by. It holds
// back its own group's successor alone, but then that is placed pod by pod.
func (d *setDecision) previousGangs() []previous {
	var found []previous
	for i := range d.Groups {
		found = append(found, previousOf(identity.KindPodGroup, d.Groups[i].Gang.Previous)...)
	}
	return found
}

func (g Group) gangConflicts() []string {
	var found []string
	for _, object := range g.Gang.Foreign {
		found = append(found, taken(identity.KindPodGroup, object, fmt.Sprintf("group %d is not scheduled as a gang", g.Index)))
	}
	return found
}
