package webhook

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	disaggregated "lockstep.dev/lockstep/internal/disaggregated/admission"
	"lockstep.dev/lockstep/internal/gang"
	rule "lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Pods completes the pods of sets. It finds out whether a new pod is part of a gang, and whether it has to wait.
type Pods struct {
	// Otherwise is set if groups of sets that name no scheduler are gangs.
	Otherwise bool
	// Scheduler places sets with spec.scheduling, or is empty.
	Scheduler string
	// Kin finds the set and the leader of a pod.
	Kin Kin
}

// Kin returns the set and the leader of a pod, or nil. MustWait reports whether a new pod is not to be scheduled yet.
type Kin interface {
	Set(context.Context, *corev1.Pod) (*lwsv1.LeaderWorkerSet, error)
	Leader(context.Context, *corev1.Pod) (*corev1.Pod, error)
	MustWait(context.Context, *corev1.Pod, time.Time) (bool, error)
}

// include reports whether a new pod is placed with its group. A gang is whole or it is none: a worker goes where its
// leader went, whatever the set says since. A worker whose template ties it was created for a leader that is tied.
func (p Pods) include(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if gang.IsHanded(pod) { // a pod has one scheduler
		return false, nil
	}
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
	if set.Spec.Scheduling != nil { // the annotation of the set counts without the field
		return p.Scheduler == gang.Volcano, nil
	}
	return gang.IsWanted(set, p.Otherwise), nil
}

// leave takes a pod from its Workload unless the operator runs its set: nothing would create its PodGroup.
func (p Pods) leave(ctx context.Context, pod *corev1.Pod) error {
	if !gang.IsHanded(pod) {
		return nil
	}
	set, err := p.Kin.Set(ctx, pod)
	if err != nil {
		return fmt.Errorf("find out whether the set of pod %s is placed: %w", pod.Name, err)
	}
	if p.Scheduler != gang.Kubernetes || set == nil || !workload.IsPlaced(set, p.Scheduler) {
		gang.Leave(pod)
	}
	return nil
}

// mutatePod completes a pod of a set. A pod whose gang cannot be found out is refused: it would be
// placed alone, or wait for the others forever. A pod that has to wait is gated.
func (p Pods) mutatePod(ctx context.Context, pod *corev1.Pod) error {
	if _, isOfSet := pod.Labels[lwsv1.SetNameLabelKey]; !isOfSet {
		return nil
	}
	if err := p.leave(ctx, pod); err != nil {
		return err
	}
	inGang, err := p.include(ctx, pod)
	if err != nil {
		return fmt.Errorf("find out whether pod %s is part of a gang: %w", pod.Name, err)
	}
	if rule.LacksKey(pod) {
		rule.SetKey(pod, rand.Text()[:16])
	}
	for _, complete := range []func(*corev1.Pod) error{disaggregated.MutatePod, rule.MutatePod} { // the last one's variables are first
		if err := complete(pod); err != nil {
			return err
		}
	}
	switch {
	case inGang:
		gang.Tie(&pod.ObjectMeta, gang.NameOf(pod))
	case gang.IsHanded(pod):
		gang.Join(pod, utilrand.String(gang.IncarnationLength))
	}
	mustWait, err := p.Kin.MustWait(ctx, pod, time.Now())
	if err != nil {
		return fmt.Errorf("find out whether pod %s has to wait: %w", pod.Name, err)
	}
	if mustWait {
		rule.Gate(pod)
	}
	return nil
}
