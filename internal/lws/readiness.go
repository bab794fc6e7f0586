package lws

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// name is what people call the group.
func (g *Group) name() string {
	if g.HasKey {
		return identity.IndexText(g.Index)
	}
	return strconv.Itoa(g.Index)
}

// nameOf is the same of the group of a leader.
func nameOf(leader *corev1.Pod) string {
	g := Group{Index: workload.IndexOf(leader), HasKey: workload.IsHashLeader(leader)}
	return g.name()
}

// HasOwnSubdomain reports whether the group has a Service of its own: by the spec, or by its leader.
func (g *Group) HasOwnSubdomain(set *lwsv1.LeaderWorkerSet) bool {
	if g.Leader != nil && workload.IsHashLeader(g.Leader) {
		return workload.HasOwnService(g.Leader)
	}
	return workload.Subdomain(set) == lwsv1.SubdomainUniquePerReplica ||
		g.Leader != nil && workload.HasOwnService(g.Leader)
}

// complete reports whether the group has its leader and its worker StatefulSet.
func (g *Group) complete(set *lwsv1.LeaderWorkerSet) bool {
	return g.Leader != nil && (workload.SizeOf(g.Leader, set) == 1 || g.Workers.Own() != nil)
}

// Ready reports whether every pod of the group is ready. A group that is to be recreated, or stopped, is not.
func (g *Group) Ready(set *lwsv1.LeaderWorkerSet) bool {
	if len(g.Misspelt) > 0 || !g.complete(set) || !PodReady(g.Leader) || restart.Of(set, g.Leader) != nil || IsExhausted(g.Leader) {
		return false
	}
	workers := g.Workers.Own()
	return workers == nil || WorkersReady(workers)
}

// UpToDate reports whether all parts of the group are at the revision key.
func (g *Group) UpToDate(key string) bool {
	if key == "" || g.Leader == nil || g.Leader.Labels[lwsv1.RevisionKey] != key {
		return false
	}
	workers := g.Workers.Own()
	return workers == nil || workers.Labels[lwsv1.RevisionKey] == key || workers.Spec.Template.Labels[lwsv1.RevisionKey] == key
}

// PodReady reports whether a pod runs and is ready.
func PodReady(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			return pod.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}

// WorkersReady judges by the StatefulSet's status, of whatever generation: the template
// of worker StatefulSets never changes.
func WorkersReady(sts *appsv1.StatefulSet) bool {
	return workload.PodsOf(sts) == sts.Status.AvailableReplicas &&
		sts.Status.CurrentRevision == sts.Status.UpdateRevision
}

func one(yes bool) int32 {
	if yes {
		return 1
	}
	return 0
}
