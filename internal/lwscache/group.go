package lwscache

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// GroupPlan reads a group and decides about it. What the decision asks for is read too,
// and the group is decided again.
func (o *Observer) GroupPlan(ctx context.Context, key types.NamespacedName, now time.Time) (lws.GroupSnapshot, lws.Plan, error) {
	w, err := o.Group(ctx, key, now)
	if err != nil {
		return w, lws.Plan{}, err
	}
	plan := lws.DecideGroup(w)
	for plan.Needs != "" { // each need once, for it is met then
		if err := o.meet(ctx, plan.Needs, &w); err != nil {
			return w, plan, err
		}
		plan = lws.DecideGroup(w)
	}
	return w, plan, nil
}

// meet reads what a decision asks for.
func (o *Observer) meet(ctx context.Context, need lws.Need, w *lws.GroupSnapshot) error {
	j := o.judge()
	maps.Copy(j.lives, w.Lives)
	defer func() { w.Lives = j.lives }()
	if need == lws.NeedLivePods {
		return o.readLive(ctx, j, w)
	}
	leader := cmp.Or(w.Leader, w.Leaving)
	w.Sought = true
	return o.knowRevision(ctx, j, w, leader.Labels[lwsv1.RevisionKey])
}

// readLive reads the leader, the workers and their StatefulSet from the API server.
func (o *Observer) readLive(ctx context.Context, j *judge, w *lws.GroupSnapshot) error {
	leader := client.ObjectKeyFromObject(w.Leader)
	var list corev1.PodList
	labels := client.MatchingLabels{lwsv1.SetNameLabelKey: w.Set.Name, lwsv1.GroupIndexLabelKey: strconv.Itoa(w.Index)}
	if err := o.live.List(ctx, &list, client.InNamespace(leader.Namespace), labels); err != nil {
		return fmt.Errorf("list the pods of group %q: %w", leader, err)
	}
	var workers []*appsv1.StatefulSet
	sts := &appsv1.StatefulSet{}
	switch err := o.live.Get(ctx, leader, sts); {
	case err == nil:
		workers = append(workers, sts)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read worker statefulset %q: %w", leader, err)
	}
	uid := w.Leader.UID
	w.Live, w.Leader, w.Leaving = true, nil, nil
	var pods []*corev1.Pod
	for _, pod := range pointers(list.Items) {
		parent, _ := identity.ParentAndOrdinal(pod.Name)
		switch {
		case pod.UID == uid && pod.DeletionTimestamp == nil:
			w.Leader = pod
		case pod.UID == uid:
			w.Leaving = pod
		case parent == w.LeaderName:
			pods = append(pods, pod)
		}
	}
	if err := o.claimWorkers(ctx, j, w.Set, &w.Group, workers); err != nil {
		return err
	}
	return o.claimPods(ctx, j, w.Set, &w.Group, pods)
}

// Group returns the snapshot of the group whose leader has, or would have, a name. It returns a
// NotFound error if no set can have such a group.
func (o *Observer) Group(ctx context.Context, key types.NamespacedName, now time.Time) (lws.GroupSnapshot, error) {
	setName, index := identity.ParentAndOrdinal(key.Name)
	if index == identity.NoOrdinal || identity.LeaderName(setName, index) != key.Name {
		return lws.GroupSnapshot{}, apierrors.NewNotFound(schema.GroupResource{Resource: "groups"}, key.Name)
	}
	return o.group(ctx, key, now)
}

// group returns the snapshot of a group whose leader's name is valid.
func (o *Observer) group(ctx context.Context, key types.NamespacedName, now time.Time) (lws.GroupSnapshot, error) {
	setName, index := identity.ParentAndOrdinal(key.Name)
	// PVCs are read before the set: the spec is never older than their annotations.
	volumes, err := o.volumes(ctx, key.Namespace, byName(key.Name))
	if err != nil {
		return lws.GroupSnapshot{}, err
	}
	set := &lwsv1.LeaderWorkerSet{}
	if err := o.cached.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: setName}, set); err != nil {
		return lws.GroupSnapshot{}, err
	}
	w := lws.GroupSnapshot{Now: now, Set: set, Group: lws.Group{Index: index, LeaderName: key.Name}}
	j := o.judge()
	if w.LeaderSet, w.Leader, w.Leaving, err = o.leader(ctx, j, set, key); err != nil {
		return w, err
	}
	if err := o.fillGroup(ctx, j, set, &w.Group); err != nil {
		return w, err
	}
	if err := o.workerVolumes(ctx, j, lws.AsMade(set, w.LeaderSet), &w.Group, w.Leaving, volumes, followed(&w)...); err != nil {
		return w, err
	}
	if sts := w.Workers.Member(); sts != nil {
		w.Stalled = o.memory.stalledSince(sts, now)
	}
	if err := o.fillPods(ctx, j, set, &w.Group); err != nil {
		return w, err
	}
	if w.Leader != nil && w.Workers.Member() == nil {
		if err := o.fillNewGroup(ctx, j, &w); err != nil {
			return w, err
		}
	}
	if err := o.fillNewGang(ctx, j, &w); err != nil {
		return w, err
	}
	w.Lives = j.lives
	w.Vigil = lws.Vigil{Seen: o.memory.firstSeen(inTheWayOfGroup(&w.Group), now)}
	return w, nil
}

// leader returns the set's leader StatefulSet and the pod of the leader's name that it owns: as
// leader, or as leaving once it is deleted.
func (o *Observer) leader(ctx context.Context, j *judge, set *lwsv1.LeaderWorkerSet, key types.NamespacedName) (own *appsv1.StatefulSet, leader, leaving *corev1.Pod, err error) {
	found, err := o.leaderStatefulSet(ctx, j, set)
	if err != nil {
		return nil, nil, nil, err
	}
	own = found.Member()
	pod, ok, err := find(ctx, o, identity.KindPod, key, &corev1.Pod{})
	if err != nil || !ok || own == nil || !metav1.IsControlledBy(pod, own) {
		return own, nil, nil, err
	}
	if pod.DeletionTimestamp != nil {
		return own, nil, pod, nil
	}
	return own, pod, nil, nil
}

// followed returns the deleted leader if its StatefulSet will create another.
func followed(w *lws.GroupSnapshot) []types.UID {
	if w.Leaving == nil || int32(w.Index) >= workload.PodsOf(w.LeaderSet) {
		return nil
	}
	return []types.UID{w.Leaving.UID}
}

// fillGroup reads the group's StatefulSet, Service and gang object.
func (o *Observer) fillGroup(ctx context.Context, j *judge, set *lwsv1.LeaderWorkerSet, g *lws.Group) error {
	key := types.NamespacedName{Namespace: set.Namespace, Name: g.LeaderName}
	claimant := leaderUID(g)
	workers, err := o.statefulSets(ctx, key)
	if err != nil {
		return err
	}
	if err := o.claimWorkers(ctx, j, set, g, workers); err != nil {
		return err
	}
	if g.HasOwnSubdomain(set) {
		services, err := o.services(ctx, key)
		if err != nil {
			return err
		}
		if err := learn(ctx, j, services, claimant); err != nil {
			return err
		}
		g.Service = claim(j.lives, services, claimant, func(s *corev1.Service) bool { return workload.BearsName(s, set.Name) })
	}
	return o.fillGang(ctx, j, g)
}

// fillIncomplete is fillGroup, and reads the pods if the StatefulSet is missing or lacks some.
func (o *Observer) fillIncomplete(ctx context.Context, j *judge, set *lwsv1.LeaderWorkerSet, g *lws.Group) error {
	if err := o.fillGroup(ctx, j, set, g); err != nil {
		return err
	}
	if sts := g.Workers.Member(); sts != nil && !workload.LacksPods(sts) && !restart.LacksRecord(set, g.Index, g.Leader) {
		return nil
	}
	return o.fillPods(ctx, j, set, g)
}

// fillPods reads the pods with names of the group's workers.
func (o *Observer) fillPods(ctx context.Context, j *judge, set *lwsv1.LeaderWorkerSet, g *lws.Group) error {
	pods, err := o.workersUnder(ctx, types.NamespacedName{Namespace: set.Namespace, Name: g.LeaderName})
	if err != nil {
		return err
	}
	return o.claimPods(ctx, j, set, g, pods)
}

// claimWorkers classifies StatefulSets of the name of the group's.
func (o *Observer) claimWorkers(ctx context.Context, j *judge, set *lwsv1.LeaderWorkerSet, g *lws.Group, found []*appsv1.StatefulSet) error {
	claimant := leaderUID(g)
	if err := learn(ctx, j, found, claimant); err != nil {
		return err
	}
	g.Workers = claim(j.lives, found, claimant, func(sts *appsv1.StatefulSet) bool { return workload.IsWorkerStatefulSet(sts, set, g.Leader) })
	return nil
}

// claimPods classifies pods with names of the group's workers.
func (o *Observer) claimPods(ctx context.Context, j *judge, set *lwsv1.LeaderWorkerSet, g *lws.Group, pods []*corev1.Pod) error {
	claimant := leaderUID(g)
	if sts := g.Workers.Member(); sts != nil {
		claimant = append(claimant, sts.UID)
	}
	if err := learn(ctx, j, pods, claimant); err != nil {
		return err
	}
	g.Pods = claim(j.lives, pods, claimant, func(pod *corev1.Pod) bool { return workload.BearsName(pod, set.Name) })
	return nil
}

// fillNewGroup reads what the operator needs to create or adopt the worker StatefulSet.
func (o *Observer) fillNewGroup(ctx context.Context, j *judge, w *lws.GroupSnapshot) error {
	if err := o.knowRevision(ctx, j, w, w.Leader.Labels[lwsv1.RevisionKey]); err != nil {
		return err
	}
	if workload.Topology(w.Leader) == "" || w.Leader.Spec.NodeName == "" {
		return nil
	}
	node, err := o.liveMeta(ctx, "v1", "Node", types.NamespacedName{Name: w.Leader.Spec.NodeName})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read node %q of leader %q: %w", w.Leader.Spec.NodeName, w.Leader.Name, err)
	}
	w.Node = &lws.Node{Name: node.Name, Labels: node.Labels}
	return nil
}

func leaderUID(g *lws.Group) identity.Claimant {
	if g.Leader == nil {
		return nil
	}
	return identity.Claimant{g.Leader.UID}
}
