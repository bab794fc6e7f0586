package disaggregated

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	cli "lockstep.dev/lockstep/internal/cli/disaggregated"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/disaggregated/planner"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// rolled is a change of a set: the groups of its roles, before and after, and what they may surge and lack.
type rolled struct{ from, to, surge, unavailable [2]int32 }

func (r rolled) set() *dsv1.DisaggregatedSet {
	set := &dsv1.DisaggregatedSet{ObjectMeta: fakeapi.Set("a", 1, 1).ObjectMeta}
	for i, name := range []string{"p", "d"} {
		role := dsv1.DisaggregatedRole{Name: name, Spec: fakeapi.Set("a", r.from[i], 1).Spec}
		role.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{
			MaxSurge: intstr.FromInt32(r.surge[i]), MaxUnavailable: intstr.FromInt32(r.unavailable[i]),
		}
		set.Spec.Roles = append(set.Spec.Roles, role)
	}
	return set
}

// printed is what "plan" says of the one slice of a set, and nil if nothing moves.
func (w *world) printed() *cli.SlicePlan {
	_, plan, err := cli.Answers(w.t.Context(), w.Live(), request.NamespacedName, w.Now)
	expect.OK(w.t, err)
	if slices := plan.(*cli.SetPlan).Slices; len(slices) > 0 {
		expect.Must(w.t, len(slices) == 1, "one slice, of %+v", slices)
		return &slices[0]
	}
	return nil
}

// counts are the groups that a set wants, in the order of a plan.
func (w *world) counts(of *cli.SlicePlan) (all planner.Counts) {
	for _, revision := range of.Revisions {
		var counts []int32
		for _, role := range of.Roles {
			child := fakeapi.Find[*lwsv1.LeaderWorkerSet](w.Server, disaggregated.ChildName("a", disaggregated.Place{Revision: revision, Role: role}))
			if child == nil {
				counts = append(counts, 0)
				continue
			}
			counts = append(counts, ptr.Deref(child.Spec.Replicas, 1))
		}
		all = append(all, counts)
	}
	return all
}

// advance lets the operator act once, and then every group become ready, or end, at once.
func (w *world) advance(of *cli.SlicePlan) planner.Counts {
	w.catchUp()
	now := w.counts(of)
	w.untilStill(w.controllers)
	return now
}

// Whatever its sizes and budgets, a rollout whose groups are ready at once takes the steps that "plan" printed before it.
func TestARolloutTakesTheStepsOfItsPlan(t *testing.T) {
	check := func(t *rapid.T, r rolled) {
		w := newWorld(t)
		fakeapi.Add(w.Server, r.set())
		w.settle()
		w.edit(func(set *dsv1.DisaggregatedSet) {
			for i := range set.Spec.Roles {
				set.Spec.Roles[i].Spec.Replicas = new(r.to[i])
				set.Spec.Roles[i].Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = "image:2"
			}
		})
		plan := w.printed()
		expect.Must(t, plan != nil, "%+v: no step is printed", r)
		steps := []planner.Counts{w.counts(plan)}
		for range 2*len(plan.Steps) + 5 {
			if taken := w.advance(plan); !reflect.DeepEqual(taken, steps[len(steps)-1]) {
				steps = append(steps, taken)
			}
		}
		expect.Equalf(t, plan.Steps, steps, "%+v", r)
		if len(plan.Stuck) == 0 {
			expect.Equalf(t, (*cli.SlicePlan)(nil), w.printed(), "%+v: what is left to do", r)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string, least, most int32) [2]int32 {
			return [2]int32{rapid.Int32Range(least, most).Draw(t, what), rapid.Int32Range(least, most).Draw(t, what)}
		}
		r := rolled{draw("from", 1, 6), draw("to", 1, 6), draw("surge", 0, 2), draw("unavailable", 0, 2)}
		for i, surge := range r.surge {
			r.unavailable[i] = max(r.unavailable[i], 1-surge) // admission refuses neither
		}
		check(t, r)
	})
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.SampledFrom([]rolled{
			{[2]int32{4, 4}, [2]int32{4, 4}, [2]int32{1, 1}, [2]int32{0, 0}},
			{[2]int32{12, 6}, [2]int32{6, 6}, [2]int32{2, 2}, [2]int32{0, 0}},
			{[2]int32{8, 4}, [2]int32{4, 2}, [2]int32{1, 1}, [2]int32{0, 0}},
			{[2]int32{4, 1}, [2]int32{4, 1}, [2]int32{0, 0}, [2]int32{1, 1}},
		}).Draw(t, "change"))
	})
}
