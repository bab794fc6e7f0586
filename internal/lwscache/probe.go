package lwscache

import (
	"context"
	"fmt"
	"iter"
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
	// probedAgainAtMost bounds the pause before names are probed again, which doubles.
	probedAgainAtMost = 40 * time.Second
	// probedAtMost bounds how many names one look probes.
	probedAtMost = 5
)

// probe looks for what may stand unseen under the names of pods that a
// StatefulSet has lacked for a while: pods that bear none of our labels.
func (o *Observer) probe(ctx context.Context, sts *appsv1.StatefulSet, now time.Time, names iter.Seq[string]) error {
	if !lws.LacksPods(sts) {
		o.memory.complete(sts.UID)
		return nil
	}
	if sts.Status.ObservedGeneration < sts.Generation {
		return nil // its controller has not got to it: nothing stands in its way yet
	}
	if !o.memory.probeDue(sts.UID, sts.Status.Replicas, now) {
		return nil
	}
	probed := 0
	for podName := range names {
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

// leaderNames are made one by one, as workerNames are: what users write is a number,
// and must cost no more than its digits.
func leaderNames(set *lwsv1.LeaderWorkerSet) iter.Seq[string] {
	return func(yield func(string) bool) {
		for group := range int(lws.Replicas(set)) {
			if !yield(identity.LeaderName(set.Name, group)) {
				return
			}
		}
	}
}

func workerNames(g lws.Group, sts *appsv1.StatefulSet) iter.Seq[string] {
	return func(yield func(string) bool) {
		for worker := range int(lws.PodsOf(sts)) {
			if !yield(identity.LeaderName(g.LeaderName, worker+1)) {
				return
			}
		}
	}
}

// lack is a StatefulSet's want of pods.
type lack struct {
	have  int32
	due   time.Time     // when names are to be probed
	pause time.Duration // before they are probed again
}

// probeDue tells whether the names of pods that a StatefulSet lacks are to be probed
// now: when it has made no other pod for a while, and ever more seldom. One that is
// still making pods is left to it, or every large set would be probed as it comes.
func (m *Memory) probeDue(sts types.UID, have int32, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, _ := m.lacking.Get(sts)
	l, ok := known.(lack)
	if !ok || l.have != have {
		m.lacking.Add(sts, lack{have: have, due: now.Add(missingAfter), pause: 2 * missingAfter})
		return false
	}
	if now.Before(l.due) {
		return false
	}
	m.lacking.Add(sts, lack{have: have, due: now.Add(l.pause), pause: min(2*l.pause, probedAgainAtMost)})
	return true
}

// complete forgets that a StatefulSet lacked pods.
func (m *Memory) complete(sts types.UID) { m.lacking.Remove(sts) }
