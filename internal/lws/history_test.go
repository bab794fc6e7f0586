package lws_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
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
		{"as many as asked for", fakeapi.Annotation(lwsv1.HistoryLimitAnnotationKey, "2"), []string{"image:5 5", "image:6 6"}},
		{"none", fakeapi.Annotation(lwsv1.HistoryLimitAnnotationKey, "0"), nil},
		{"five when not a number", fakeapi.Annotation(lwsv1.HistoryLimitAnnotationKey, "-1"), []string{"image:2 2", "image:3 3", "image:4 4", "image:5 5", "image:6 6"}},
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
	fileAway(c, revisions(c)[0].Name)
	fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-0")
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0-1")
	if diff := cmp.Diff([]string{"create statefulset w-0"}, spelled(c.decideGroup("w-0"))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	c.settleAll()
	if diff := cmp.Diff(map[string][]string{"in use": {"image:1 1"}}, filed(c)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Caches tell of a rollout that is done, and meanwhile a leader runs the old revision
// again, or is to: the revision is as it was judged, what is relied on is not.
func TestARevisionIsNotFiledAwayNorDroppedOnceLeadersMayRunIt(t *testing.T) {
	tests := map[string]func(c *cluster, old string){
		"a leader runs it": func(c *cluster, old string) {
			delete(c.Objects, fakeapi.NameOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w-0"}}))
			leader := fakeapi.Pod("w-0", "w", 0)
			leader.Labels = map[string]string{lwsv1.RevisionKey: old}
			leader.OwnerReferences = controllerRef("apps/v1", "StatefulSet", find[*appsv1.StatefulSet](c, "w"))
			fakeapi.Add(c.Server, leader)
		},
		"the leader statefulset was written": func(c *cluster, _ string) {
			fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { sts.Annotations["note"] = "new" })
		},
	}
	for _, limit := range []string{"0", "5"} {
		for name, change := range tests {
			t.Run(name+", "+limit+" are kept", func(t *testing.T) {
				c := running(t, 1, 2, fakeapi.Annotation(lwsv1.HistoryLimitAnnotationKey, limit))
				old := revisions(c)[0].Labels[lwsv1.RevisionKey]
				image(c, "image:2")
				put := untilSuperseded(c)
				change(c, old)
				if err := c.Do(put); err == nil {
					t.Errorf("it went through: %s %s", put.Verb(), put.Target())
				}
			})
		}
	}
}

// A set that lives with a partition changes its template time and again.
func TestBelowAPartitionRevisionsAreFiledAwayAsWell(t *testing.T) {
	c := running(t, 3, 2, func(set *lwsv1.LeaderWorkerSet) { rollingOf(set).Partition = ptr.To[int32](1) })
	for i := 2; i <= 9; i++ {
		image(c, fmt.Sprintf("image:%d", i))
		c.settleAll()
	}
	want := map[string][]string{
		"in use":  {"image:1 1", "image:9 9"},
		"history": {"image:4 4", "image:5 5", "image:6 6", "image:7 7", "image:8 8"},
	}
	if diff := cmp.Diff(want, filed(c)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	c.Remove(find[*corev1.Pod](c, "w-0"), metav1.DeletePropagationBackground)
	c.settleAll()
	if got := find[*corev1.Pod](c, "w-0-1").Spec.Containers[0].Image; got != "image:1" {
		t.Errorf("the group below the partition comes again with %s", got)
	}
}

// No leader is there that tells what the StatefulSet controller makes below the partition.
func TestWhatMayBeMadeBelowAPartitionStaysInUse(t *testing.T) {
	c := running(t, 2, 2, func(set *lwsv1.LeaderWorkerSet) { rollingOf(set).Partition = ptr.To[int32](1) })
	image(c, "image:2")
	c.settleAll()
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0")
	for _, a := range c.decideSet().Actions {
		if a.Why().Code == lws.CodeSuperseded {
			t.Errorf("%s %s: %s", a.Verb(), a.Target(), a.Why().Sentence)
		}
	}
}

// Who says "undo to 1" must not find two of that number.
func TestARevisionMadeAnewIsNumberedAboveTheHistory(t *testing.T) {
	c := running(t, 1, 2)
	image(c, "image:2")
	c.settleAll()
	for _, revision := range revisions(c) {
		if workload.BearsName(revision, "w") {
			fakeapi.Drop[*appsv1.ControllerRevision](c.Server, revision.Name)
		}
	}
	fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w")
	c.settleAll()
	want := map[string][]string{"in use": {"image:2 2"}, "history": {"image:1 1"}}
	if diff := cmp.Diff(want, filed(c)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// untilSuperseded goes on until a revision is to be put away, and returns how.
func untilSuperseded(c *cluster) action.Action {
	c.t.Helper()
	for range 200 {
		plan := c.decideSet()
		if len(plan.Actions) > 0 && plan.Actions[0].Why().Code == lws.CodeSuperseded {
			return plan.Actions[0]
		}
		c.do(plan)
		c.turn(allGroups...)
		c.collect()
	}
	c.t.Fatalf("no revision is put away")
	return nil
}

// fileAway puts a revision into the history.
func fileAway(c *cluster, revision string) {
	fakeapi.Edit(c.Server, revision, func(r *appsv1.ControllerRevision) {
		delete(r.Labels, lwsv1.SetNameLabelKey)
		r.Labels[lws.HistoryLabelKey] = "w"
	})
}
