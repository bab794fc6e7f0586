package lws_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/lwstest"
)

// filed tells which images revisions hold, by the label they are listed by: those
// in use, and those of the history, each with its number.
func filed(c *cluster) map[string][]string {
	found := map[string][]string{}
	for _, r := range revisions(c) {
		restored, err := lws.Restore(find[*lwsv1.LeaderWorkerSet](c, "w"), r.Data.Raw)
		if err != nil {
			c.t.Fatalf("%v", err)
		}
		image := restored.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image
		what := fmt.Sprintf("%s %d", image, r.Revision)
		switch {
		case r.Labels[lwsv1.SetNameLabelKey] == "w" && r.Labels[lws.HistoryLabelKey] == "":
			found["in use"] = append(found["in use"], what)
		case r.Labels[lws.HistoryLabelKey] == "w" && r.Labels[lwsv1.SetNameLabelKey] == "":
			found["history"] = append(found["history"], what)
		default:
			c.t.Fatalf("revision %s has labels %v", r.Name, r.Labels)
		}
	}
	for _, label := range found {
		slices.Sort(label)
	}
	return found
}

func TestRevisionsThatNoGroupRunsAreFiledAway(t *testing.T) {
	tests := []struct {
		name  string
		limit func(*lwsv1.LeaderWorkerSet)
		want  []string
	}{
		{"five by default", func(*lwsv1.LeaderWorkerSet) {}, []string{"image:2 2", "image:3 3", "image:4 4", "image:5 5", "image:6 6"}},
		{"as many as asked for", lwstest.Annotation(lwsv1.HistoryLimitAnnotationKey, "2"), []string{"image:5 5", "image:6 6"}},
		{"none", lwstest.Annotation(lwsv1.HistoryLimitAnnotationKey, "0"), nil},
		{"five when not a number", lwstest.Annotation(lwsv1.HistoryLimitAnnotationKey, "-1"), []string{"image:2 2", "image:3 3", "image:4 4", "image:5 5", "image:6 6"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := running(t, 1, 2, tt.limit)
			for i := 2; i <= 7; i++ {
				image(c, fmt.Sprintf("image:%d", i))
				c.settleAll()
			}
			want := map[string][]string{"in use": {"image:7 7"}}
			if tt.want != nil {
				want["history"] = tt.want
			}
			got := filed(c)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestGoingBackTakesTheRevisionOutOfTheHistory(t *testing.T) {
	c := running(t, 1, 2)
	first := revisions(c)[0]
	image(c, "image:2")
	c.settleAll()
	image(c, "image:1")
	if plan := spelled(c.decideSet()); plan[0] != "relabel controllerrevision "+first.Name {
		t.Errorf("got %s", plan)
	}
	c.settleAll()
	want := map[string][]string{"in use": {"image:1 3"}, "history": {"image:2 2"}}
	if diff := cmp.Diff(want, filed(c)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if now := find[*appsv1.ControllerRevision](c, first.Name); now.UID != first.UID {
		t.Error("it was made anew")
	}
}

// A group whose revision somebody filed away by hand still gets its workers.
func TestAGroupFindsItsRevisionInTheHistory(t *testing.T) {
	c := running(t, 1, 2)
	lwstest.Edit(c.FakeStore, revisions(c)[0].Name, func(r *appsv1.ControllerRevision) {
		delete(r.Labels, lwsv1.SetNameLabelKey)
		r.Labels[lws.HistoryLabelKey] = "w"
	})
	lwstest.Drop[*appsv1.StatefulSet](c.FakeStore, "w-0")
	lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0-1")
	if diff := cmp.Diff([]string{"create statefulset w-0"}, spelled(c.decideGroup("w-0"))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	c.settleAll()
	if diff := cmp.Diff(map[string][]string{"in use": {"image:1 1"}}, filed(c)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
