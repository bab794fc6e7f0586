package lws

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// groupCounts is what the groups of a set add up to. A group without its worker
// StatefulSet is not counted at all.
type groupCounts struct {
	// ready and updated include groups above replicas, as the API counts them.
	ready, updated int32
	// wantedReady is of the groups below replicas: a surge group does not replace a wanted one.
	wantedReady int32
	// current, currentUpdated and currentUpdatedReady are of the groups between
	// the partition and replicas.
	current, currentUpdated, currentUpdatedReady int32
}

func (d *setDecision) count() groupCounts {
	var c groupCounts
	replicas, partition, target := workload.Replicas(d.Set), workload.Partition(d.Set), d.targetKey()
	sts := d.StatefulSet.Own()
	displaced := sts != nil && d.displaced(sts)
	for i := range d.Groups {
		g := &d.Groups[i]
		if !g.complete(d.Set) {
			continue
		}
		ready, updated := g.Ready(d.Set), g.updated(target) && !displaced && !workload.LeftBehind(sts, g.Leader)
		c.ready += one(ready)
		c.updated += one(updated)
		index := int32(g.Index)
		if index >= replicas {
			continue
		}
		c.wantedReady += one(ready)
		if index >= partition {
			c.current++
			c.currentUpdated += one(updated)
			c.currentUpdatedReady += one(updated && ready)
		}
	}
	return c
}

// HasOwnSubdomain tells whether the pods of the group hang from a Service of their
// own: as their leader was made, whatever the spec has come to say.
func (g *Group) HasOwnSubdomain(set *lwsv1.LeaderWorkerSet) bool {
	return workload.Subdomain(set) == lwsv1.SubdomainUniquePerReplica ||
		g.Leader != nil && workload.HasOwnService(g.Leader)
}

// complete tells whether the group has all the parts it is judged by.
func (g *Group) complete(set *lwsv1.LeaderWorkerSet) bool {
	return g.Leader != nil && (workload.SizeOf(g.Leader, set) == 1 || g.Workers.Own() != nil)
}

// Ready tells whether every pod of the group, in its present incarnation, is up.
// A group that is to be recreated is not, whatever its pods say, nor is one whose
// workers are another revision's.
func (g *Group) Ready(set *lwsv1.LeaderWorkerSet) bool {
	if !g.complete(set) || !podReady(g.Leader) || restart.Of(set, g.Leader) != nil {
		return false
	}
	workers := g.Workers.Own()
	return workers == nil || workersReady(workers)
}

func (g *Group) updated(key string) bool {
	if key == "" || g.Leader.Labels[lwsv1.RevisionKey] != key {
		return false
	}
	workers := g.Workers.Own()
	return workers == nil || workers.Labels[lwsv1.RevisionKey] == key || workers.Spec.Template.Labels[lwsv1.RevisionKey] == key
}

func podReady(pod *corev1.Pod) bool {
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

// workersReady judges by the StatefulSet's status, of whatever generation: the template
// of worker StatefulSets never changes.
func workersReady(sts *appsv1.StatefulSet) bool {
	return workload.PodsOf(sts) == sts.Status.AvailableReplicas &&
		sts.Status.CurrentRevision == sts.Status.UpdateRevision
}

func one(yes bool) int32 {
	if yes {
		return 1
	}
	return 0
}
