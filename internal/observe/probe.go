package observe

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

const (
	// missingAfter is how long pods may be missing before something unseen is
	// looked for under their names.
	missingAfter = 10 * time.Second
	// probedAtMost bounds how many names one look probes.
	probedAtMost = 5
)

// probe looks for what may stand unseen under the names of pods that a
// StatefulSet has lacked for a while: pods that bear none of our labels.
func (o *Observer) probe(ctx context.Context, sts *appsv1.StatefulSet, now time.Time, names []string) error {
	if !lws.LacksPods(sts) {
		o.memory.complete(sts.UID)
		return nil
	}
	if now.Sub(o.memory.lacksSince(sts.UID, now)) < missingAfter {
		return nil
	}
	probed := 0
	for _, podName := range names {
		key := types.NamespacedName{Namespace: sts.Namespace, Name: podName}
		if err := o.cached.Get(ctx, key, &corev1.Pod{}); err == nil {
			continue
		}
		if probed++; probed > probedAtMost {
			return nil
		}
		if err := o.Uncover(ctx, identity.Ref{Kind: identity.KindPod, Namespace: key.Namespace, Name: key.Name}, now); err != nil {
			return fmt.Errorf("probe %q: %w", key, err)
		}
	}
	return nil
}

func leaderNames(set *lwsv1.LeaderWorkerSet) []string {
	var names []string
	for group := range int(lws.Replicas(set)) {
		names = append(names, identity.LeaderName(set.Name, group))
	}
	return names
}

func workerNames(g lws.Group, sts *appsv1.StatefulSet) []string {
	var names []string
	for worker := range int(lws.PodsOf(sts)) {
		names = append(names, identity.LeaderName(g.LeaderName, worker+1))
	}
	return names
}

// lacksSince is when a StatefulSet was first seen to lack pods.
func (m *Memory) lacksSince(sts types.UID, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if since, ok := m.lacking.Get(sts); ok {
		if since, ok := since.(time.Time); ok {
			return since
		}
	}
	m.lacking.Add(sts, now)
	return now
}

// complete forgets that a StatefulSet lacked pods.
func (m *Memory) complete(sts types.UID) { m.lacking.Remove(sts) }
