package lwscache

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// volumes returns the PVCs with a key of the index. The cache holds metadata alone, and only of
// PVCs with a set's label.
func (o *Observer) volumes(ctx context.Context, namespace, key string) ([]*volumes.PVC, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaimList"}}
	return listed[*volumes.PVC](ctx, o.cached, list, "PVCs", client.InNamespace(namespace), keyed(key))
}

func anyVolume(*volumes.PVC) bool { return true }

// sortVolumes classifies the PVCs of a group's workers. PVCs of a deleted leader are owned while
// its worker StatefulSet exists, and if another leader follows.
func (r *reading) sortVolumes(ctx context.Context, made *lwsv1.LeaderWorkerSet, g *lws.Group, found []*volumes.PVC, leaving *corev1.Pod, followed ...types.UID) (err error) {
	found = slices.DeleteFunc(found, func(v *volumes.PVC) bool { return !volumes.IsOf(v, made, g.LeaderName, 1) })
	claimant := slices.Concat(leaderUID(g), identity.Claimant{r.set.UID}, followed, uids(lws.WorkersOf(g, g.Leader)), uids(lws.WorkersOf(g, leaving)))
	g.Volumes, err = sorted(ctx, r, found, claimant, anyVolume)
	return err
}

// fillVolumes reads the PVCs of a set, and which groups beyond its StatefulSet's replicas still have pods beside theirs.
func (r *reading) fillVolumes(ctx context.Context, w *lws.SetSnapshot) error {
	sts := w.StatefulSet.Own()
	made := volumes.AsCreated(w.Set, sts)
	all, err := r.volumes(ctx, w.Set.Namespace, underName(w.Set.Name))
	if err != nil {
		return err
	}
	byParent := map[string][]*volumes.PVC{}
	for _, volume := range all {
		parent := volumeParent(volume.Labels)
		byParent[parent] = append(byParent[parent], volume)
	}
	for _, groups := range [][]lws.Group{w.Groups, w.Vacant} {
		for i := range groups {
			if g := &groups[i]; g.Workers.Own() == nil {
				if err := r.sortVolumes(ctx, made, g, byParent[g.LeaderName], nil); err != nil {
					return err
				}
			}
		}
	}
	if sts == nil || workload.LacksPods(sts) {
		ofLeaders := slices.DeleteFunc(byParent[w.Set.Name], func(v *volumes.PVC) bool { return !volumes.IsOf(v, made, w.Set.Name, 0) })
		claimant := slices.Concat(r.owners, identity.Claimant{w.Set.UID}, uids(w.Leaders.Owned))
		if w.LeaderVolumes, err = sorted(ctx, r, ofLeaders, claimant, anyVolume); err != nil || sts == nil {
			return err
		}
	}
	claimant := identity.Claimant{w.Set.UID, sts.UID}
	for i := range w.Groups {
		g := &w.Groups[i]
		claimant = append(append(claimant, leaderUID(g)...), uids(lws.WorkersOf(g, g.Leader))...)
	}
	if w.PVCs, err = sorted(ctx, r, all, claimant, anyVolume); err != nil {
		return err
	}
	return r.fillDraining(ctx, w, lws.ScaledAway(*w, made))
}

// fillDraining reads which groups still have pods.
func (r *reading) fillDraining(ctx context.Context, w *lws.SetSnapshot, groups []int) error {
	w.Draining = map[int]bool{}
	for _, index := range groups {
		pods, err := r.Pods(ctx, types.NamespacedName{Namespace: w.Set.Namespace, Name: identity.LeaderName(w.Set.Name, index)})
		if err != nil {
			return err
		}
		w.Draining[index] = len(pods) > 0
	}
	return nil
}
