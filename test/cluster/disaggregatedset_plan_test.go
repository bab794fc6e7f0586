package cluster

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	cli "lockstep.dev/lockstep/internal/cli/disaggregated"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// rolesManifest is the file of a set.
func (s *scene) rolesManifest(set *dsv1.DisaggregatedSet) string {
	file := s.rolesSet(set.Name, set.Spec.Roles...)
	file.Annotations = set.Annotations
	file.SetGroupVersionKind(dsv1.GroupVersion.WithKind("DisaggregatedSet"))
	text, err := json.Marshal(file)
	s.Check("encode a manifest", err)
	return string(text)
}

// A rollout keeps the floors and the peaks that "plan -f" prints, whatever becomes ready when. It ends with the last step,
// and makes and deletes what the plan names. Then the same file changes nothing, and the plan has no text.
func TestARolloutStaysWithinItsPlan(t *testing.T) {
	type change struct {
		prefill, decode int32
		make            func(*dsv1.DisaggregatedSet)
	}
	scaled := func(set *dsv1.DisaggregatedSet) {
		rolesRun(imageB)(set)
		set.Spec.Roles[0].Spec.Replicas = new(int32(3))
	}
	each(t, map[string]change{
		"another image":          {4, 4, rolesRun(imageB)},
		"another image and size": {6, 3, scaled},
	}, func(s *scene, row change) {
		set := s.settledRoles(s.rolesSet("a", s.roleOf("prefill", row.prefill, 2, imageA, readyAfter("2s")), s.roleOf("decode", row.decode, 1, imageA)))
		before, after := s.childrenOf(set), set.DeepCopy()
		row.make(after)
		var plan cli.SetPlan
		out := s.answer(bed.Plane, s.rolesManifest(after), "plan", "-f", "-", "-o", "json")
		s.Check("read "+out, json.Unmarshal([]byte(out), &plan))
		expect.Must(s, len(plan.Slices) == 1 && len(plan.Peaks) == 3, "the plan is %s", out)
		end := s.watching()
		set = s.awaitRoles(s.changeRoles("a", row.make))
		s.still()
		w, steps := end(), plan.Slices[0]
		for i, role := range steps.Roles {
			last := int(steps.Steps[len(steps.Steps)-1][0][i])
			expect.Equalf(s, last, s.holding()[role], "groups of %s at last", role)
			expect.That(s, w.least[role] >= int(steps.Floors[i]), "%s: %d groups were ready, the plan has %d at least", role, w.least[role], steps.Floors[i])
			expect.That(s, w.most[role] <= plan.Peaks[i].Groups, "%s: %d groups held nodes, the plan has %d at most", role, w.most[role], plan.Peaks[i].Groups)
		}
		lacks := func(from, other []string) (names []string) {
			for _, name := range from {
				if !slices.Contains(other, name) {
					names = append(names, "LeaderWorkerSet "+name)
				}
			}
			return names
		}
		isOther := func(object string) bool { return !strings.HasPrefix(object, "LeaderWorkerSet ") }
		expect.Equal(s, lacks(s.childrenOf(set), before), slices.DeleteFunc(plan.Created, isOther))
		expect.Equal(s, lacks(before, s.childrenOf(set)), slices.DeleteFunc(plan.Deleted, isOther))
		expect.Equal(s, 4, len(s.Pick(func(r *drill.Record) bool { _, is := r.Last.(*lwsv1.LeaderWorkerSet); return is })))
		expect.Equal(s, "", s.answer(bed.Plane, s.rolesManifest(after), "plan", "-f", "-"))
	})
}
