package lws

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// settleAfterStart is how long after the start of the process StatefulSets that
// lack pods are left to themselves, so that admission is up when they are woken.
const settleAfterStart = 2 * time.Second

// nudge wakes the StatefulSet controller when a leader's name has become free.
// It retries a name that was taken with a back-off of up to 1,000 s, and the
// departure of a pod that is not its own does not wake it; any change of the
// StatefulSet does.
func (d *setDecision) nudge() {
	sts := d.StatefulSet.Member()
	if sts == nil || !d.settled() || !lacksPods(sts) {
		return
	}
	d.plan.wait(Wait{
		Reason: because(CodeMissing, fmt.Sprintf("statefulset %s has %d of %d leaders", sts.Name, sts.Status.Replicas, orDefault(sts.Spec.Replicas, 1))),
		Until:  d.Now.Add(conflictLook),
	})
	if d.Vigil.DepartedAt.After(sts.CreationTimestamp.Add(time.Second)) {
		d.plan.nudge(sts, string(d.Vigil.Departed.UID), fmt.Sprintf("%s has left and its name is free", d.Vigil.Departed))
		return
	}
	if len(d.blockedOrdinals()) == 0 {
		d.plan.nudgeAfterStart(sts, d.Now, d.Vigil)
	}
}

// nudgeAfterStart wakes the StatefulSet controller once if it lacked pods while
// this process was away: their creation may have been refused for want of the
// admission that the process serves.
func (p *Plan) nudgeAfterStart(sts *appsv1.StatefulSet, now time.Time, vigil Vigil) {
	if !sts.CreationTimestamp.Time.Before(vigil.Awake) || !lacksPods(sts) {
		return
	}
	due := vigil.Awake.Add(settleAfterStart)
	if now.Before(due) {
		p.wait(Wait{Reason: because(CodeNudge, fmt.Sprintf("statefulset %s lacks pods", sts.Name)), Until: due})
		return
	}
	if now.Before(due.Add(time.Minute)) {
		p.nudge(sts, vigil.Awake.UTC().Format(time.RFC3339Nano), fmt.Sprintf("statefulset %s lacks pods since before this process started", sts.Name))
	}
}

// nudge changes an annotation to token, once for each token.
func (p *Plan) nudge(sts *appsv1.StatefulSet, token, why string) {
	if sts.Annotations[NudgeAnnotationKey] == token {
		return
	}
	p.do(action.Apply{
		Object:     &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{NudgeAnnotationKey: token}}},
		Onto:       identity.RefOf(identity.KindStatefulSet, sts),
		FieldOwner: nudgeFieldOwner,
		Because:    because(CodeNudge, why),
	})
}

func lacksPods(sts *appsv1.StatefulSet) bool {
	return sts.Status.Replicas < orDefault(sts.Spec.Replicas, 1)
}
