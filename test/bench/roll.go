package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// patch merges a document into the set.
func (s *stage) patch(ctx context.Context, document string) error {
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "a"}}
	return s.client.Patch(ctx, set, client.RawPatch(types.MergePatchType, []byte(document)))
}

const (
	setTemplate = `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"containers":[{"name":"serve","image":%q}]}}}}}`
	stsTemplate = `{"spec":{"template":{"spec":{"containers":[{"name":"serve","image":%q}]}}}}`
)

// roll gives every group another template. The floor knows no groups and no budget:
// all of its StatefulSets replace all of their pods at once.
func roll(ctx context.Context, b *bed) (figures, error) {
	bare, err := b.rolled(ctx, floor(100, 8), func(s *stage) error {
		return together(s.statefulSets(), func(sts *appsv1.StatefulSet) error {
			return s.client.Patch(ctx, sts, client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, stsTemplate, imageB)))
		})
	})
	if err != nil {
		return nil, fmt.Errorf("the floor: %w", err)
	}
	ours, err := b.rolled(ctx, own(100, 8), func(s *stage) error { return s.patch(ctx, fmt.Sprintf(setTemplate, imageB)) })
	if err != nil {
		return nil, err
	}
	var f figures
	ours.tell(&f, "roll-100x8", bare.cost)
	f.add("roll-100x8.fewest-groups-ready", float64(ours.fewest))
	f.add("roll-100x8.writes-per-group", float64(ours.writes)/100)
	return f, nil
}

// rolling is what a rollout took, and the least groups that were ready on the way.
type rolling struct {
	cost
	fewest int
}

func (b *bed) rolled(ctx context.Context, l load, do func(*stage) error) (rolling, error) {
	s, err := b.standing(ctx, l)
	if err != nil {
		return rolling{}, err
	}
	defer s.strikeEmpty(ctx)
	holding(s.census, func() int { s.fewest = s.whole; return s.fewest })
	c, err := s.spend(ctx, "all groups are rolled", func() error { return do(s) }, func() bool { return s.complete() && s.allAt(imageB) })
	if err == nil && c.pods < l.groups*l.size {
		err = fmt.Errorf("%w: only %d pods were created", errInvalid, c.pods)
	}
	return rolling{cost: c, fewest: holding(s.census, func() int { return s.fewest })}, err
}

func (n *census) allAt(image string) bool {
	for _, pod := range n.pods {
		if pod.image != image {
			return false
		}
	}
	return true
}
