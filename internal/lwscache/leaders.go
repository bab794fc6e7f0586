package lwscache

import (
	"context"
	"fmt"
	"slices"

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
	"lockstep.dev/lockstep/internal/lws/workload"
)

// makers reads what makes the leaders of the set: its StatefulSet, or its Deployment with the ReplicaSets of that.
func (r *reading) makers(ctx context.Context) (sets identity.Claim[*appsv1.StatefulSet], deployments identity.Claim[*appsv1.Deployment], replicaSets identity.Claimant, err error) {
	key, claimant := client.ObjectKeyFromObject(r.set), identity.Claimant{r.set.UID}
	sets, err = claimed(ctx, r, identity.KindStatefulSet, key, &appsv1.StatefulSet{}, claimant, func(s *appsv1.StatefulSet) bool { return workload.MakesLeaders(s, s.Spec.Selector, r.set) })
	if err != nil {
		return sets, deployments, nil, err
	}
	r.isHash = workload.HasHashIdentity(r.set)
	if r.isHash || sets.Own() == nil && r.Definition != nil {
		deployments, err = claimed(ctx, r, identity.KindDeployment, key, &appsv1.Deployment{}, claimant, func(d *appsv1.Deployment) bool { return workload.MakesLeaders(d, d.Spec.Selector, r.set) })
	}
	switch own := deployments.Own(); {
	case !r.isHash && own != nil:
		r.former, deployments = "deployment "+own.Name, identity.Claim[*appsv1.Deployment]{}
	case !r.isHash:
		deployments = identity.Claim[*appsv1.Deployment]{}
	case sets.Own() != nil, own == nil && sets.Orphan() != nil:
		r.former = "statefulset " + r.set.Name
	default: // a StatefulSet beside the Deployment makes no leader
		sets.Orphans = nil
	}
	if err == nil && !deployments.Empty() {
		replicaSets, err = r.replicaSetsOf(ctx, key, slices.Concat(deployments.Owned, deployments.Orphans))
	}
	if adopted := slices.Concat(sets.Owned, sets.Orphans); len(adopted) > 0 {
		r.owners = identity.Claimant{adopted[0].UID}
	}
	r.owners = append(r.owners, replicaSets...)
	return sets, deployments, replicaSets, err
}

func (o *Observer) replicaSetsOf(ctx context.Context, set types.NamespacedName, deployments []*appsv1.Deployment) (identity.Claimant, error) {
	all, err := listed[*appsv1.ReplicaSet](ctx, o.cached, &appsv1.ReplicaSetList{}, fmt.Sprintf("replicasets of %q", set), client.InNamespace(set.Namespace), keyed(byName(set.Name)))
	return uids(slices.DeleteFunc(all, func(replicaSet *appsv1.ReplicaSet) bool {
		return !slices.ContainsFunc(deployments, func(d *appsv1.Deployment) bool { return metav1.IsControlledBy(replicaSet, d) })
	})), err
}

// groupNamed returns the group whose leader has, or would have, a name, and the name of its set. It returns a
// NotFound error if no set can have such a group.
func (o *Observer) groupNamed(ctx context.Context, key types.NamespacedName) (setName string, g lws.Group, err error) {
	leader := &corev1.Pod{}
	members := []*corev1.Pod{leader}
	err = o.cached.Get(ctx, key, leader, client.DisableReadYourWritesConsistency)
	if apierrors.IsNotFound(err) { // its workers say what it was
		members, err = o.Pods(ctx, key)
	}
	if err != nil {
		return "", g, fmt.Errorf("read group %q: %w", key, err)
	}
	for _, pod := range members {
		if g.Identity = workload.Of(pod); g.HasKey() && g.LeaderName == key.Name {
			return pod.Labels[lwsv1.SetNameLabelKey], g, nil
		}
	}
	setName, index := identity.ParentAndOrdinal(key.Name)
	if index == identity.NoOrdinal || identity.LeaderName(setName, index) != key.Name {
		err = apierrors.NewNotFound(schema.GroupResource{Resource: "groups"}, key.Name)
	}
	return setName, lws.Group{Identity: workload.Identity{Index: index, LeaderName: key.Name}}, err
}

// workerSets reads the StatefulSets of the workers of a group: those that a Hash leader owns, by any name, or what has
// the name of the one to be created.
func (r *reading) workerSets(ctx context.Context, g *lws.Group, options ...client.GetOption) ([]*appsv1.StatefulSet, error) {
	if g.HasKey() {
		found, err := listed[*appsv1.StatefulSet](ctx, r.cached, &appsv1.StatefulSetList{}, fmt.Sprintf("statefulsets of %q", g.LeaderName), client.InNamespace(r.set.Namespace), keyed(byName(g.LeaderName)))
		if err != nil || g.Leader == nil || len(found) > 0 {
			return found, err
		}
	}
	key := types.NamespacedName{Namespace: r.set.Namespace, Name: hostOf(g)}
	return named(ctx, r.Observer, identity.KindStatefulSet, key, &appsv1.StatefulSet{}, options...)
}

// hostOf is the host name of the leader of a group: what the group is made of has that name.
func hostOf(g *lws.Group) string {
	if g.Leader == nil {
		return g.LeaderName
	}
	return workload.HostName(g.Leader)
}
