package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// roles are those of each DisaggregatedSet, and groupsOfRole is how many groups of one pod each has.
var roles = []string{"prefill", "decode"}

const groupsOfRole = 2

// roleSpec is the same for a role and for a LeaderWorkerSet without a DisaggregatedSet. One group surges.
func (s *stage) roleSpec(image string) lwsv1.LeaderWorkerSetSpec {
	set := drill.NewSet(s.namespace, "a", groupsOfRole, 1, podSpec(), func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.RestartPolicy = s.policy
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = image
		set.Spec.RolloutStrategy = lwsv1.RolloutStrategy{
			Type:                       lwsv1.RollingUpdateStrategyType,
			RollingUpdateConfiguration: &lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.FromInt32(0), MaxSurge: intstr.FromInt32(1)},
		}
	})
	return set.Spec
}

// together is a load of DisaggregatedSets.
func together(sets int) load {
	l := apart(sets)
	l.create = func(s *stage) error {
		return drill.Together(s.roleSets(sets, imageA), func(set *dsv1.DisaggregatedSet) error { return s.Client.Create(s.ctx, set) })
	}
	l.remove = func(s *stage) error {
		return s.Client.DeleteAllOf(s.ctx, &dsv1.DisaggregatedSet{}, client.InNamespace(s.namespace), background)
	}
	l.told = func(s *stage) bool {
		for _, set := range s.pairs {
			if set.Status.ObservedGeneration != set.Generation || !meta.IsStatusConditionTrue(set.Status.Conditions, dsv1.ConditionAvailable) {
				return false
			}
		}
		return len(s.pairs) == sets && s.isTold(sets)
	}
	return l
}

// apart is the same load as LeaderWorkerSets without a DisaggregatedSet.
func apart(sets int) load {
	return load{groups: sets * len(roles) * groupsOfRole, size: 1, policy: lwsv1.NoneRestartPolicy,
		create: func(s *stage) error {
			return drill.Together(s.setsApart(sets, imageA), func(set *lwsv1.LeaderWorkerSet) error { return s.Client.Create(s.ctx, set) })
		},
		remove: func(s *stage) error {
			return s.Client.DeleteAllOf(s.ctx, &lwsv1.LeaderWorkerSet{}, client.InNamespace(s.namespace), background)
		},
		told: func(s *stage) bool { return s.isTold(sets) },
	}
}

// isTold reports whether the status of each LeaderWorkerSet says that all of its groups are ready.
func (s *stage) isTold(sets int) bool {
	for _, set := range s.sets {
		if !available(set, groupsOfRole) {
			return false
		}
	}
	return len(s.sets) == sets*len(roles)
}

func (s *stage) roleSets(sets int, image string) (all []*dsv1.DisaggregatedSet) {
	for i := range sets {
		set := &dsv1.DisaggregatedSet{ObjectMeta: s.meta(fmt.Sprintf("a%d", i))}
		for _, name := range roles {
			set.Spec.Roles = append(set.Spec.Roles, dsv1.DisaggregatedRole{Name: name, Spec: s.roleSpec(image)})
		}
		all = append(all, set)
	}
	return all
}

func (s *stage) setsApart(sets int, image string) (all []*lwsv1.LeaderWorkerSet) {
	for i := range sets {
		for _, name := range roles {
			all = append(all, &lwsv1.LeaderWorkerSet{ObjectMeta: s.meta(fmt.Sprintf("a%d-%s", i, name)), Spec: s.roleSpec(image)})
		}
	}
	return all
}

// createRoles measures the creation of DisaggregatedSets. The floor is the creation of their LeaderWorkerSets without them.
func createRoles(sets int) func(*bed) {
	return func(b *bed) {
		measured := func(l load) cost {
			s, c := b.creation(l)
			defer s.leave()
			valid(c.pods == l.groups, "%d pods were created for %d", c.pods, l.groups)
			return c
		}
		floor := measured(apart(sets))
		b.tellRoles(measured(together(sets)), floor, sets)
	}
}

// rollRoles gives each role of DisaggregatedSets another template, and as the floor their LeaderWorkerSets without them.
func rollRoles(sets int) func(*bed) {
	return func(b *bed) {
		floor, _ := b.rolled(apart(sets), func(s *stage) error {
			return drill.Together(s.setsApart(sets, imageB), func(set *lwsv1.LeaderWorkerSet) error {
				return s.Client.Patch(s.ctx, set, drill.Merge(withImage(imageB)))
			})
		})
		ours, fewest := b.rolled(together(sets), func(s *stage) error {
			return drill.Together(s.roleSets(sets, imageB), func(set *dsv1.DisaggregatedSet) error {
				before := s.roleSets(1, imageA)[0]
				before.Name = set.Name
				return s.Client.Patch(s.ctx, set, client.MergeFrom(before))
			})
		})
		b.tellRoles(ours, floor, sets)
		b.tell("fewest-groups-ready", float64(fewest))
	}
}

// tellRoles adds the figures of DisaggregatedSets beside those without them. writes-added are those that each set costs more.
func (b *bed) tellRoles(ours, floor cost, sets int) {
	b.tellCost(ours, floor)
	b.tell("floor-writes", float64(floor.writes))
	b.tell("floor-cpu-seconds", floor.cpu.Seconds())
	b.tell("writes-added-per-set", float64(ours.writes-floor.writes)/float64(sets))
}
