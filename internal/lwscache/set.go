package lwscache

import (
	"cmp"
	"context"
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
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// ReadForSet reads what the decision about a set needs.
func (o *Observer) ReadForSet(ctx context.Context, need lws.Need, w *lws.SetSnapshot) (err error) {
	if need == lws.NeedPodGroupsInUse {
		w.PodGroupsInUse, err = o.podGroupsInUse(ctx, w.Set)
		w.PodGroupsLive = true
		return err
	}
	r := o.continued(w.Set, w.Lives, w.Now)
	w.Lives = r.lives
	if need == lws.NeedWorkers {
		for i := 0; i < len(w.Groups) && err == nil; i++ {
			err = r.fillPods(ctx, &w.Groups[i])
		}
		w.WorkersRead = true
		return err
	}
	w.Revisions, err = r.revisions(ctx, true)
	w.HistoryRead = true
	return err
}

// fill reads a part of a set.
type fill func(context.Context, *lws.SetSnapshot) error

// Set returns the snapshot of a set. It returns a NotFound error if there is no such set.
func (o *Observer) Set(ctx context.Context, key types.NamespacedName, now time.Time) (w lws.SetSnapshot, err error) {
	set := &lwsv1.LeaderWorkerSet{}
	if err := o.cached.Get(ctx, key, set); err != nil {
		if apierrors.IsNotFound(err) {
			o.memory.forget(key)
		}
		return w, err
	}
	r := o.continued(set, nil, now)
	r.wholeSet = true
	w = lws.SetSnapshot{Now: now, Set: set, Lives: r.lives}
	w.StatusWritten, w.Refusal = o.memory.Recall(set)
	if w.StatefulSet, w.Deployment, w.ReplicaSets, err = r.makers(ctx); err != nil {
		return w, err
	}
	own := w.StatefulSet.Own()
	if own != nil {
		w.Stalled = o.memory.stalledSince(own, now)
	}
	if w.Beyond, err = r.beyond(ctx, own); err != nil || len(w.Beyond) > 0 {
		return w, err
	}
	w.Scheduler, w.ProgressDeadline = o.Scheduler, o.ProgressDeadline
	fills := []fill{r.fillLeaders, r.fillGroups, r.fillService, r.fillRevisions, r.fillGangMissing}
	if r.isNative() {
		fills = []fill{r.fillLeaders, r.fillWorkload, r.fillGroups, r.fillService, r.fillRevisions, r.fillPodGroupsOfSet}
	}
	if made := volumes.AsCreated(set, own); len(volumes.Templates(made)) > 0 {
		fills = append(fills, r.fillVolumes)
	}
	for _, fill := range fills {
		if err := fill(ctx, &w); err != nil {
			return w, err
		}
	}
	if w.Evictions, err = o.Budgets.Of(ctx, o.cached, o.live, set); err != nil {
		return w, err
	}
	w.Refused = o.memory.RefusedOf(set, func(leader string) (index int, isWanted bool) {
		if i := slices.IndexFunc(w.Leaders.Owned, func(pod *corev1.Pod) bool { return pod.Name == leader }); i >= 0 {
			return workload.IndexOf(w.Leaders.Owned[i]), true
		}
		_, index = identity.ParentAndOrdinal(leader)
		return index, index < int(workload.Replicas(set)) && leader == identity.LeaderName(set.Name, index)
	})
	w.Vigil = o.memory.awaits(set, inTheWayOfSet(&w, r.owners), w.Lives, now)
	return w, nil
}

func (r *reading) fillLeaders(ctx context.Context, w *lws.SetSnapshot) error {
	pods, err := r.Pods(ctx, client.ObjectKeyFromObject(r.set))
	if err != nil {
		return err
	}
	if !r.isHash && (!w.Stalled.IsZero() || condition.IsTrue(r.set.Status.Conditions, lws.CodeNameConflict)) {
		unlabelled, err := r.unlabelledLeaders(ctx, pods)
		if err != nil {
			return err
		}
		pods = append(pods, unlabelled...)
	}
	w.Leaders, err = sorted(ctx, r, pods, r.owners, func(pod *corev1.Pod) bool { return workload.IsLeader(pod, r.set.Name) })
	return err
}

// fillGroups reads the groups of leaders, and the objects of others that have no leader. Each is filled in its place: a
// set has many, and is read at each event.
func (r *reading) fillGroups(ctx context.Context, w *lws.SetSnapshot) error {
	w.Groups = make([]lws.Group, 0, len(w.Leaders.Owned))
	for _, leader := range w.Leaders.Owned {
		w.Groups = append(w.Groups, lws.Group{Identity: workload.Of(leader), Leader: leader})
	}
	byIndex := func(a, b lws.Group) int { return a.Index - b.Index }
	slices.SortFunc(w.Groups, byIndex)
	vacant, err := r.vacantGroups(ctx, w.Groups)
	known := map[string]bool{}
	fill := func(g *lws.Group) {
		known[g.LeaderName] = true
		if err = r.fillGroup(ctx, g); err == nil && r.lacksWorkers(g) {
			err = r.fillPods(ctx, g)
		}
		w.GangMissing = cmp.Or(w.GangMissing, g.GangMissing)
	}
	for i := 0; i < len(w.Groups) && err == nil; i++ {
		fill(&w.Groups[i])
	}
	for i := range vacant {
		g := &vacant[i]
		if known[g.LeaderName] || err != nil {
			continue
		}
		if fill(g); !g.Workers.Empty() || !g.Pods.Empty() || !g.Service.Empty() {
			w.Vacant = append(w.Vacant, *g)
		}
	}
	slices.SortFunc(w.Vacant, byIndex)
	misspelt, unread := r.podsWith(ctx, r.set.Namespace, misspelt(r.set.Name))
	for _, pod := range misspelt {
		addMisspelt(w, pod)
	}
	return cmp.Or(err, unread)
}

// vacantGroups returns the groups under whose names there may be objects without a leader: those of pods that have a key, and
// those below replicas.
func (r *reading) vacantGroups(ctx context.Context, led []lws.Group) (vacant []lws.Group, err error) {
	if r.isHash {
		workers, err := r.podsWith(ctx, r.set.Namespace, underName(r.set.Name))
		for _, pod := range workers {
			vacant = append(vacant, lws.Group{Identity: workload.Of(pod)})
		}
		return vacant, err
	}
	wanted := int(workload.Replicas(r.set))
	if wanted == 0 || len(led) >= wanted && led[wanted-1].Index == wanted-1 { // none is vacant
		return nil, nil
	}
	isLed := map[int]bool{}
	for i := range led {
		isLed[led[i].Index] = true
	}
	indices, err := r.GroupsWithObjects(ctx, client.ObjectKeyFromObject(r.set))
	for _, index := range indices {
		if index < wanted && !isLed[index] {
			vacant = append(vacant, lws.Group{Identity: workload.Identity{Index: index, LeaderName: identity.LeaderName(r.set.Name, index)}})
		}
	}
	return vacant, err
}

// GroupsWithObjects returns the indices of the groups of a set under whose names there are objects beside leaders, of any
// owner, in rising order.
func (o *Observer) GroupsWithObjects(ctx context.Context, set types.NamespacedName) ([]int, error) {
	var names []string
	for kind, list := range map[identity.Kind]client.ObjectList{identity.KindStatefulSet: &appsv1.StatefulSetList{}, identity.KindService: &corev1.ServiceList{}} {
		objects, err := stored[client.Object](ctx, o, kind, list, set.Namespace, ofGroups(set.Name))
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			names = append(names, object.GetName())
		}
	}
	workers, err := o.podsWith(ctx, set.Namespace, ofGroups(set.Name))
	for _, worker := range workers {
		leader, _ := identity.ParentAndOrdinal(worker.Name)
		names = append(names, leader)
	}
	for _, taken := range o.memory.TakenOf(set, identity.KindStatefulSet, identity.KindService) {
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

// addMisspelt adds a pod that a StatefulSet adopted under another spelling of a name.
func addMisspelt(w *lws.SetSnapshot, pod *corev1.Pod) {
	if own := w.StatefulSet.Own(); own != nil && metav1.IsControlledBy(pod, own) {
		w.Misspelt = append(w.Misspelt, pod)
	}
	for i := range w.Groups {
		if sts := w.Groups[i].Workers.Own(); sts != nil && metav1.IsControlledBy(pod, sts) {
			w.Groups[i].Misspelt = append(w.Groups[i].Misspelt, pod)
		}
	}
}

func (r *reading) fillService(ctx context.Context, w *lws.SetSnapshot) (err error) {
	w.Service, err = r.service(ctx, r.set.Name, identity.Claimant{r.set.UID})
	return err
}

func (r *reading) fillRevisions(ctx context.Context, w *lws.SetSnapshot) (err error) {
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
