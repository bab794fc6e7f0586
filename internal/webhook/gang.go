package webhook

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	rule "lockstep.dev/lockstep/internal/lws/admission"
)

// Gangs finds out whether a new pod is part of a gang.
type Gangs struct {
	// Otherwise is set if groups of sets that name no scheduler are gangs.
	Otherwise bool
	// Kin finds the set and the leader of a pod. It may be nil.
	Kin Kin
}

// Kin returns the set and the leader of a pod, or nil.
type Kin interface {
	Set(context.Context, *corev1.Pod) (*lwsv1.LeaderWorkerSet, error)
	Leader(context.Context, *corev1.Pod) (*corev1.Pod, error)
}

// include reports whether a new pod is placed with its group. If this cannot be found out, the
// pod is refused: it would be placed alone, or wait for the others forever.
func (g Gangs) include(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if g.Kin == nil || gang.IsTied(pod) {
		return rule.InGang(pod, nil, nil, g.Otherwise), nil
	}
	set, err := g.Kin.Set(ctx, pod)
	var leader *corev1.Pod
	if err == nil {
		leader, err = g.Kin.Leader(ctx, pod)
	}
	if err != nil {
		return false, fmt.Errorf("find out whether pod %s is part of a gang: %w", pod.Name, err)
	}
	return rule.InGang(pod, leader, set, g.Otherwise), nil
}

// mutatePod completes a pod of a set.
func (g Gangs) mutatePod(ctx context.Context, pod *corev1.Pod) error {
	if _, isOfSet := pod.Labels[lwsv1.SetNameLabelKey]; !isOfSet {
		return nil
	}
	inGang, err := g.include(ctx, pod)
	if err != nil {
		return err
	}
	if err := rule.MutatePod(pod); err != nil {
		return err
	}
	if inGang {
		gang.Tie(pod, gang.NameOf(pod))
	}
	return nil
}
