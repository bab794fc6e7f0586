package lwscache

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// ReadForSet reads what the decision about a set needs.
func (o *Observer) ReadForSet(ctx context.Context, need lws.Need, w *lws.SetSnapshot) (err error) {
	if need == lws.NeedPodGroupsInUse {
		w.PodGroupsInUse, err = o.podGroupsInUse(ctx, w.Set)
		w.PodGroupsLive = true
		return err
	}
	r := o.continued(w.Set, w.Lives)
	w.Lives = r.lives
	w.Revisions, err = r.revisions(ctx, true)
	w.HistoryRead = true
	return err
}

// Set returns the snapshot of a set. It returns a NotFound error if there is no such set.
func (o *Observer) Set(ctx context.Context, key types.NamespacedName, now time.Time) (lws.SetSnapshot, error) {
	set := &lwsv1.LeaderWorkerSet{}
	if err := o.cached.Get(ctx, key, set); err != nil {
		if apierrors.IsNotFound(err) {
			o.memory.forget(key)
		}
		return lws.SetSnapshot{}, err
	}
	r := o.continued(set, nil)
	r.wholeSet = true
	w := lws.SetSnapshot{Now: now, Set: set, Lives: r.lives}
	o.memory.recall(&w)
	if err := r.fillMakers(ctx, &w); err != nil || len(w.Beyond) > 0 {
		return w, err
	}
	for _, fill := range []func(context.Context, *lws.SetSnapshot) error{
		r.fillLeaders, r.fillWorkload, r.fillGroups, r.fillMisspelt, r.fillVolumes, r.fillShared, r.fillGangMissing, r.fillPodGroupsOfSet,
	} {
		if err := fill(ctx, &w); err != nil {
			return w, err
		}
	}
	w.Refused = o.memory.refusedOf(set, func(leader string) (index int, isWanted bool) {
		if i := slices.IndexFunc(w.Leaders.Owned, func(pod *corev1.Pod) bool { return pod.Name == leader }); i >= 0 {
			return workload.IndexOf(w.Leaders.Owned[i]), true
		}
		_, index = identity.ParentAndOrdinal(leader)
		return index, index < int(workload.Replicas(set)) && leader == identity.LeaderName(set.Name, index)
	})
	w.Vigil = o.memory.awaits(set, inTheWayOfSet(&w, r.owners), w.Lives, now)
	return w, nil
}

// fillMakers reads what makes leaders, and what the set has that this version lacks.
func (r *reading) fillMakers(ctx context.Context, w *lws.SetSnapshot) (err error) {
	if w.StatefulSet, w.Deployment, w.ReplicaSets, err = r.makers(ctx); err != nil {
		return err
	}
	own := w.StatefulSet.Own()
	if own != nil {
		w.Stalled = r.memory.stalledSince(own, w.Now)
	}
	w.Beyond, err = r.beyond(ctx, own)
	return err
}

func (r *reading) fillLeaders(ctx context.Context, w *lws.SetSnapshot) error {
	pods, err := r.Pods(ctx, client.ObjectKeyFromObject(r.set))
	if err != nil {
		return err
	}
	if !workload.HasHashIdentity(r.set) && (!w.Stalled.IsZero() || condition.IsTrue(r.set.Status.Conditions, lws.CodeNameConflict)) {
		unlabelled, err := r.unlabelledLeaders(ctx, pods)
		if err != nil {
			return err
		}
		pods = append(pods, unlabelled...)
	}
	w.Leaders, err = sorted(ctx, r, pods, r.owners, func(pod *corev1.Pod) bool { return workload.IsLeader(pod, r.set.Name) })
	return err
}

// fillGroups reads the groups of leaders, and the objects of others that have no leader.
func (r *reading) fillGroups(ctx context.Context, w *lws.SetSnapshot) error {
	known := map[string]bool{}
	for _, leader := range w.Leaders.Owned {
		known[leader.Name] = true
		g := groupOf(leader)
		g.Leader = leader
		w.Groups = append(w.Groups, g)
	}
	byIndex := func(a, b lws.Group) int { return a.Index - b.Index }
	slices.SortFunc(w.Groups, byIndex)
	for i := range w.Groups {
		if err := r.fillIncomplete(ctx, &w.Groups[i], w.Now); err != nil {
			return err
		}
	}
	vacant, err := r.vacantGroups(ctx, w)
	for _, g := range vacant {
		if known[g.LeaderName] {
			continue
		}
		known[g.LeaderName] = true
		if err := r.fillIncomplete(ctx, &g, w.Now); err != nil {
			return err
		}
		if !g.Workers.Empty() || !g.Pods.Empty() || !g.Service.Empty() {
			w.Vacant = append(w.Vacant, g)
		}
	}
	slices.SortFunc(w.Vacant, byIndex)
	return err
}

// vacantGroups returns the groups under whose names there may be objects without a leader: those of pods that have a key, and
// those below replicas.
func (r *reading) vacantGroups(ctx context.Context, w *lws.SetSnapshot) (vacant []lws.Group, err error) {
	if workload.HasHashIdentity(r.set) {
		workers, err := r.podsWith(ctx, r.set.Namespace, underName(r.set.Name))
		for _, pod := range workers {
			vacant = append(vacant, groupOf(pod))
		}
		return vacant, err
	}
	wanted := int(workload.Replicas(r.set))
	if wanted == 0 || len(w.Groups) >= wanted && w.Groups[wanted-1].Index == wanted-1 { // none is vacant
		return nil, nil
	}
	indices, err := r.GroupsWithObjects(ctx, client.ObjectKeyFromObject(r.set))
	for _, index := range indices {
		if index < wanted {
			vacant = append(vacant, lws.Group{Index: index, LeaderName: identity.LeaderName(r.set.Name, index)})
		}
	}
	return vacant, err
}

// GroupsWithObjects returns the indices of the groups of a set under whose names there are objects beside leaders, of any
// owner, in rising order.
func (o *Observer) GroupsWithObjects(ctx context.Context, set types.NamespacedName) ([]int, error) {
	var names []string
	for _, list := range []client.ObjectList{&appsv1.StatefulSetList{}, &corev1.ServiceList{}} {
		err := o.cached.List(ctx, list, client.InNamespace(set.Namespace), client.MatchingFields{indexClaim: ofGroups(set.Name)}, client.DisableReadYourWritesConsistency)
		if err != nil {
			return nil, fmt.Errorf("list the objects of groups of %q: %w", set, err)
		}
		_ = meta.EachListItem(list, func(object runtime.Object) error {
			names = append(names, object.(client.Object).GetName())
			return nil
		})
	}
	workers, err := o.podsWith(ctx, set.Namespace, ofGroups(set.Name))
	for _, worker := range workers {
		leader, _ := identity.ParentAndOrdinal(worker.Name)
		names = append(names, leader)
	}
	for _, taken := range o.memory.takenOf(set, identity.KindStatefulSet, identity.KindService) {
		names = append(names, taken.Name)
	}
	found := map[int]bool{}
	for _, name := range names {
		if parent, index := identity.ParentAndOrdinal(name); parent == set.Name {
			found[index] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), err
}

// fillMisspelt reads the pods that StatefulSets adopted under another spelling of a name. They are looked for where a
// StatefulSet counts more pods than it has, or than it made.
func (r *reading) fillMisspelt(ctx context.Context, w *lws.SetSnapshot) error {
	own := w.StatefulSet.Own()
	adopted := func(g lws.Group) bool {
		sts := g.Workers.Own()
		return sts != nil && sts.Status.Replicas > sts.Status.UpdatedReplicas
	}
	if own == nil || int(own.Status.Replicas) <= len(w.Leaders.Owned)+len(w.Leaders.Previous) && !slices.ContainsFunc(w.Groups, adopted) {
		return nil
	}
	var list corev1.PodList
	err := r.cached.List(ctx, &list, client.InNamespace(r.set.Namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: r.set.Name}, client.DisableReadYourWritesConsistency)
	if err != nil {
		return fmt.Errorf("list pods of set %q: %w", r.set.Name, err)
	}
	for _, pod := range pointers(list.Items) {
		if !lws.IsMisspelt(pod.Name) {
			continue
		}
		if metav1.IsControlledBy(pod, own) {
			w.Misspelt = append(w.Misspelt, pod)
		}
		for i := range w.Groups {
			if sts := w.Groups[i].Workers.Own(); sts != nil && metav1.IsControlledBy(pod, sts) {
				w.Groups[i].Misspelt = append(w.Groups[i].Misspelt, pod)
			}
		}
	}
	return nil
}

// fillShared reads the Service of the set, and its revisions.
func (r *reading) fillShared(ctx context.Context, w *lws.SetSnapshot) (err error) {
	if w.Service, err = r.service(ctx, r.set.Name, identity.Claimant{r.set.UID}); err != nil {
		return err
	}
	w.Revisions, err = r.revisions(ctx, false)
	return err
}

// service reads and classifies the Service of a name.
func (r *reading) service(ctx context.Context, name string, claimant identity.Claimant) (identity.Claim[*corev1.Service], error) {
	key := types.NamespacedName{Namespace: r.set.Namespace, Name: name}
	return claimed(ctx, r, identity.KindService, key, &corev1.Service{}, claimant, func(s *corev1.Service) bool { return workload.BearsName(s, r.set.Name) })
}

// inTheWayOfSet returns the objects that the set waits for. Leaders that the set's own
// StatefulSet replaces are not among them.
func inTheWayOfSet(w *lws.SetSnapshot, leaderOwners identity.Claimant) []types.UID {
	all := slices.Concat(uids(w.StatefulSet.Previous), uids(w.Deployment.Previous), uids(w.LeaderVolumes.Previous), uids(w.Service.Previous), uids(w.Revisions.Previous))
	for _, pod := range slices.Concat(w.Leaders.Previous, w.Leaders.Foreign) {
		if owner := metav1.GetControllerOfNoCopy(pod); owner == nil || !slices.Contains(leaderOwners, owner.UID) {
			all = append(all, pod.UID)
		}
	}
	for _, groups := range [][]lws.Group{w.Groups, w.Vacant} {
		for i := range groups {
			all = append(all, inTheWayOfGroup(&groups[i])...)
		}
	}
	return all
}

// inTheWayOfGroup returns the objects that a group waits for. Workers that the group's own
// StatefulSet replaces are not among them.
func inTheWayOfGroup(g *lws.Group) []types.UID {
	return slices.Concat(uids(g.Workers.Previous), uids(g.OthersPods()), uids(g.Gang.Previous), uids(g.Volumes.Previous), uids(g.Service.Previous))
}
