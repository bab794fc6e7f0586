package lws_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// createdAgain is a set that was just deleted and created again, beside the named objects of its
// previous incarnation, or all of them.
func createdAgain(t testing.TB, replicas, size int32, left ...string) *cluster {
	t.Helper()
	c := running(t, replicas, size)
	c.pass(time.Minute)
	gone[Set]("w")(c)
	for name, object := range c.Objects {
		if len(left) > 0 && !slices.Contains(left, strings.ToLower(string(name.Kind))+" "+name.Name) {
			delete(c.Objects, fakeapi.NameOf(object))
		}
	}
	fakeapi.Add(c.Server, fakeapi.Set("w", replicas, size))
	return c
}

func leaders(n int) (pods []string) {
	for i := range n {
		pods = append(pods, fmt.Sprintf("pod w-%d", i))
	}
	return pods
}

// progress is the condition Progressing that a plan writes.
func progress(t *testing.T, plan lws.Plan) metav1.Condition {
	t.Helper()
	return condition(written(t, plan), progressing)
}

func TestASetWaitsForItsPreviousLeaders(t *testing.T) {
	for facts, left := range map[string][]string{
		": 3 w w-0 w-1": {"statefulset w", "pod w-0", "pod w-1"}, ": 1 w": {"statefulset w"}, ": 1 w-1": {"pod w-1"},
	} {
		c := createdAgain(t, 2, 2, left...)
		plan := c.decideSet()
		write := one[action.WriteStatus](t, plan)
		if diff := cmp.Diff([]string{"status leaderworkerset w"}, spelled(plan)); diff != "" {
			t.Errorf("%s: plan (-want +got)\n%s", left, diff)
		}
		if diff := cmp.Diff(map[string]string{progressing: "True WaitingForPreviousIncarnation" + facts}, brief(write.Status)); diff != "" {
			t.Errorf("%s: conditions (-want +got)\n%s", left, diff)
		}
		if diff := cmp.Diff([]string{"WaitingForPreviousIncarnation/Wait" + facts}, notes(write)); diff != "" {
			t.Errorf("%s: events (-want +got)\n%s", left, diff)
		}
		c.do(plan)
		gone[Pod]("w-0", "w-1")(c)
		gone[StatefulSet]("w")(c)
		c.pass(10 * time.Second)
		if told := notes(one[action.WriteStatus](t, c.decideSet())); !slices.Contains(told, "PreviousIncarnationGone/Wait") {
			t.Errorf("%s: in the end %q", left, told)
		}
	}
	c := createdAgain(t, 12, 1, leaders(12)...)
	leaving[Pod]("w-3")(c)
	if got := facts(progress(t, c.decideSet()).Message); !strings.HasPrefix(got, ": 12 ") || !strings.HasSuffix(got, "w-0 w-1 w-2 w-3 w-4 w-5 w-6 w-7 4") {
		t.Errorf("twelve pods: got %q", got)
	}
}

// What a group of the same set left ends in each step of a rollout: no text calls it a previous incarnation.
func TestAnOrdinaryStepNamesNoPreviousIncarnation(t *testing.T) {
	at := func(o metav1.Object, after time.Duration) {
		o.SetCreationTimestamp(metav1.NewTime(fakeapi.Epoch.Add(after)))
	}
	for name, tt := range map[string]struct {
		happens step
		says    bool
	}{
		"workers of the former leader": {then(previous[StatefulSet]("w-0", "w-0"), on("w-0", func(sts StatefulSet) { at(sts, time.Minute) })), false},
		"a worker of the former leader, with a gated leader": {then(on("w-0", gated), previous[Pod]("w-0-1", "w-0"), gone[StatefulSet]("w-0"),
			on("w-0-1", func(pod Pod) { at(pod, time.Minute) })), false},
		"workers of a former set": {then(previous[StatefulSet]("w-0", "w-0"), on("w-0", func(sts StatefulSet) { at(sts, -time.Minute) })), true},
	} {
		c := with(1, 3)(t)
		on("w", func(set Set) { at(set, 0) })(c)
		tt.happens(c)
		wait, ok := waitFor(c.decideGroup("w-0"), lws.CodePreviousIncarnation)
		if !ok || strings.Contains(wait.Sentence, "previous incarnation") != tt.says {
			t.Errorf("%s: got %+v", name, wait)
		}
		ofSet, ok := waitFor(c.decideSet(), lws.CodePreviousIncarnation)
		if ok && ofSet.Ordinary == tt.says || wait.Ordinary == tt.says {
			t.Errorf("%s: got %+v and %+v", name, wait, ofSet)
		}
	}
}

// A pod of the previous incarnation that does not leave is reported with what ends it. The status
// can be stored, however many finalizers hold the pod.
func TestAStuckPodOfThePreviousIncarnation(t *testing.T) {
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("example.com/%s-%d", strings.Repeat("long", 10), i))
	}
	for name, tt := range map[string]struct {
		says    []string
		happens step
	}{
		"a finalizer": {[]string{"pod w-1", "example.com/a, example.com/b"}, leaving[Pod]("w-1", "example.com/a", "example.com/b")},
		"a thousand":  {[]string{"pod w-1", "example.com/long"}, leaving[Pod]("w-1", many...)},
		"a node":      {[]string{"kubectl taint node node-0 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"}, leaving[Pod]("w-1")},
		"one owner too many": {[]string{"pod w-1", "garbage collector"}, on("w-1", func(pod Pod) {
			pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "x", UID: "x"})
		})},
	} {
		t.Run(name, func(t *testing.T) {
			c := createdAgain(t, 2, 1, "pod w-1")
			tt.happens(c)
			carriedOut(c)
			c.pass(time.Minute - time.Second)
			if early := of[action.WriteStatus](c.decideSet()); len(early) > 0 {
				t.Errorf("before a minute: %v", brief(early[0].Status))
			}
			c.pass(time.Second)
			plan := c.decideSet()
			write := one[action.WriteStatus](t, plan)
			message := condition(write.Status, progressing).Message
			for _, part := range tt.says {
				if !strings.Contains(message, part) {
					t.Errorf("%q does not say %q", message, part)
				}
			}
			if len(message) > messageLimit/2 || !utf8.ValidString(message) {
				t.Errorf("the message has %d bytes, valid UTF-8: %t", len(message), utf8.ValidString(message))
			}
			event := write.Tell.Done[len(write.Tell.Done)-1]
			if !event.Warning || event.Reason != "PreviousIncarnationStuck" || !strings.Contains(event.Note, "w-1") {
				t.Errorf("got event %+v", event)
			}
			if wait, ok := waitFor(plan, lws.CodePreviousIncarnation); !ok || wait.Until.Sub(c.Now) != 10*time.Second || len(of[action.Delete](plan)) > 0 {
				t.Errorf("got %s, waits %v", spelled(plan), plan.Waits)
			}
			c.do(lws.Plan{Actions: []action.Action{write}})
			c.pass(time.Minute)
			if again := of[action.WriteStatus](c.decideSet()); len(again) > 0 || !lws.ToldStuck(find[Set](c, "w")) {
				t.Errorf("reported again, or not read as stuck: %v", again)
			}
		})
	}
}

// The garbage collector can delete workers only once their owner is gone, and a leader takes its grace period to end. The
// operator, which saw them wait for all of that time, used to delete them in the same moment as the collector.
func TestTheCollectorHasThreeSecondsOnceTheOwnerIsGone(t *testing.T) {
	c := running(t, 2, 2)
	leaving[Pod]("w-1", "example.com/held")(c)
	c.decideGroup("w-1")
	for _, step := range []struct {
		after time.Duration
		goes  step
		want  string
	}{
		{time.Minute, gone[Pod]("w-1"), "| Garbage"},
		{3*time.Second - time.Nanosecond, nothing, "| Garbage"},
		{time.Nanosecond, nothing, "delete statefulset w-1"},
		{time.Minute, gone[StatefulSet]("w-1"), "| Garbage"},
		{3*time.Second - time.Nanosecond, nothing, "| Garbage"},
		{time.Nanosecond, nothing, "delete pod w-1-1"},
	} {
		c.pass(step.after)
		step.goes(c)
		if got := short(c.decideGroup("w-1")); got != step.want {
			t.Errorf("after %s: got %q, want %q", step.after, got, step.want)
		}
	}
}
