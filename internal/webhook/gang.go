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
	// Otherwise is the scheduler of sets that name none, or nil.
	Otherwise gang.Scheduler
	// Kin finds the set and the leader of a pod. It may be nil.
	Kin Kin
}

// Kin returns the set and the leader of a pod, or nil.
type Kin interface {
	Set(context.Context, *corev1.Pod) (*lwsv1.LeaderWorkerSet, error)
	Leader(context.Context, *corev1.Pod) (*corev1.Pod, error)
}

// of returns the scheduler that places a new pod with its group, or nil. If this cannot be
// found out, the pod is refused: it would be placed alone, or wait for the others forever.
func (g Gangs) of(ctx context.Context, pod *corev1.Pod) (gang.Scheduler, error) {
	if g.Kin == nil || gang.Of(pod) != nil {
		return rule.GangFor(pod, nil, nil, g.Otherwise), nil
	}
	set, err := g.Kin.Set(ctx, pod)
	if err != nil {
		return nil, fmt.Errorf("find out whether pod %s is part of a gang: %w", pod.Name, err)
	}
	leader, err := g.Kin.Leader(ctx, pod)
	if err != nil {
		return nil, fmt.Errorf("find out whether pod %s is part of a gang: %w", pod.Name, err)
	}
	return rule.GangFor(pod, leader, set, g.Otherwise), nil
}

// mutatePod completes a pod of a set.
func (g Gangs) mutatePod(ctx context.Context, pod *corev1.Pod) error {
	if _, isOfSet := pod.Labels[lwsv1.SetNameLabelKey]; !isOfSet {
		return nil
	}
	scheduler, err := g.of(ctx, pod)
	if err != nil {
		return err
	}
	return rule.PodMutation{Gang: scheduler}.Mutate(pod)
}
