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

// groupCounts counts the groups of a set. A group without its worker StatefulSet does not count.
type groupCounts struct {
	// ready and updated include groups above replicas, as the API counts them.
	ready, updated int32
	// wantedReady is of the groups below replicas: a surge group does not replace a wanted one.
	wantedReady int32
	// current, currentUpdated and currentUpdatedReady are of the groups between
	// the partition and replicas.
	current, currentUpdated, currentUpdatedReady int32
	// atTarget is of the groups below replicas that are at the target, also while a template waits.
	atTarget int32
	// unobserved is set until the Deployment controller has seen what is asked: nothing is done before that.
	unobserved bool
	// surplus is of the groups, complete or not, that the leader StatefulSet is not to have.
	surplus int32
}

func (d *setDecision) count() groupCounts {
	if workload.HasHashIdentity(d.Set) {
		return d.countHash()
	}
	var c groupCounts
	replicas, partition, target := workload.Replicas(d.Set), workload.Partition(d.Set), d.targetKey()
	sts := d.StatefulSet.Own()
	displaced := sts != nil && d.displaced(d.leadersOwner())
	for i := range d.Groups {
		g := &d.Groups[i]
		c.surplus += one(int32(g.Index) >= d.course.Replicas)
		if !g.complete(d.Set) {
			continue
		}
		ready, updated := g.Ready(d.Set), g.UpToDate(target) && !displaced && !workload.LeftBehind(sts, g.Leader)
		c.ready += one(ready)
		c.updated += one(updated)
		index := int32(g.Index)
		if index >= replicas {
			continue
		}
		c.wantedReady += one(ready)
		c.atTarget += one(g.UpToDate(d.target.key))
		if index >= partition {
			c.current++
			c.currentUpdated += one(updated)
			c.currentUpdatedReady += one(updated && ready)
		}
	}
	return c
}

// countHash counts groups with keys: any of them is a wanted one. Each leader of another revision that exists
// counts as a group to update.
func (d *setDecision) countHash() groupCounts {
	var c groupCounts
	replicas := workload.Replicas(d.Set)
	var updatedReady int32
	for i := range d.Groups {
		g := &d.Groups[i]
		if !g.complete(d.Set) {
			continue
		}
		ready, updated := g.Ready(d.Set), g.UpToDate(d.targetKey()) && !d.isOutdated(g.Leader)
		c.ready += one(ready)
		c.updated += one(updated)
		c.atTarget += one(g.UpToDate(d.target.key))
		updatedReady += one(ready && updated)
	}
	c.wantedReady, c.atTarget = min(c.ready, replicas), min(c.atTarget, replicas)
	c.currentUpdated, c.currentUpdatedReady = min(c.updated, replicas), min(updatedReady, replicas)
	c.current = c.currentUpdated + d.outdatedHashLeaders()
	c.surplus = max(0, int32(len(d.Groups))-replicas)
	c.unobserved = !d.isObserved()
	return c
}

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

// HasOwnSubdomain reports whether the group has a Service of its own: by the spec, or by its
// leader.
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

// Ready reports whether every pod of the group is ready. A group that is to be recreated, or
// stopped, is not.
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
