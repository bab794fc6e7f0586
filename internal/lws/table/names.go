package table

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// conflicts names the foreign objects under names that the set needs. They are never written. One
// under the name of the leader StatefulSet holds back everything, any other its own part.
func conflicts(t *Table) string {
	found := lws.ObjectsOf(identity.KindStatefulSet, t.StatefulSet.Foreign)
	found = append(found, lws.ObjectsOf(identity.KindDeployment, t.Deployment.Foreign)...)
	found = append(found, lws.ObjectsOf(identity.KindPod, t.Misspelt)...)
	found = append(found, t.Maker.Needed(lws.ObjectsOf(identity.KindPod, t.Leaders.Foreign))...)
	if t.WantsShared() {
		found = append(found, lws.ObjectsOf(identity.KindService, t.Service.Foreign)...)
	}
	found = append(found, lws.ObjectsOf(identity.KindWorkload, t.Workload.Foreign)...)
	found = append(found, lws.ObjectsOf(identity.KindPodGroup, t.PodGroup.Foreign)...)
	for _, r := range t.Rows {
		found = append(found, r.Conflicts(t.Set)...)
	}
	return lws.ConflictMessage(append(found, t.Maker.LeftBehind()...))
}

// WantsShared reports whether pods of the set hang from the Shared Service.
func (t *Table) WantsShared() bool { return workload.Subdomain(t.Set) == lwsv1.SubdomainShared }

// unresolvedLeaders returns why workers cannot resolve the name of their leader, and what to do, or nothing. A group
// of one has no worker, so it needs no Service.
func unresolvedLeaders(t *Table) action.Reason {
	for i := range t.Rows {
		g, found := &t.Rows[i], t.Service
		if g.Size < 2 {
			continue
		}
		if g.HasOwnSubdomain(t.Set) {
			found = g.Service
		}
		own := cmp.Or(found.Own(), found.Orphan())
		refused := func(r lws.Refused) bool { return r.Index == identity.NoOrdinal || r.Index == g.Index }
		switch {
		case own != nil && lws.NotHeadless(own) != "":
			return lws.Because(lws.CodeNotHeadless, lws.NotHeadless(own))
		case len(found.Foreign) > 0 && !t.publishes(found.Foreign[0], g.Leader):
			return lws.Because(lws.CodeNameConflict, "workers cannot resolve their leaders: "+lws.ConflictMessage(lws.ObjectsOf(identity.KindService, found.Foreign)))
		case found.Empty() && slices.ContainsFunc(t.Refused, refused):
			return lws.Because(lws.CodeRefused, t.Hindrance)
		}
	}
	return action.Reason{}
}

// publishes reports whether a Service of another owner makes the name of a leader known. Memory keeps no labels of users
// on pods: the template has them.
func (t *Table) publishes(service *corev1.Service, leader *corev1.Pod) bool {
	return service.Spec.ClusterIP == corev1.ClusterIPNone && len(service.Spec.Selector) > 0 &&
		labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Merge(workload.WrittenForLeaders(t.Set).Labels, leader.Labels))
}
