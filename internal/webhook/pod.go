package webhook

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	rule "lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Pods completes the pods of sets. It finds out whether a new pod is part of a gang, and whether a leader has to wait.
type Pods struct {
	// Otherwise is set if groups of sets that name no scheduler are gangs.
	Otherwise bool
	// Kin finds the set and the leader of a pod.
	Kin Kin
}

// Kin returns the set and the leader of a pod, or nil. HasGroup reports whether a worker of an earlier
// leader of that name is still there.
type Kin interface {
	Set(context.Context, *corev1.Pod) (*lwsv1.LeaderWorkerSet, error)
	Leader(context.Context, *corev1.Pod) (*corev1.Pod, error)
	HasGroup(context.Context, *corev1.Pod) (bool, error)
}

// include reports whether a new pod is placed with its group. A gang is whole or it is none: a
// worker goes where its leader went, whatever the set says since. A worker whose template ties it
// was created for a leader that is tied.
func (p Pods) include(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if gang.IsTied(pod) {
		return true, nil
	}
	if !rule.IsLeader(pod) {
		leader, err := p.Kin.Leader(ctx, pod)
		if err != nil {
			return false, err
		}
		if leader != nil && gang.NameOf(pod) == gang.NameOf(leader) {
			return gang.IsTied(leader), nil
		}
	}
	set, err := p.Kin.Set(ctx, pod)
	if err != nil || set == nil {
		return p.Otherwise, err
	}
	return gang.IsWanted(set, p.Otherwise), nil
}

// mutatePod completes a pod of a set. A pod whose gang cannot be found out is refused: it would be
// placed alone, or wait for the others forever. A leader beside pods of the group before it is gated.
func (p Pods) mutatePod(ctx context.Context, pod *corev1.Pod) error {
	if _, isOfSet := pod.Labels[lwsv1.SetNameLabelKey]; !isOfSet {
		return nil
	}
	inGang, err := p.include(ctx, pod)
	if err != nil {
		return fmt.Errorf("find out whether pod %s is part of a gang: %w", pod.Name, err)
	}
	if rule.LacksKey(pod) {
		rule.SetKey(pod, rand.Text()[:16])
	}
	if err := rule.MutatePod(pod); err != nil {
		return err
	}
	if inGang {
		gang.Tie(pod, gang.NameOf(pod))
	}
	if !rule.IsLeader(pod) || workload.IsHashLeader(pod) { // the latter has its gate already
		return nil
	}
	hasGroup, err := p.Kin.HasGroup(ctx, pod)
	if err != nil {
		return fmt.Errorf("find out whether the group before leader %s is gone: %w", pod.Name, err)
	}
	if hasGroup {
		rule.Gate(pod)
	}
	return nil
}
