package controller

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// tellFinding has the set look at what its group found: a failure is written down
// by the set before the group acts on it. A group that is ready tells by its
// StatefulSets.
func (r *groupReconciler) tellFinding(set *lwsv1.LeaderWorkerSet, plan lws.Plan) {
	news := r.memory.Found(plan.Finding)
	if f := plan.Finding; f != nil && (f.Failure != nil || news && !f.Ready) {
		r.wakeSet(set)
	}
}

// wakeFailed has groups looked at of which a status tells for the first time that
// they failed.
func (p *pass) wakeFailed(owner client.Object, status lwsv1.LeaderWorkerSetStatus) {
	set, ok := owner.(*lwsv1.LeaderWorkerSet)
	if !ok {
		return
	}
	for _, r := range status.Restarts {
		if lws.Failed(set, int(r.Index), r.Leader) == nil {
			p.wakeGroup(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: identity.LeaderName(set.Name, int(r.Index))}})
		}
	}
}
