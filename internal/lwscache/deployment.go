package lwscache

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// fillDeployment reads the leader Deployment of a set whose groups have keys, and its ReplicaSets.
func (r *reading) fillDeployment(ctx context.Context, w *lws.SetSnapshot) (err error) {
	if !workload.HasHashIdentity(r.set) {
		return nil
	}
	w.Deployment, w.ReplicaSets, err = r.leaderDeployment(ctx)
	return err
}

func (r *reading) leaderDeployment(ctx context.Context) (found identity.Claim[*appsv1.Deployment], replicaSets identity.Claimant, err error) {
	objects, err := named(ctx, r.Observer, identity.KindDeployment, client.ObjectKeyFromObject(r.set), &appsv1.Deployment{})
	if err != nil {
		return found, nil, err
	}
	found, err = sorted(ctx, r, objects, identity.Claimant{r.set.UID}, func(d *appsv1.Deployment) bool { return workload.IsLeaderDeployment(d, r.set) })
	if err != nil {
		return found, nil, err
	}
	var list appsv1.ReplicaSetList
	if err := r.cached.List(ctx, &list, client.InNamespace(r.set.Namespace), client.MatchingFields{indexClaim: byName(r.set.Name)}); err != nil {
		return found, nil, fmt.Errorf("list replicasets of %q: %w", r.set.Name, err)
	}
	for _, deployment := range slices.Concat(found.Owned, found.Orphans) {
		for i := range list.Items {
			if metav1.IsControlledBy(&list.Items[i], deployment) {
				replicaSets = append(replicaSets, list.Items[i].UID)
			}
		}
	}
	return found, replicaSets, nil
}

// fillHashGroups reads the groups of a set whose groups have keys: those of leaders, and those that have pods and
// no leader.
func (r *reading) fillHashGroups(ctx context.Context, w *lws.SetSnapshot) error {
	known := map[string]bool{}
	for _, leader := range w.Leaders.Owned {
		known[leader.Name] = true
		g := lws.Group{Index: workload.IndexOf(leader), HasKey: true, LeaderName: leader.Name, Leader: leader}
		if err := r.fillIncomplete(ctx, &g, w.Now); err != nil {
			return err
		}
		w.Groups = append(w.Groups, g)
	}
	slices.SortFunc(w.Groups, func(a, b lws.Group) int { return a.Index - b.Index })
	workers, err := r.workersUnder(ctx)
	if err != nil {
		return err
	}
	for _, pod := range workers {
		leader := workload.LeaderOf(pod)
		if known[leader] {
			continue
		}
		known[leader] = true
		g := lws.Group{Index: workload.IndexOfKey(pod), HasKey: true, LeaderName: leader}
		if err := r.fillIncomplete(ctx, &g, w.Now); err != nil {
			return err
		}
		w.Vacant = append(w.Vacant, g)
	}
	slices.SortFunc(w.Vacant, func(a, b lws.Group) int { return a.Index - b.Index })
	return nil
}

// workersUnder returns the workers of a set whose groups have keys, whatever their leaders.
func (r *reading) workersUnder(ctx context.Context) ([]*corev1.Pod, error) {
	return r.podsWith(ctx, r.set.Namespace, underName(r.set.Name))
}

// hashGroup returns the set and the index of the group of a leader's name if the group has a key, or "".
func (o *Observer) hashGroup(ctx context.Context, key types.NamespacedName) (set string, index int, err error) {
	leader := &corev1.Pod{}
	err = o.cached.Get(ctx, key, leader, client.DisableReadYourWritesConsistency)
	switch {
	case err == nil && workload.IsHashLeader(leader):
		return leader.Labels[lwsv1.SetNameLabelKey], workload.IndexOf(leader), nil
	case err == nil:
		return "", 0, nil
	case !apierrors.IsNotFound(err):
		return "", 0, fmt.Errorf("read pod %q: %w", key, err)
	}
	workers, err := o.Pods(ctx, key)
	for _, worker := range workers {
		if workload.HasKey(worker) {
			return worker.Labels[lwsv1.SetNameLabelKey], workload.IndexOfKey(worker), nil
		}
	}
	return "", 0, err
}

// fillHashLeader is fillLeader for a group that has a key.
func (r *reading) fillHashLeader(ctx context.Context, w *lws.GroupSnapshot) error {
	found, replicaSets, err := r.leaderDeployment(ctx)
	if err != nil {
		return err
	}
	w.Deployment = found.Own()
	key := types.NamespacedName{Namespace: r.set.Namespace, Name: w.LeaderName}
	pods, err := named(ctx, r.Observer, identity.KindPod, key, &corev1.Pod{})
	if err != nil || len(pods) == 0 {
		return err
	}
	w.Kept = append(w.Kept, lws.Kept(r.set.Name, pods)...)
	owner := metav1.GetControllerOfNoCopy(pods[0])
	switch {
	case w.Deployment != nil && owner != nil && slices.Contains(replicaSets, owner.UID):
		setLeader(w, pods[0])
	case pods[0].DeletionTimestamp != nil:
		w.Former = pods[0]
	}
	return nil
}

// workerSets reads the StatefulSets of a group that has a key: those that its leader owns, by any name, and what has the
// name of one to be created.
func (r *reading) workerSets(ctx context.Context, g *lws.Group, options ...client.GetOption) ([]*appsv1.StatefulSet, error) {
	var list appsv1.StatefulSetList
	if err := r.cached.List(ctx, &list, client.InNamespace(r.set.Namespace), client.MatchingFields{indexClaim: byName(g.LeaderName)}); err != nil {
		return nil, fmt.Errorf("list statefulsets of %q: %w", g.LeaderName, err)
	}
	found := pointers(list.Items)
	if g.Leader == nil || len(found) > 0 {
		return found, nil
	}
	key := types.NamespacedName{Namespace: r.set.Namespace, Name: workload.HostName(g.Leader)}
	return named(ctx, r.Observer, identity.KindStatefulSet, key, &appsv1.StatefulSet{}, options...)
}
