package lwscache

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/gangcache"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// fillGang reads the PodGroup of a group that Volcano places as a gang. Any other group costs nothing.
func (r *reading) fillGang(ctx context.Context, g *lws.Group) error {
	found, missing, err := r.gangObject(ctx, gangcache.Volcano(r.Gangs), gang.NameOf(g.Leader))
	if g.GangMissing = missing; err != nil || len(found) == 0 {
		return err
	}
	if !workload.BearsName(found[0], r.set.Name) {
		r.memory.Taken(identity.RefOf(identity.KindPodGroup, found[0])) // the set reads it live, too
	}
	g.Gang, err = sorted(ctx, r, found, leaderUID(g), func(object *unstructured.Unstructured) bool { return workload.IsGang(object, g.Leader) })
	return err
}

// isNative reports whether Kubernetes' own scheduler places the set.
func (r *reading) isNative() bool {
	return r.Scheduler == gang.Kubernetes && r.set.Spec.Scheduling != nil
}

func (o *Observer) workloads() gangcache.Kind {
	return gangcache.Native(gang.WorkloadKind, identity.KindWorkload, o.Workloads)
}

func (o *Observer) podGroups() gangcache.Kind {
	return gangcache.Native(gang.NativePodGroupKind, identity.KindPodGroup, o.PodGroups)
}

// fillPodGroups reads the PodGroups that a group needs.
func (r *reading) fillPodGroups(ctx context.Context, g *lws.Group) (err error) {
	if !gang.IsHanded(g.Leader) {
		return nil
	}
	var all []*unstructured.Unstructured
	for _, name := range gang.PodGroupNames(g.Leader) {
		found, missing, err := r.gangObject(ctx, r.podGroups(), name)
		if err != nil {
			return err
		}
		all, g.GangMissing = append(all, found...), missing
	}
	g.PodGroups, err = r.sortNative(ctx, all)
	return err
}

// fillPodGroupsOfSet reads all PodGroups of a set, and which of them the pods in memory use.
func (r *reading) fillPodGroupsOfSet(ctx context.Context, w *lws.SetSnapshot) error {
	if w.GangMissing != "" {
		return nil
	}
	labelled, err := r.podGroups().OfSet(ctx, r.live, client.ObjectKeyFromObject(r.set))
	if err != nil {
		return err
	}
	if w.PodGroups, err = r.sortNative(ctx, labelled); err != nil {
		return err
	}
	w.PodGroupsInUse = gang.InUse(slices.Concat(w.Leaders.Owned, w.Leaders.Previous, w.Leaders.Orphans, w.Leaders.Foreign))
	for _, object := range w.PodGroups.Owned {
		if w.PodGroupsInUse[object.GetName()] {
			continue
		}
		workers, err := r.workersIn(ctx, client.ObjectKeyFromObject(r.set), object)
		if err != nil {
			return err
		}
		maps.Copy(w.PodGroupsInUse, gang.InUse(workers))
	}
	return nil
}

// workersIn returns the workers in memory that may be in a PodGroup of a group: those of its ordinal, and of Hash groups.
func (o *Observer) workersIn(ctx context.Context, set types.NamespacedName, podGroup *unstructured.Unstructured) ([]*corev1.Pod, error) {
	ofHash, err := o.podsWith(ctx, set.Namespace, underName(set.Name))
	if err != nil {
		return nil, err
	}
	pods, err := o.podsWith(ctx, set.Namespace, byName(set.Name+"-"+podGroup.GetLabels()[lwsv1.GroupIndexLabelKey]))
	return slices.Concat(ofHash, pods), err
}

// podGroupsInUse reads live which PodGroups the pods of a set use.
func (o *Observer) podGroupsInUse(ctx context.Context, set *lwsv1.LeaderWorkerSet) (map[string]bool, error) {
	pods, err := listed[*corev1.Pod](ctx, o.live, &corev1.PodList{}, fmt.Sprintf("the pods of %q", set.Name), client.InNamespace(set.Namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: set.Name})
	return gang.InUse(pods), err
}

// sortNative classifies objects of Kubernetes' own scheduler. None is adopted: an owner of another set, or
// no owner, is a user's doing.
func (r *reading) sortNative(ctx context.Context, found []*unstructured.Unstructured) (identity.Claim[*unstructured.Unstructured], error) {
	return sorted(ctx, r, found, identity.Claimant{r.set.UID}, func(*unstructured.Unstructured) bool { return false })
}

// fillWorkload reads the Workload of a set, and the PodGroup of all its pods if it has one.
func (r *reading) fillWorkload(ctx context.Context, w *lws.SetSnapshot) (err error) {
	if w.Workload, w.GangMissing, err = r.nativeObject(ctx, r.workloads(), gang.WorkloadName(r.set)); err != nil || w.GangMissing != "" {
		return err
	}
	if gang.LevelOf(r.set.Spec.Scheduling) == gang.SetLevel {
		kind := r.podGroups()
		if w.AwaitsLeaders() { // memory may show one that was deleted since
			kind = kind.WithoutMemory()
		}
		w.PodGroup, w.GangMissing, err = r.nativeObject(ctx, kind, gang.SetPodGroupName(r.set))
	}
	return err
}

func (r *reading) nativeObject(ctx context.Context, kind gangcache.Kind, name string) (claim identity.Claim[*unstructured.Unstructured], missing string, err error) {
	found, missing, err := r.gangObject(ctx, kind, name)
	if err == nil {
		claim, err = r.sortNative(ctx, found)
	}
	return claim, missing, err
}

// gangObject reads an object of a kind that the API server need not serve. A set reads live only names that are taken.
func (r *reading) gangObject(ctx context.Context, kind gangcache.Kind, name string) (found []*unstructured.Unstructured, missing string, err error) {
	key := types.NamespacedName{Namespace: r.set.Namespace, Name: name}
	object, missing, err := kind.Read(ctx, r.live, key, r.wholeSet && !r.memory.IsTaken(kind.Is, key))
	switch {
	case apierrors.IsForbidden(err) && r.wholeSet: // the user may read the rest of the set
		return nil, "", nil
	case object != nil:
		found = append(found, object)
	case err == nil:
		r.memory.SetFree(kind.Is, key)
	}
	return found, missing, err
}

// fillGangMissing reads why the gang scheduler of a set is missing, if it is. Groups may have shown it.
func (r *reading) fillGangMissing(ctx context.Context, w *lws.SetSnapshot) (err error) {
	if w.GangMissing == "" && gang.IsWanted(w.Set, false) && w.Set.Spec.Scheduling == nil {
		_, w.GangMissing, err = r.gangObject(ctx, gangcache.Volcano(r.Gangs), w.Set.Name)
	}
	return err
}
