package lwscache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Group returns the snapshot of the group whose leader has, or would have, a name: without a set if that is gone. It
// returns a NotFound error if no set can have such a group.
func (o *Observer) Group(ctx context.Context, key types.NamespacedName, now time.Time) (lws.GroupSnapshot, error) {
	setName, group, err := o.groupNamed(ctx, key)
	w := lws.GroupSnapshot{Now: now, Group: group}
	if err != nil {
		return w, err
	}
	// PVCs are read before the set: the spec is never older than their annotations.
	pvcs, err := o.volumes(ctx, key.Namespace, byName(w.LeaderName))
	if err != nil {
		return w, err
	}
	set := &lwsv1.LeaderWorkerSet{}
	err = o.cached.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: setName}, set)
	if apierrors.IsNotFound(err) {
		return o.abandoned(ctx, key.Namespace, setName, w)
	}
	if err != nil {
		return w, err
	}
	r := o.continued(set, nil, now)
	w.Set, w.Lives, w.KeepsLogs = set, r.lives, o.Logs != nil
	if err := r.fillLeader(ctx, &w); err != nil {
		return w, err
	}
	w.HoldsNames = !r.isHash && workload.LimitsEvictions(set, o.Budgets.ByDefault)
	if set.DeletionTimestamp == nil {
		if w.Beyond, err = r.beyond(ctx, w.LeaderSet); err != nil || len(w.Beyond) > 0 {
			return w, err
		}
	}
	if err := r.fillGroup(ctx, &w.Group); err != nil {
		return w, err
	}
	if w.Leader != nil && r.isNative() {
		if w.Workload, _, err = r.nativeObject(ctx, r.workloads(), gang.WorkloadName(set)); err != nil {
			return w, err
		}
	}
	var followed identity.Claimant // the deleted leader, if its StatefulSet will create another
	if w.Leaving != nil && w.LeaderSet != nil && int32(w.Index) < workload.PodsOf(w.LeaderSet) {
		followed = append(followed, w.Leaving.UID)
	}
	if err := r.sortVolumes(ctx, volumes.AsCreated(set, w.LeaderSet), &w.Group, pvcs, w.Leaving, followed...); err != nil {
		return w, err
	}
	if err := r.fillPods(ctx, &w.Group); err != nil {
		return w, err
	}
	w.Kept = append(w.Kept, lws.Kept(set.Name, w.Pods.Owned, w.Pods.Orphans, w.Pods.Previous)...)
	if w.Leader != nil && (w.Workers.Own() == nil || gang.IsTied(w.Leader)) {
		err = r.fillNewGroup(ctx, &w)
	}
	w.Vigil = o.memory.vigil(inTheWayOfGroup(&w.Group), w.Lives, now)
	return w, err
}

// ReadForGroup reads what the decision about a group needs.
func (o *Observer) ReadForGroup(ctx context.Context, need lws.Need, w *lws.GroupSnapshot) error {
	r := o.continued(w.Set, w.Lives, w.Now)
	w.Lives = r.lives
	err := r.knowRevision(ctx, w, cmp.Or(w.Leader, w.Leaving).Labels[lwsv1.RevisionKey])
	if w.Sought = true; err == nil && need == lws.NeedLivePods {
		err = r.readLive(ctx, w)
	}
	return err
}

// readLive reads the leader, the workers and their StatefulSet from the API server, and the status where
// it counts restarts: a cache may not show the last one yet.
func (r *reading) readLive(ctx context.Context, w *lws.GroupSnapshot) error {
	if w.Set.Spec.LeaderWorkerTemplate.MaxGroupRestarts != nil {
		set := &lwsv1.LeaderWorkerSet{}
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(w.Set), set); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read set %q: %w", client.ObjectKeyFromObject(w.Set), err)
		}
		if set.UID == w.Set.UID { // else it is gone, and its groups go with it
			counted := *w.Set
			counted.Status = set.Status
			w.Set = &counted
		}
	}
	labels := client.MatchingLabels{lwsv1.SetNameLabelKey: w.Set.Name, lwsv1.GroupIndexLabelKey: workload.IndexLabel(w.Leader)}
	found, err := listed[*corev1.Pod](ctx, r.live, &corev1.PodList{}, fmt.Sprintf("the pods of group %q", w.LeaderName), client.InNamespace(w.Set.Namespace), labels)
	if err != nil {
		return err
	}
	workers, name := []*appsv1.StatefulSet{{}}, types.NamespacedName{Namespace: r.set.Namespace, Name: hostOf(&w.Group)}
	if known := w.Workers.Own(); known != nil {
		name.Name = known.Name
	}
	if err := r.live.Get(ctx, name, workers[0]); apierrors.IsNotFound(err) {
		workers = nil
	} else if err != nil {
		return fmt.Errorf("read worker statefulset %q: %w", name, err)
	}
	uid := w.Leader.UID
	w.Live, w.Leader, w.Leaving = true, nil, nil
	var pods []*corev1.Pod
	for _, pod := range found {
		if pod.UID == uid {
			setLeader(w, pod)
		} else if workload.ParentName(pod) == w.LeaderName {
			pods = append(pods, pod)
		}
	}
	if err := r.sortWorkers(ctx, &w.Group, workers); err != nil {
		return err
	}
	return r.sortPods(ctx, &w.Group, pods)
}

// fillLeader reads what makes the leaders of the set, and the pod of the leader's name that belongs to it: as
// Leader, or as Leaving once it is deleted. A terminating pod of another owner is Former.
func (r *reading) fillLeader(ctx context.Context, w *lws.GroupSnapshot) error {
	sets, deployments, _, err := r.makers(ctx)
	if err != nil {
		return err
	}
	w.LeaderSet, w.Deployment = sets.Own(), deployments.Own()
	pods, err := named(ctx, r.Observer, identity.KindPod, types.NamespacedName{Namespace: r.set.Namespace, Name: w.LeaderName}, &corev1.Pod{})
	w.Kept = append(w.Kept, lws.Kept(r.set.Name, pods)...)
	if err != nil || len(pods) == 0 {
		return err
	}
	owner := metav1.GetControllerOfNoCopy(pods[0])
	switch {
	case owner != nil && (w.LeaderSet != nil || w.Deployment != nil) && slices.Contains(r.owners, owner.UID):
		setLeader(w, pods[0])
	case pods[0].DeletionTimestamp != nil:
		w.Former = pods[0]
		for _, sts := range slices.Concat(sets.Previous, sets.Orphans) {
			if metav1.IsControlledBy(w.Former, sts) {
				w.FormerOwner = sts
			}
		}
	}
	return nil
}

func setLeader(w *lws.GroupSnapshot, pod *corev1.Pod) {
	w.Leader, w.Leaving = pod, nil
	if pod.DeletionTimestamp != nil {
		w.Leader, w.Leaving = nil, pod
	}
}

// abandoned returns the snapshot of a group whose set is gone: such pods, and what a terminating
// leader controls. It reads the cache alone: no owner of these has to be looked for.
func (o *Observer) abandoned(ctx context.Context, namespace, setName string, w lws.GroupSnapshot) (lws.GroupSnapshot, error) {
	key := types.NamespacedName{Namespace: namespace, Name: w.LeaderName}
	pods, err := o.Pods(ctx, key)
	if err != nil {
		return w, err
	}
	w.Kept = lws.Kept(setName, pods)
	leader := &corev1.Pod{}
	if err := o.cached.Get(ctx, key, leader, client.DisableReadYourWritesConsistency); err != nil || leader.DeletionTimestamp == nil ||
		!workload.BearsName(leader, setName) {
		return w, client.IgnoreNotFound(err)
	}
	w.Former, w.Kept = leader, append(w.Kept, lws.Kept(setName, []*corev1.Pod{leader})...)
	workers := &appsv1.StatefulSet{}
	for _, pod := range pods { // the StatefulSet of a Hash group may have either name
		key.Name, _ = identity.ParentAndOrdinal(pod.Name)
	}
	if err := o.cached.Get(ctx, key, workers); err != nil || !metav1.IsControlledBy(workers, leader) {
		return w, client.IgnoreNotFound(err)
	}
	w.Workers.Previous = []*appsv1.StatefulSet{workers}
	w.Pods.Previous = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return !metav1.IsControlledBy(pod, workers) })
	return w, nil
}

// fillGroup reads the group's StatefulSet, Service and gang object.
func (r *reading) fillGroup(ctx context.Context, g *lws.Group) error {
	var options []client.GetOption
	if r.wholeSet {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	workers, err := r.workerSets(ctx, g, options...)
	if err != nil {
		return err
	}
	if err := r.sortWorkers(ctx, g, workers); err != nil {
		return err
	}
	if sts := g.Workers.Own(); sts != nil {
		g.Stalled = r.memory.stalledSince(sts, r.now)
	}
	if g.HasOwnSubdomain(r.set) {
		if g.Service, err = r.service(ctx, hostOf(g), leaderUID(g)); err != nil {
			return err
		}
	}
	switch {
	case g.Leader == nil: // none is placed as a gang
	case r.isNative():
		err = r.fillPodGroups(ctx, g)
	case gang.IsTied(g.Leader):
		err = r.fillGang(ctx, g)
	}
	return err
}

// lacksWorkers reports whether the StatefulSet of a group is missing, or one of its pods is not ready or not counted.
func (r *reading) lacksWorkers(g *lws.Group) bool {
	sts := g.Workers.Own()
	return sts == nil || workload.LacksPods(sts) || !lws.WorkersReady(sts) || restart.LacksRecord(r.set, g.Index, g.Leader)
}

func (r *reading) fillPods(ctx context.Context, g *lws.Group) error {
	pods, err := r.Pods(ctx, types.NamespacedName{Namespace: r.set.Namespace, Name: g.LeaderName})
	return cmp.Or(err, r.sortPods(ctx, g, pods))
}

// sortWorkers classifies StatefulSets of the name of the group's.
func (r *reading) sortWorkers(ctx context.Context, g *lws.Group, found []*appsv1.StatefulSet) (err error) {
	g.Workers, err = sorted(ctx, r, found, leaderUID(g), func(sts *appsv1.StatefulSet) bool { return workload.IsWorkerStatefulSet(sts, r.set, g.Leader) })
	return err
}

// sortPods classifies pods with names of the group's workers.
func (r *reading) sortPods(ctx context.Context, g *lws.Group, pods []*corev1.Pod) (err error) {
	claimant := append(leaderUID(g), uids(g.Workers.Owned)...)
	g.Pods, err = sorted(ctx, r, pods, claimant, func(pod *corev1.Pod) bool { return workload.BearsName(pod, r.set.Name) })
	return err
}

// fillNewGroup reads what the operator needs to create or adopt the worker StatefulSet, and to create or compare the
// PodGroups of a gang.
func (r *reading) fillNewGroup(ctx context.Context, w *lws.GroupSnapshot) (err error) {
	if err := r.knowRevision(ctx, w, w.Leader.Labels[lwsv1.RevisionKey]); err != nil {
		return err
	}
	if w.Workers.Own() != nil || workload.Topology(w.Leader) == "" || w.Leader.Spec.NodeName == "" {
		return nil
	}
	node, err := r.liveMeta(ctx, "v1", "Node", types.NamespacedName{Name: w.Leader.Spec.NodeName})
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("read node %q of leader %q: %w", w.Leader.Spec.NodeName, w.Leader.Name, err))
	}
	w.NodeLabels = node.Labels
	return nil
}

func leaderUID(g *lws.Group) identity.Claimant {
	if g.Leader == nil {
		return nil
	}
	return identity.Claimant{g.Leader.UID}
}
