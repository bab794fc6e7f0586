package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// counts says how many groups each child is to have.
func (s *scene) counts() string {
	var text []string
	for _, child := range drill.Live[*lwsv1.LeaderWorkerSet](s.Recorder) {
		if child.Labels[dsv1.RoleLabelKey] != "" {
			text = append(text, fmt.Sprintf("%s=%d", child.Name, *child.Spec.Replicas))
		}
	}
	return strings.Join(text, " ")
}

// isRolled reports whether a set has the children of its revision, with all of their groups, and no other.
func (s *scene) isRolled(set *dsv1.DisaggregatedSet) bool {
	revision, err := disaggregated.RevisionOf(set.Spec.Roles)
	s.Check("hash", err)
	all := s.byRevision()
	roles := all[disaggregated.Place{Revision: revision}]
	for _, role := range set.Spec.Roles {
		c, isThere := roles[role.Name]
		if !isThere || *c.Spec.Replicas != *role.Spec.Replicas {
			return false
		}
	}
	return len(all) == 1
}

// isDrained reports whether a revision wants no group: the older one is given up in the last step.
func (s *scene) isDrained() bool {
	for _, roles := range s.byRevision() {
		if !slices.ContainsFunc(slices.Collect(maps.Values(roles)), func(c child) bool { return *c.Spec.Replicas > 0 }) {
			return true
		}
	}
	return false
}

// step waits until the set wants other counts, or is rolled, and returns the counts.
func (s *scene) step(set *dsv1.DisaggregatedSet, from string) (now string) {
	s.Until("a step, or the end of the rollout", func() bool { now = s.counts(); return now != from || s.isRolled(set) })
	return now
}

// still waits until each child has the groups that it is to have, and no other holds a node.
func (s *scene) still() {
	s.Until("no group starts or ends", func() bool {
		wanted := map[string]int{}
		for _, roles := range s.byRevision() {
			for role, c := range roles {
				if c.ready != int(*c.Spec.Replicas) {
					return false
				}
				wanted[role] += c.ready
			}
		}
		for role, n := range s.holding() {
			if n != wanted[role] {
				return false
			}
		}
		return true
	})
}

// Scaled at any step of a rollout, roles keep their floors and ceilings. They are level again, and stay so.
func TestRolesAreScaledInMidRollout(t *testing.T) {
	each(t, map[string]int{"at its first step": 1, "early": 4, "halfway": 8, "late": 12}, func(s *scene, steps int) {
		set := s.rolesSet("a", s.roleOf("prefill", 12, 1, imageA), s.roleOf("decode", 6, 1, imageA))
		for i := range set.Spec.Roles {
			set.Spec.Roles[i].Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{MaxSurge: intstr.FromInt32(2)}
		}
		s.settledRoles(set)
		most := map[string]int{"prefill": 14, "decode": 8}
		whole, before, at := s.watching(), s.watching(), s.counts()
		set = s.changeRoles("a", rolesRun(imageB))
		for range steps {
			at = s.step(set, at)
		}
		expect.Must(s, !s.isRolled(set), "the rollout was over before it was scaled")
		w := before()
		w.keep(t, map[string]int{"prefill": 12, "decode": 6}, most)
		w.level(s.T)
		set = s.changeRoles("a", func(set *dsv1.DisaggregatedSet) { set.Spec.Roles[0].Spec.Replicas = new(int32(6)) })
		drill.Await(s.Scene, "a", "the scale is seen", func(now *dsv1.DisaggregatedSet) error {
			return drill.Lacking("observed generation", set.Generation, now.Status.ObservedGeneration)
		})
		after := s.watching()
		s.awaitRoles(set)
		s.still()
		whole().keep(t, map[string]int{"prefill": 6, "decode": 6}, most)
		after().level(s.T)
		expect.Equal(s, map[string]int{"prefill": 6, "decode": 6}, s.holding())
		expect.Equal(s, 12, len(s.uidsOf(imageB)))
	})
}

// A role whose autoscaler takes groups every ten seconds stays level with the other, in a rollout too.
func TestAnExternalRoleFallsInMidRollout(t *testing.T) {
	s, slow := asideScene(t), readyAfter("3s")
	set := s.rolesSet("a", s.roleOf("prefill", 1, 1, imageA, slow), s.roleOf("decode", 4, 1, imageA, slow))
	set.Spec.Roles[0].Scaling = &dsv1.RoleScaling{Mode: dsv1.ScalingExternal}
	s.settledRoles(set)
	s.scaleRole("a-prefill", 8)
	s.Until("the role has eight groups", func() bool { return s.serving()["prefill"] == 8 })
	end := s.watching()
	set = s.changeRoles("a", rolesRun(imageB))
	for n := int32(7); n >= 4; n-- {
		time.Sleep(10 * time.Second)
		s.scaleRole("a-prefill", n)
	}
	s.Until("the role has four groups of the target", func() bool { return s.holding()["prefill"] == 4 && len(s.uidsOf(imageB)) == 8 })
	s.awaitRoles(set)
	s.still()
	w := end()
	w.keep(t, map[string]int{"prefill": 4, "decode": 4}, map[string]int{"prefill": 9, "decode": 5})
	w.level(t)
	expect.Equal(t, map[string]int{"prefill": 4, "decode": 4}, s.holding())
	expect.Equal(t, 8, len(s.uidsOf(imageB)))
}

// Whichever step a rollout reached, its undo ends with the first revision, and keeps every pod of it.
func TestARolloutOfRolesIsTakenBackAtEachStep(t *testing.T) {
	s, slow := asideScene(t), readyAfter("1s")
	set := s.settledRoles(s.rolesSet("a", s.roleOf("prefill", 3, 1, imageA, slow), s.roleOf("decode", 2, 1, imageA, slow)))
	first, sizes := s.childrenOf(set), map[string]int{"prefill": 3, "decode": 2}
	end, stops := s.watching(), map[string]bool{}
	for steps, isOver := 1, false; !isOver; steps++ {
		at := s.counts()
		set = s.changeRoles("a", rolesRun(imageB))
		for range steps {
			at = s.step(set, at)
		}
		s.pauseRoles("a")
		s.still()
		kept := s.uidsOf(imageA)
		stops[s.counts()], isOver = true, s.isRolled(set)
		s.says("rolled back", "undo", "dset/a")
		s.awaitRoles(s.changeRoles("a", func(set *dsv1.DisaggregatedSet) { delete(set.Annotations, lwsv1.PausedAnnotationKey) }))
		s.still()
		expect.Equal(t, first, s.childrenOf(set))
		expect.Equal(t, sizes, s.holding())
		now := s.uidsOf(imageA)
		expect.Equal(t, 5, len(now))
		for uid, name := range kept {
			expect.That(t, now[uid] == name, "step %d: pod %s of the first revision is gone", steps, name)
		}
	}
	w := end()
	w.keep(t, sizes, map[string]int{"prefill": 4, "decode": 3})
	w.level(t)
	expect.That(t, len(stops) >= 5, "the rollout was stopped with these counts only: %v", stops)
}

// pauseRoles pauses a rollout, and waits until the set says so, or has nothing to pause.
func (s *scene) pauseRoles(name string) {
	s.changeRoles(name, func(set *dsv1.DisaggregatedSet) {
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, lwsv1.PausedAnnotationKey, lwsv1.PausedValue)
	})
	drill.Await(s.Scene, name, "the rollout is paused, or over", func(set *dsv1.DisaggregatedSet) error {
		c := meta.FindStatusCondition(set.Status.Conditions, dsv1.ConditionProgressing)
		if c == nil || c.Status == metav1.ConditionTrue && c.Reason != "RolloutPaused" {
			return fmt.Errorf("Progressing: %v", c)
		}
		return nil
	})
}

// A program that is killed at every step costs a rollout nothing: it ends, with every pair, and with each child made once.
func TestRolesRollWhileAProgramIsKilled(t *testing.T) {
	again := func() error { return errors.Join(bed.Operator.Kill(), bed.Operator.Start()) }
	type program struct {
		kill, back func() error
		least      int // kills: steps are taken unseen until the clients of the API server watch again
	}
	inTurn(t, map[string]program{
		"the operator": {kill: again, back: func() error { return nil }, least: 3},
		"the API server": {
			kill: func() error { // the scheduler ends itself with a binding that it missed
				return errors.Join(bed.Plane.Kill(apiServer), bed.Plane.Restart(apiServer), bed.Plane.Restart(scheduler))
			},
			// The garbage collector may have missed an end, and the operator has not watched again what it was denied meanwhile.
			back: func() error { return errors.Join(bed.Plane.Restart(controllerManager), again()) }, least: 1,
		},
	}, func(s *scene, of program) {
		s.settledRoles(s.rolesSet("a", s.roleOf("prefill", 3, 2, imageA), s.roleOf("decode", 2, 1, imageA)))
		end, at, kills := s.watching(), s.counts(), 0
		set := s.changeRoles("a", rolesRun(imageB))
		for at = s.step(set, at); !s.isDrained(); at = s.step(set, at) {
			s.Check("kill it, and start it again", of.kill())
			kills++
		}
		s.Check("start what missed an end", of.back())
		s.awaitRoles(set)
		s.still()
		w := end()
		w.keep(s.T, map[string]int{"prefill": 3, "decode": 2}, map[string]int{"prefill": 4, "decode": 3})
		w.level(s.T)
		expect.That(s, kills >= of.least, "it was killed %d times only", kills)
		made := s.Pick(func(r *drill.Record) bool { return r.Kind == "LeaderWorkerSet" })
		expect.Equalf(s, 4, len(made), "children ever: %s", names(made))
		for _, pod := range s.Pods() {
			expect.That(s, pod.DeletionTimestamp != nil || imageOf(pod) == imageB, "pod %s runs %s", pod.Name, imageOf(pod))
		}
	})
}
