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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// SetPlan reads a set and decides about it. What the decision asks for is read too, and the
// set is decided again.
func (o *Observer) SetPlan(ctx context.Context, key types.NamespacedName, now time.Time) (lws.SetSnapshot, lws.Plan, error) {
	w, err := o.Set(ctx, key, now)
	if err != nil {
		return w, lws.Plan{}, err
	}
	for {
		plan := lws.DecideSet(w)
		switch plan.Needs {
		case lws.NeedHistory:
			j := o.judge()
			maps.Copy(j.lives, w.Lives)
			w.Revisions, err = o.revisionClaim(ctx, j, w.Set, o.revisionsAndHistory)
			w.Lives, w.HistoryRead = j.lives, true
		case lws.NeedLeaderPVCs:
			w.Claims, err = o.leaderPVCs(ctx, w.StatefulSet.Member())
		default:
			return w, plan, nil
		}
		if err != nil {
			return w, lws.Plan{}, err
		}
	}
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
	return o.SetAs(ctx, set, now)
}

// SetAs returns the snapshot of a set with the given spec, which may differ from the stored one.
func (o *Observer) SetAs(ctx context.Context, set *lwsv1.LeaderWorkerSet, now time.Time) (lws.SetSnapshot, error) {
	key := types.NamespacedName{Namespace: set.Namespace, Name: set.Name}
	whole := *o
	whole.set = key
	o = &whole
	written := o.memory.writesOf(set)
	w := lws.SetSnapshot{Now: now, Set: set, StatusWritten: written.statusAt, Refusal: written.refusalOf(set)}
	j := o.judge()
	var err error
	if w.StatefulSet, err = o.leaderStatefulSet(ctx, j, set); err != nil {
		return w, err
	}
	if sts := w.StatefulSet.Member(); sts != nil {
		w.Stalled = o.memory.stalledSince(sts, now)
	}
	leaderOwner := ownerOfLeaders(w.StatefulSet)
	if w.Leaders, err = o.leaders(ctx, j, w, leaderOwner); err != nil {
		return w, err
	}
	if w.Groups, err = o.groups(ctx, j, set, w.Leaders.Members); err != nil {
		return w, err
	}
	if w.Vacant, err = o.vacant(ctx, j, set, w.Leaders.Members); err != nil {
		return w, err
	}
	if err := o.fillVolumes(ctx, j, &w); err != nil {
		return w, err
	}
	if w.Service, err = o.sharedService(ctx, j, set); err != nil {
		return w, err
	}
	if w.Revisions, err = o.revisionClaim(ctx, j, set, o.revisions); err != nil {
		return w, err
	}
	if w.GangMissing, err = o.gangMissing(ctx, set, w.Groups); err != nil {
		return w, err
	}
	w.Refused = o.memory.refusedOf(set, func(leader string) bool {
		return slices.ContainsFunc(w.Leaders.Members, func(pod *corev1.Pod) bool { return pod.Name == leader })
	})
	w.Lives = j.lives
	w.Vigil = o.memory.awaits(key, inTheWayOfSet(w, leaderOwner), now)
	return w, nil
}

// claim classifies objects that have one of our names.
func claim[T interface {
	metav1.Object
	comparable
}](lives identity.Lives, objects []T, claimant identity.Claimant, ours func(T) bool) identity.Claim[T] {
	return identity.Sort(objects, claimant, ours, lives)
}

func (o *Observer) leaderStatefulSet(ctx context.Context, j *judge, set *lwsv1.LeaderWorkerSet) (identity.Claim[*appsv1.StatefulSet], error) {
	found, err := o.statefulSets(ctx, types.NamespacedName{Namespace: set.Namespace, Name: set.Name})
	if err != nil {
		return identity.Claim[*appsv1.StatefulSet]{}, err
	}
	claimant := identity.Claimant{set.UID}
	if err := learn(ctx, j, found, claimant); err != nil {
		return identity.Claim[*appsv1.StatefulSet]{}, err
	}
	return claim(j.lives, found, claimant, func(sts *appsv1.StatefulSet) bool { return workload.IsLeaderStatefulSet(sts, set) }), nil
}

// ownerOfLeaders returns the leader StatefulSet, or the one to adopt.
func ownerOfLeaders(found identity.Claim[*appsv1.StatefulSet]) identity.Claimant {
	for _, sts := range slices.Concat(found.Members, found.Orphans) {
		return identity.Claimant{sts.UID}
	}
	return nil
}

func (o *Observer) leaders(ctx context.Context, j *judge, w lws.SetSnapshot, claimant identity.Claimant) (identity.Claim[*corev1.Pod], error) {
	pods, err := o.podsSettled(ctx, client.ObjectKeyFromObject(w.Set))
	if err != nil {
		return identity.Claim[*corev1.Pod]{}, err
	}
	if !w.Stalled.IsZero() || condition.IsTrue(w.Set.Status.Conditions, lws.CodeNameConflict) {
		unlabelled, err := o.unlabelledLeaders(ctx, w.Set, pods)
		if err != nil {
			return identity.Claim[*corev1.Pod]{}, err
		}
		pods = append(pods, unlabelled...)
	}
	if err := learn(ctx, j, pods, claimant); err != nil {
		return identity.Claim[*corev1.Pod]{}, err
	}
	return claim(j.lives, pods, claimant, func(pod *corev1.Pod) bool { return workload.IsLeader(pod, w.Set.Name) }), nil
}

func (o *Observer) groups(ctx context.Context, j *judge, set *lwsv1.LeaderWorkerSet, leaders []*corev1.Pod) ([]lws.Group, error) {
	groups := make([]lws.Group, 0, len(leaders))
	for _, leader := range leaders {
		_, index := identity.ParentAndOrdinal(leader.Name)
		g := lws.Group{Index: index, LeaderName: leader.Name, Leader: leader}
		if err := o.fillIncomplete(ctx, j, set, &g); err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b lws.Group) int { return a.Index - b.Index })
	return groups, nil
}

// vacant reads the objects of wanted groups that have no leader.
func (o *Observer) vacant(ctx context.Context, j *judge, set *lwsv1.LeaderWorkerSet, leaders []*corev1.Pod) ([]lws.Group, error) {
	led := make(map[string]bool, len(leaders))
	for _, leader := range leaders {
		led[leader.Name] = true
	}
	var groups []lws.Group
	for index := range int(workload.Replicas(set)) {
		g := lws.Group{Index: index, LeaderName: identity.LeaderName(set.Name, index)}
		if led[g.LeaderName] {
			continue
		}
		if err := o.fillIncomplete(ctx, j, set, &g); err != nil {
			return nil, err
		}
		if !g.Workers.Empty() || !g.Pods.Empty() || !g.Service.Empty() {
			groups = append(groups, g)
		}
	}
	return groups, nil
}

func (o *Observer) sharedService(ctx context.Context, j *judge, set *lwsv1.LeaderWorkerSet) (identity.Claim[*corev1.Service], error) {
	found, err := o.services(ctx, types.NamespacedName{Namespace: set.Namespace, Name: set.Name})
	if err != nil {
		return identity.Claim[*corev1.Service]{}, err
	}
	claimant := identity.Claimant{set.UID}
	if err := learn(ctx, j, found, claimant); err != nil {
		return identity.Claim[*corev1.Service]{}, err
	}
	return claim(j.lives, found, claimant, func(s *corev1.Service) bool { return workload.BearsName(s, set.Name) }), nil
}

func (o *Observer) revisionClaim(ctx context.Context, j *judge, set *lwsv1.LeaderWorkerSet, read readRevisions) (revisionClaim, error) {
	found, err := read(ctx, set)
	if err != nil {
		return revisionClaim{}, err
	}
	claimant := identity.Claimant{set.UID}
	if err := learn(ctx, j, found, claimant); err != nil {
		return revisionClaim{}, err
	}
	return claim(j.lives, found, claimant, func(r *appsv1.ControllerRevision) bool { return lws.Genuine(r, set.Name) }), nil
}

// leaderPVCs returns the names of the PVCs of a set's leaders, read live.
func (o *Observer) leaderPVCs(ctx context.Context, sts *appsv1.StatefulSet) (map[string]bool, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaimList"}}
	if err := o.live.List(ctx, list, client.InNamespace(sts.Namespace), client.MatchingLabels(sts.Spec.Selector.MatchLabels)); err != nil {
		return nil, fmt.Errorf("list PVCs of %q: %w", sts.Name, err)
	}
	names := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		names[list.Items[i].Name] = true
	}
	return names, nil
}

// inTheWayOfSet returns the objects that the set waits for. Leaders that the set's own
// StatefulSet replaces are not among them.
func inTheWayOfSet(w lws.SetSnapshot, leaderOwner identity.Claimant) []types.UID {
	all := slices.Concat(uids(w.StatefulSet.Ghosts), uids(w.LeaderVolumes.Ghosts), uids(w.Service.Ghosts), uids(w.Revisions.Ghosts))
	for _, pod := range slices.Concat(w.Leaders.Ghosts, w.Leaders.Squatters) {
		if owner := metav1.GetControllerOfNoCopy(pod); owner == nil || !isKnown(leaderOwner, owner.UID) {
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
	return slices.Concat(uids(g.Workers.Ghosts), uids(g.OthersPods()), uids(g.Gang.Ghosts), uids(g.Volumes.Ghosts), uids(g.Service.Ghosts))
}

func uids[T metav1.Object](objects []T) []types.UID {
	var all []types.UID
	for _, object := range objects {
		all = append(all, object.GetUID())
	}
	return all
}
