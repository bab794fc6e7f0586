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
	w.Deployment, w.ReplicaSets, err = r.ownDeployment(ctx)
	return err
}

// ownDeployment is leaderDeployment, and nothing for a set that has none.
func (r *reading) ownDeployment(ctx context.Context) (found identity.Claim[*appsv1.Deployment], replicaSets identity.Claimant, err error) {
	if !workload.HasHashIdentity(r.set) {
		return found, nil, nil
	}
	return r.leaderDeployment(ctx)
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
