package lws_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// handOver leaves of the leaders' StatefulSet what another implementation would
// have written, and starts an operator that remembers nothing.
func (w *rollingWorld) handOver() {
	fakeapi.Edit(w.Server, "w", func(sts *appsv1.StatefulSet) {
		delete(sts.Annotations, lws.AppliedAnnotationKey)
	})
	w.restart()
}

// judgeTakeover wants the first write after a hand-over to leave the template alone,
// and no revision to be made of a spec that has one.
func (w *rollingWorld) judgeTakeover(plan lws.Plan, changed bool) {
	live := fakeapi.Find[*appsv1.StatefulSet](w.Server, "w")
	for _, a := range plan.Actions {
		switch a := a.(type) {
		case action.Create:
			if _, revision := a.Object.(*appsv1.ControllerRevision); revision && !changed {
				w.t.Fatalf("%s is made", a.Target())
			}
		case action.Apply:
			wanted, leaders := a.Object.(*appsv1.StatefulSet)
			if !leaders || wanted.Labels[lwsv1.RevisionKey] != live.Labels[lwsv1.RevisionKey] || sentElsewhere(live, wanted) {
				continue
			}
			if diff := cmp.Diff(stamps(live), stamps(wanted)); diff != "" {
				w.t.Fatalf("the template changes (-live +wanted)\n%s", diff)
			}
		}
	}
}

// stamps is what of a template replaces pods: the rest follows from the spec.
func stamps(sts *appsv1.StatefulSet) string {
	template := sts.Spec.Template
	return fmt.Sprint(template.Labels, template.Annotations, template.Spec.Containers[0].Image)
}

// TestRolloutsAreTakenOver: a rollout that another implementation began goes on
// from wherever it is, as if it had been ours.
func TestRolloutsAreTakenOver(t *testing.T) {
	for name, gate := range map[string]bool{"with maxUnavailable": true, "without maxUnavailable": false} {
		t.Run(name, func(t *testing.T) {
			m := &met{counts: map[string]int{}}
			rapid.Check(t, func(t *rapid.T) {
				w := newRollingWorld(t, gate, m)
				w.roll("")
				for range rapid.IntRange(1, 2).Draw(t, "hand-overs") {
					for range rapid.IntRange(0, 40).Draw(t, "steps") {
						w.step()
					}
					w.handOver()
					truth := w.truth()
					changed := truth.StatefulSet.Member() == nil || !settledOn(truth)
					m.when("a hand-over in mid-rollout", partition(truth.StatefulSet.Member()) > 0)
					w.judgeTakeover(lws.DecideSet(truth), changed)
				}
				w.resume()
				if w.image() == broken {
					w.roll("")
				}
				w.everybody()
				w.checkRolled()
			})
			for _, premise := range []string{"a hand-over in mid-rollout", "groups given up", "a pod made"} {
				if m.counts[premise] == 0 {
					t.Errorf("invalid run: never met %s; met %v", premise, m.counts)
				}
			}
		})
	}
}

// settledOn tells whether the leaders were given what the spec says.
func settledOn(world lws.SetSnapshot) bool {
	image := world.Set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image
	return world.StatefulSet.Member().Spec.Template.Spec.Containers[0].Image == image
}
