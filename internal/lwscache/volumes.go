package lwscache

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// volumes returns the PVCs with a key of the index. The cache holds metadata alone, and only of
// PVCs with a set's label.
func (o *Observer) volumes(ctx context.Context, namespace, key string) ([]*lws.Volume, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaimList"}}
	if err := o.cached.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{indexClaim: key}); err != nil {
		return nil, fmt.Errorf("list PVCs: %w", err)
	}
	return pointers(list.Items), nil
}

// workerVolumes classifies the PVCs of a group's workers. PVCs of a deleted leader are owned while
// its worker StatefulSet exists, and if another leader follows.
func (o *Observer) workerVolumes(ctx context.Context, j *judge, set *lwsv1.LeaderWorkerSet, g *lws.Group, leaving *corev1.Pod, found []*lws.Volume, followed ...types.UID) error {
	found = slices.DeleteFunc(found, func(v *lws.Volume) bool { return !lws.IsWorkerVolume(v, set, g.LeaderName) })
	claimant := append(leaderUID(g), set.UID)
	claimant = append(claimant, followed...)
	for _, leader := range []*corev1.Pod{g.Leader, leaving} {
		for _, workers := range lws.WorkersOf(g, leader) {
			claimant = append(claimant, workers.UID)
		}
	}
	if err := learn(ctx, j, found, claimant); err != nil {
		return err
	}
	g.Volumes = claim(j.lives, found, claimant, func(*lws.Volume) bool { return true })
	return nil
}

// fillVolumes reads the PVCs of a set's groups and leaders.
func (o *Observer) fillVolumes(ctx context.Context, j *judge, w *lws.SetSnapshot) error {
	sts := w.StatefulSet.Member()
	made := lws.AsMade(w.Set, sts)
	if !lws.HasVolumes(made) {
		return nil
	}
	for _, groups := range [][]lws.Group{w.Groups, w.Vacant} {
		for i := range groups {
			g := &groups[i]
			if g.Workers.Member() != nil {
				continue
			}
			found, err := o.volumes(ctx, w.Set.Namespace, byName(g.LeaderName))
			if err != nil {
				return err
			}
			if err := o.workerVolumes(ctx, j, made, g, nil, found); err != nil {
				return err
			}
		}
	}
	if err := o.fillPVCs(ctx, j, w, made); err != nil {
		return err
	}
	return o.fillLeaderVolumes(ctx, j, w, made, sts)
}

// fillPVCs reads all PVCs of the set, and which groups beyond its StatefulSet's replicas
// still have pods beside theirs.
func (o *Observer) fillPVCs(ctx context.Context, j *judge, w *lws.SetSnapshot, made *lwsv1.LeaderWorkerSet) error {
	sts := w.StatefulSet.Member()
	if sts == nil {
		return nil
	}
	found, err := o.volumes(ctx, w.Set.Namespace, underName(w.Set.Name))
	if err != nil {
		return err
	}
	claimant := identity.Claimant{w.Set.UID, sts.UID}
	for i := range w.Groups {
		claimant = append(claimant, w.Groups[i].Leader.UID)
		for _, workers := range lws.WorkersOf(&w.Groups[i], w.Groups[i].Leader) {
			claimant = append(claimant, workers.UID)
		}
	}
	if err := learn(ctx, j, found, claimant); err != nil {
		return err
	}
	w.PVCs = claim(j.lives, found, claimant, func(*lws.Volume) bool { return true })
	return o.fillDraining(ctx, w, made)
}

func (o *Observer) fillDraining(ctx context.Context, w *lws.SetSnapshot, made *lwsv1.LeaderWorkerSet) error {
	for _, index := range lws.ScaledAway(*w, made) {
		pods, err := o.workersUnder(ctx, types.NamespacedName{Namespace: w.Set.Namespace, Name: identity.LeaderName(w.Set.Name, index)})
		if err != nil {
			return err
		}
		if len(pods) == 0 {
			continue
		}
		if w.Draining == nil {
			w.Draining = map[int]bool{}
		}
		w.Draining[index] = true
	}
	return nil
}

// fillLeaderVolumes reads the PVCs of leaders while leaders are missing.
func (o *Observer) fillLeaderVolumes(ctx context.Context, j *judge, w *lws.SetSnapshot, made *lwsv1.LeaderWorkerSet, sts *appsv1.StatefulSet) error {
	if sts != nil && !workload.LacksPods(sts) {
		return nil
	}
	found, err := o.volumes(ctx, w.Set.Namespace, byName(w.Set.Name))
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(v *lws.Volume) bool { return !lws.IsLeaderVolume(v, made) })
	claimant := append(slices.Clone(ownerOfLeaders(w.StatefulSet)), w.Set.UID)
	for _, leader := range w.Leaders.Members {
		claimant = append(claimant, leader.UID)
	}
	if err := learn(ctx, j, found, claimant); err != nil {
		return err
	}
	w.LeaderVolumes = claim(j.lives, found, claimant, func(*lws.Volume) bool { return true })
	return nil
}
