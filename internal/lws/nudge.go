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
func (d *setDecision) nudge() (p Plan) {
	sts := d.StatefulSet.Member()
	if sts == nil || !LacksPods(sts) {
		return p
	}
	p.wait(Wait{
		Reason: because(CodeMissing, fmt.Sprintf("statefulset %s has %d of %d leaders", sts.Name, sts.Status.Replicas, orDefault(sts.Spec.Replicas, 1))),
		Until:  d.Now.Add(conflictLook),
	})
	p.nudgeWhenFree(sts, d.Now, d.Vigil)
	return p
}

// nudgeWhenFree wakes the StatefulSet controller when somebody who bore the name
// of one of its pods has left. It retries a name that was taken with a back-off
// of up to 1,000 s, and the departure of a pod that is not its own does not wake
// it; any change of the StatefulSet does.
func (p *Plan) nudgeWhenFree(sts *appsv1.StatefulSet, now time.Time, vigil Vigil) {
	if vigil.Departed.UID != "" {
		p.nudge(sts, string(vigil.Departed.UID), fmt.Sprintf("%s has left and its name is free", vigil.Departed))
		return
	}
	if len(vigil.Seen) == 0 {
		p.nudgeAfterStart(sts, now, vigil)
	}
}

// nudgeAfterStart wakes the StatefulSet controller once if it lacked pods while
// this process was away or another led: who bore their names may have left unseen, or
// their creation may have been refused for want of the admission that the process serves.
func (p *Plan) nudgeAfterStart(sts *appsv1.StatefulSet, now time.Time, vigil Vigil) {
	if sts.CreationTimestamp.After(vigil.Awake) {
		return
	}
	due := vigil.Awake.Add(settleAfterStart)
	if now.Before(due) {
		p.wait(Wait{Reason: because(CodeNudge, fmt.Sprintf("statefulset %s lacks pods", sts.Name)), Until: due})
		return
	}
	if now.Before(due.Add(time.Minute)) {
		p.nudge(sts, vigil.Awake.UTC().Format(time.RFC3339Nano), fmt.Sprintf("statefulset %s lacks pods since before this process began to look", sts.Name))
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

// LacksPods tells whether a StatefulSet has fewer pods than it is to have.
func LacksPods(sts *appsv1.StatefulSet) bool { return sts.Status.Replicas < PodsOf(sts) }

// mostPods is twice as many groups as a set may have: with surge, none has more.
const mostPods = 2_000_000

// PodsOf is how many pods a StatefulSet is to have. Who scales one by hand may ask for
// more than there is memory for to think of; it is scaled back all the same.
func PodsOf(sts *appsv1.StatefulSet) int32 { return min(orDefault(sts.Spec.Replicas, 1), mostPods) }
