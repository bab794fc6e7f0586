package lwscache

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// manyIncomplete is from how many incomplete groups on the pods of all groups of a set
// are read at once.
const manyIncomplete = 8

// stock is what the cache holds for the groups of one set, read at once: a set that
// comes would else be read piece by piece, twice for each of its groups, with every
// look. It need not show our own last writes, as a look at a group does: a set writes
// none of what it holds.
type stock struct {
	set          types.NamespacedName
	statefulSets map[string]*appsv1.StatefulSet
	// pods holds the workers by their group, or is nil when they were not read.
	pods map[string][]*corev1.Pod
}

// stocked is the observer with the stock of a set.
func (o *Observer) stocked(ctx context.Context, set types.NamespacedName, groups int) (*Observer, error) {
	s := &stock{set: set, statefulSets: map[string]*appsv1.StatefulSet{}}
	beneath, err := o.statefulSetsBeneath(ctx, set)
	if err != nil {
		return nil, err
	}
	complete := 0
	for _, sts := range beneath {
		s.statefulSets[sts.Name] = sts
		if !lws.LacksPods(sts) {
			complete++
		}
	}
	if groups-complete >= manyIncomplete {
		if err := o.stockPods(ctx, s); err != nil {
			return nil, err
		}
	}
	look := *o
	look.stock = s
	return &look, nil
}

func (o *Observer) stockPods(ctx context.Context, s *stock) error {
	workers, err := o.workersBeneath(ctx, s.set)
	if err != nil {
		return err
	}
	s.pods = map[string][]*corev1.Pod{}
	for _, pod := range workers {
		group, _ := identity.ParentAndOrdinal(pod.Name)
		s.pods[group] = append(s.pods[group], pod)
	}
	return nil
}

// has tells whether the stock holds all that bears names of the group, or of what is
// named like it.
func (s *stock) has(group types.NamespacedName) bool {
	if s == nil || group.Namespace != s.set.Namespace {
		return false
	}
	parent, ordinal := identity.ParentAndOrdinal(group.Name)
	return parent == s.set.Name && group.Name == identity.LeaderName(parent, ordinal)
}

// statefulSet returns what bears the group's name, if anybody does, and whether the
// stock can tell.
func (s *stock) statefulSet(group types.NamespacedName) (sts *appsv1.StatefulSet, knows bool) {
	if !s.has(group) {
		return nil, false
	}
	return s.statefulSets[group.Name], true
}

// podsOf returns the pods that bear names of the group's workers, and whether the
// stock can tell.
func (s *stock) podsOf(group types.NamespacedName) (pods []*corev1.Pod, knows bool) {
	if !s.has(group) || s.pods == nil {
		return nil, false
	}
	return s.pods[group.Name], true
}
