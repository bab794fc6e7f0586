package group

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// awaitLeader holds back workers until their leader is ready, where the set asks.
func awaitLeader(g *input) (p lws.Plan, next bool) {
	if g.Set.Spec.StartupPolicy != lwsv1.LeaderReadyStartupPolicy || lws.StartsWorkers(g.Leader) || !g.Workers.Empty() {
		return p, true
	}
	p.Wait(lws.Wait{Reason: lws.Because(lws.CodeLeaderNotReady, fmt.Sprintf("workers of group %s start once leader %s is ready", g.Name(), g.Leader.Name))})
	return p, false
}

// keepWorkers leaves an existing worker StatefulSet as it is: its pods have the revision that it
// was created for. It is only touched when a name is free again, and scaled back.
func keepWorkers(g *input) (p lws.Plan, next bool) {
	sts := g.Workers.Own()
	if sts == nil {
		return p, true
	}
	if p, does := deleteApart(g, sts); does {
		return p, false
	}
	if workers, told := workload.AnnotatedWorkers(sts); told && ptr.Deref(sts.Spec.Replicas, 1) != workers {
		return scaleBack(sts, workers), false
	}
	if !workload.LacksPods(sts) {
		return p, false
	}
	p.TouchStalled(sts, g.Now, g.Stalled, !g.Stalled.IsZero() && g.IsFirstFree(sts))
	return p, false
}

// scaleBack gives a StatefulSet the number of workers that its pods know of. A user who
// scales it has a group that waits for pods which never come. The template stays.
func scaleBack(sts *appsv1.StatefulSet, workers int32) (p lws.Plan) {
	part := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: &workers}}
	why := fmt.Sprintf("statefulset %s was scaled to %d workers, and its pods are told of %d", sts.Name, workload.PodsOf(sts), workers)
	p.Apply(part, identity.RefOf(identity.KindStatefulSet, sts), lws.ScaleFieldOwner, lws.Because(lws.CodeChanged, why),
		"Failed to scale back worker statefulset "+sts.Name)
	return p
}

// adoptWorkers adopts the worker StatefulSet that a leader deleted with --cascade=orphan left,
// whether or not its revision still exists.
func adoptWorkers(g *input) (p lws.Plan, next bool) {
	sts := g.Workers.Orphan()
	if sts == nil {
		return p, true
	}
	p.Do(lws.Adopt(identity.RefOf(identity.KindStatefulSet, sts), identity.RefOf(identity.KindPod, g.Leader), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{OwnerReferences: workload.OwnedByLeader(g.Leader)},
	}))
	return p, false
}

// createWorkers creates the worker StatefulSet.
func createWorkers(g *input) (p lws.Plan, next bool) {
	leader := identity.RefOf(identity.KindPod, g.Leader)
	if workload.Size(g.restored) <= 1 || !g.Workers.Empty() {
		return p, false
	}
	nodeSelector, wait := g.placement()
	if wait != nil {
		p.Wait(*wait)
		return p, false
	}
	workers := workload.WorkerStatefulSet(g.Set, g.restored, g.Leader, nodeSelector)
	why := fmt.Sprintf("group %s has no worker statefulset %s", g.Name(), g.LeaderName)
	created := "worker statefulset for leader pod " + g.LeaderName
	p.Create(identity.KindStatefulSet, workers, leader, why, "Failed to create "+created, &leader,
		lws.Event("GroupsProgressing", "Create", "Created "+created, &leader))
	return p, true
}

// placement returns the node selector that keeps workers in their leader's topology domain, or what it waits for.
func (g *input) placement() (map[string]string, *lws.Wait) {
	topology := workload.SharedPlacement(g.Set, g.restored, g.Leader, lwsv1.ExclusiveKeyAnnotationKey)
	if topology == "" {
		return nil, nil
	}
	if g.Leader.Spec.NodeName == "" {
		return nil, &lws.Wait{
			Reason: lws.Because(lws.CodeLeaderNotScheduled, fmt.Sprintf("workers of group %s go where leader %s is scheduled", g.Name(), g.Leader.Name)),
			Tell:   unschedulable(g.Leader, topology),
		}
	}
	domain, known := g.NodeLabels[topology]
	if !known { // an empty domain is one for a scheduler, too
		note := fmt.Sprintf("node %s of leader %s has no label %s", g.Leader.Spec.NodeName, g.Leader.Name, topology)
		return nil, &lws.Wait{
			Reason: lws.Because(lws.CodeNoTopology, note),
			Until:  g.Now.Add(lws.SlowLook),
			Tell:   lws.Warning(lws.CodeNoTopology, "Wait", note+": workers cannot be placed beside it", new(identity.RefOf(identity.KindPod, g.Leader))),
		}
	}
	return map[string]string{topology: domain}, nil
}

// keepService keeps the group's headless Service what it should be under
// UniquePerReplica. A foreign one under its name costs the DNS names, not the workers.
func keepService(g *input) (p lws.Plan, next bool) {
	if g.HasOwnSubdomain(g.Set) {
		p.KeepService(g.Service, workload.GroupService(g.Set, g.Leader), identity.RefOf(identity.KindPod, g.Leader))
	}
	return p, true
}

// unschedulable warns of a leader that needs a topology domain for itself and finds none. The
// message of the scheduler is not repeated: it counts nodes, and changes with each.
func unschedulable(leader *corev1.Pod, topology string) *action.Event {
	if !workload.Unschedulable(leader) {
		return nil
	}
	note := fmt.Sprintf("no node can take leader %s: it needs one with label %s, with a value that no other group has; the pod's events say what nodes lack",
		leader.Name, topology)
	related := &identity.Ref{Kind: identity.KindPod, Namespace: leader.Namespace, Name: leader.Name, UID: leader.UID}
	return lws.Warning(lws.CodeLeaderUnschedulable, "Wait", note, related)
}
