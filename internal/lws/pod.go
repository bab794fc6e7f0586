package lws

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// CodeReleased is the reason to let a pod go that was kept as evidence.
const CodeReleased = "Released"

// ungate lets a leader be scheduled once no pod of a previous incarnation has a name of its group, also above its size.
func (d *groupDecision) ungate() bool {
	if d.HasKey || !workload.IsGated(d.Leader) { // the set lifts the gate of a leader with a key
		return true
	}
	if left := bearersOf(identity.KindPod, d.Pods.Previous); len(left) > 0 {
		d.plan.wait(goneWait(d.Set, fmt.Sprintf("leader %s is scheduled once these are gone: ", d.Leader.Name), left, time.Time{}))
		return false
	}
	d.plan.do(action.Ungate{
		Pod:     identity.RefOf(identity.KindPod, d.Leader),
		Gate:    lwsv1.GroupReplacementGate,
		Because: because(CodePreviousGone, fmt.Sprintf("leader %s has the gate %s, and no pod of the group before it is left", d.Leader.Name, lwsv1.GroupReplacementGate)),
	})
	return true // no event need follow: a scheduler may wait for the PodGroup of the leader
}

// Release lets retained pods of a group end, workers before their leader: the StatefulSet creates
// another leader at once. What a cause relies on is read live.
func Release(retained []*corev1.Pod, leaderName, why string, relies ...action.Standing) (p Plan) {
	for _, pod := range retained {
		if pod.Name == leaderName && len(retained) > 1 {
			continue
		}
		p.do(action.SetFinalizers{
			Object: identity.RefOf(identity.KindPod, pod),
			Finalizers: slices.DeleteFunc(slices.Clone(pod.Finalizers), func(f string) bool {
				return f == lwsv1.GroupRestartBudgetFinalizer
			}),
			Relies:  relies,
			Because: because(CodeReleased, fmt.Sprintf("pod %s of a group that exhausted maxGroupRestarts may go: %s", pod.Name, why)),
		})
	}
	return p
}
