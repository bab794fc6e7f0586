package lwscache

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/lws"
)

// fillLeaderless reads the claims of groups that nobody leads and that are scaled away.
// There are none at rest.
func (o *Observer) fillLeaderless(ctx context.Context, j *judge, w *lws.SetSnapshot) error {
	sts := w.StatefulSet.Member()
	if sts == nil {
		return nil
	}
	awaited, made := false, lws.AsMade(w.Set, sts)
	w.Leaderless = lws.Leaderless(made, sts, w.Leaders)
	for i := range w.Leaderless {
		g := &w.Leaderless[i]
		workers, err := o.statefulSets(ctx, types.NamespacedName{Namespace: w.Set.Namespace, Name: g.LeaderName})
		if err != nil {
			return err
		}
		if err := learn(ctx, j, workers, nil); err != nil {
			return err
		}
		g.Workers = claim(j.lives, workers, nil, func(*appsv1.StatefulSet) bool { return false })
		found, err := o.volumes(ctx, w.Set.Namespace, byName(g.LeaderName))
		if err != nil {
			return err
		}
		if err := o.workerVolumes(ctx, j, made, &g.Group, g.Last, found); err != nil {
			return err
		}
		awaited = awaited || g.Awaited()
	}
	w.LeaderlessSince = o.memory.leaderless(w.Set, awaited, w.Now)
	return nil
}

// leaderless notes whether leaders are awaited that a set's claims can go with, and
// returns since when.
func (m *Memory) leaderless(set client.Object, awaited bool, now time.Time) (since time.Time) {
	if !awaited && m.writesOf(set).leaderless.IsZero() {
		return since
	}
	m.note(set, func(w *writes) {
		switch {
		case !awaited:
			w.leaderless = time.Time{}
		case w.leaderless.IsZero():
			w.leaderless = now
		}
		since = w.leaderless
	})
	return since
}
