package group

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// input is what the rules of a group read: the snapshot, and what restore derived from it.
type input struct {
	*lws.GroupSnapshot
	// restored is the set at the leader's revision, once known.
	restored *lwsv1.LeaderWorkerSet
}

// restore restores the set as it was when the leader was created: workers have their leader's revision.
func restore(g *input) (p lws.Plan, next bool) {
	if g.restored != nil {
		return p, true
	}
	restored, err := revision.RestoredAt(g.Set, g.Revisions, g.Leader.Labels[lwsv1.RevisionKey])
	if err != nil {
		p.Wait(lws.Wait{Reason: lws.Because(lws.CodeRevisionNotVisible, fmt.Sprintf("leader %s waits for its revision: %v", g.Leader.Name, err))})
		return p, false
	}
	g.restored = restored
	return p, true
}

// scaledAway reports whether the leader StatefulSet is to have no such group. Of groups with keys the set decides
// which of them go.
func (g *input) scaledAway() bool {
	return !g.HasKey && int32(g.Index) >= workload.PodsOf(g.LeaderSet)
}

// rolled reports whether the leader StatefulSet replaces a leader by one of its own revision.
func (g *input) rolled(leader *corev1.Pod) bool {
	if g.HasKey {
		return g.Deployment != nil && leader.Labels[lwsv1.RevisionKey] != lws.OwnerOf(nil, g.Deployment).Key()
	}
	if leader.Labels[lwsv1.RevisionKey] == lws.OwnerOf(g.LeaderSet, nil).Key() {
		return restart.IsReplaced(g.Set, g.Index, leader) // the template changed back meanwhile
	}
	return int32(g.Index) >= lws.LivePartition(g.LeaderSet)
}

// pods is the group of a leader as package restart reads it.
func (g *input) pods(leader *corev1.Pod) restart.Group {
	return restart.Group{Set: g.Set, Index: g.Index, Leader: leader, Workers: g.Workers, Pods: g.Pods}
}
