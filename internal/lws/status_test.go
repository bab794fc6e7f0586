package lws_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/test/fakeapi"
)

const (
	available   = string(lwsv1.LeaderWorkerSetAvailable)
	progressing = string(lwsv1.LeaderWorkerSetProgressing)
	updating    = string(lwsv1.LeaderWorkerSetUpdateInProgress)
)

// brief is each condition without its prose: "True GroupsProgressing", and the objects
// and numbers that its message names.
func brief(status lwsv1.LeaderWorkerSetStatus) map[string]string {
	short := map[string]string{}
	for _, c := range status.Conditions {
		short[c.Type] = string(c.Status) + " " + c.Reason + facts(c.Message)
	}
	return short
}

const (
	isProgressing  = "True GroupsProgressing"
	wasProgressing = "False GroupsProgressing"
	isAvailable    = "True AllGroupsReady"
	wasAvailable   = "False AllGroupsReady"
	isUpdating     = "True GroupsUpdating"
	wasUpdating    = "False GroupsUpdating"
)

var namesAndNumbers = regexp.MustCompile(`\b(w(-\d+)*|\d+)\b`)

// facts are the objects and numbers that a message names.
func facts(message string) string {
	if found := namesAndNumbers.FindAllString(message, -1); len(found) > 0 {
		return ": " + strings.Join(found, " ")
	}
	return ""
}

// notes are the events of an action without their prose: "GroupsUpdating/Update: 2 2".
func notes(a action.Action) []string {
	var notes []string
	for _, event := range a.Telling().Done {
		notes = append(notes, event.Reason+"/"+event.Action+facts(event.Note))
	}
	return notes
}

func TestStatusOfANewSet(t *testing.T) {
	_, plan := firstLook(t)
	write := one[action.WriteStatus](t, plan)
	if diff := cmp.Diff(map[string]string{progressing: isProgressing}, brief(write.Status)); diff != "" {
		t.Errorf("conditions (-want +got)\n%s", diff)
	}
	if want := "leaderworkerset.sigs.k8s.io/name=w,leaderworkerset.sigs.k8s.io/worker-index=0"; write.Status.HPAPodSelector != want {
		t.Errorf("got selector %q, want %q", write.Status.HPAPodSelector, want)
	}
	want := []string{"GroupsProgressing/Update: 0 2"}
	if diff := cmp.Diff(want, notes(write)); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
}

func TestASetWithoutGroupsIsAvailableAtOnce(t *testing.T) {
	_, plan := firstLook(t, func(set *lwsv1.LeaderWorkerSet) { set.Spec.Replicas = fakeapi.Ptr[int32](0) })
	if diff := cmp.Diff(map[string]string{available: isAvailable}, brief(one[action.WriteStatus](t, plan).Status)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestStatusOfASetInStep(t *testing.T) {
	c := running(t, 2, 3)
	status := c.status()
	if diff := cmp.Diff(map[string]string{available: isAvailable, progressing: wasProgressing}, brief(status)); diff != "" {
		t.Errorf("conditions (-want +got)\n%s", diff)
	}
	if status.Replicas != 2 || status.ReadyReplicas != 2 || status.UpdatedReplicas != 2 || status.ObservedGeneration != 1 {
		t.Errorf("got %+v", status)
	}
	if plan := c.decideSet(); len(plan.Actions) != 0 || len(plan.Waits) != 0 {
		t.Errorf("a set in step has the plan %s, %v", spelled(plan), plan.Waits)
	}
}

func TestConditionsTurn(t *testing.T) {
	tests := []struct {
		name   string
		change func(*cluster)
		want   map[string]string
		events []string
	}{
		{
			"a leader is not ready",
			func(c *cluster) {
				fakeapi.Edit(c.Server, "w-1", func(pod *corev1.Pod) { pod.Status.Conditions = nil })
			},
			map[string]string{available: wasAvailable, progressing: isProgressing},
			[]string{"GroupsProgressing/Update: 1 2"},
		},
		{
			"a leader ended",
			func(c *cluster) {
				fakeapi.Edit(c.Server, "w-1", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
			},
			map[string]string{available: wasAvailable, progressing: isProgressing},
			[]string{"GroupsProgressing/Update: 1 2"},
		},
		{
			"a worker is not available",
			func(c *cluster) {
				fakeapi.Edit(c.Server, "w-1", func(sts *appsv1.StatefulSet) { sts.Status.AvailableReplicas = 1 })
			},
			map[string]string{available: wasAvailable, progressing: isProgressing},
			[]string{"GroupsProgressing/Update: 1 2"},
		},
		{
			"workers are on their way to another template",
			func(c *cluster) {
				fakeapi.Edit(c.Server, "w-1", func(sts *appsv1.StatefulSet) { sts.Status.UpdateRevision = "next" })
			},
			map[string]string{available: wasAvailable, progressing: isProgressing},
			[]string{"GroupsProgressing/Update: 1 2"},
		},
		{
			"more groups are wanted",
			func(c *cluster) {
				fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Generation++; set.Spec.Replicas = fakeapi.Ptr[int32](3) })
			},
			map[string]string{available: wasAvailable, progressing: isProgressing},
			[]string{"GroupsProgressing/Update: 2 3"},
		},
		{
			"the template changed: both conditions in one pass",
			func(c *cluster) {
				fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Generation++; fakeapi.Image("image:2")(set) })
			},
			map[string]string{available: wasAvailable, progressing: isProgressing, updating: isUpdating},
			[]string{"GroupsUpdating/Update: 2 2"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := running(t, 2, 3)
			before := c.status()
			tt.change(c)
			c.pass(time.Minute)
			write := one[action.WriteStatus](t, c.decideSet())
			if diff := cmp.Diff(tt.want, brief(write.Status)); diff != "" {
				t.Errorf("conditions (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tt.events, notes(write)); diff != "" {
				t.Errorf("events (-want +got)\n%s", diff)
			}
			generation := fakeapi.Find[*lwsv1.LeaderWorkerSet](c.Server, "w").Generation
			checkTransitions(t, before.Conditions, write.Status.Conditions, generation, c.Now)
		})
	}
}

// checkTransitions checks that times move with the status and with nothing else,
// and that every condition is observed at the generation.
func checkTransitions(t fatal, before, after []metav1.Condition, generation int64, now time.Time) {
	t.Helper()
	old := map[string]metav1.Condition{}
	for _, c := range before {
		old[c.Type] = c
	}
	for _, c := range after {
		was, known := old[c.Type]
		want := now
		if known && was.Status == c.Status {
			want = was.LastTransitionTime.Time
		}
		if !c.LastTransitionTime.Time.Equal(want) {
			t.Fatalf("%s turned at %s, want %s", c.Type, c.LastTransitionTime, want)
		}
		if c.ObservedGeneration != generation {
			t.Fatalf("%s was observed at generation %d, want %d", c.Type, c.ObservedGeneration, generation)
		}
		if !known && c.Status != metav1.ConditionTrue {
			t.Fatalf("%s first appears as %s", c.Type, c.Status)
		}
	}
}

func TestUpdateInProgressStaysUntilAvailable(t *testing.T) {
	c := running(t, 1, 1)
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Generation++; fakeapi.Image("image:2")(set) })
	c.do(c.decideSet())
	fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) {
		pod.Labels[lwsv1.RevisionKey] = fakeapi.Find[*appsv1.StatefulSet](c.Server, "w").Labels[lwsv1.RevisionKey]
		pod.Status.Conditions = nil
	})
	c.pass(time.Minute)
	c.do(c.decideSet())
	want := map[string]string{available: wasAvailable, progressing: isProgressing, updating: isUpdating}
	if diff := cmp.Diff(want, brief(c.status())); diff != "" {
		t.Errorf("past the update, before ready (-want +got)\n%s", diff)
	}
	fakeapi.Edit(c.Server, "w-0", fakeapi.Up)
	c.pass(time.Minute)
	c.do(c.decideSet())
	want = map[string]string{available: isAvailable, progressing: wasProgressing, updating: wasUpdating}
	if diff := cmp.Diff(want, brief(c.status())); diff != "" {
		t.Errorf("ready (-want +got)\n%s", diff)
	}
}

func TestAGroupWithoutItsWorkersDoesNotCount(t *testing.T) {
	c := running(t, 2, 3)
	fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-1")
	c.pass(time.Minute)
	status := one[action.WriteStatus](t, c.decideSet()).Status
	if status.ReadyReplicas != 1 || status.UpdatedReplicas != 1 || status.Replicas != 2 {
		t.Errorf("got ready %d, updated %d, replicas %d; want 1, 1, 2", status.ReadyReplicas, status.UpdatedReplicas, status.Replicas)
	}
}

// Ready groups at or above replicas were compared with the wanted groups that exist.
func TestAvailableCountsReadyGroupsBelowReplicas(t *testing.T) {
	unready := func(name string) func(*cluster) {
		return func(c *cluster) {
			fakeapi.Edit(c.Server, name, func(pod *corev1.Pod) { pod.Status.Conditions = nil })
		}
	}
	tests := []struct {
		name   string
		change func(*cluster)
		ready  int32
		want   string
	}{
		{"a plain scale-down", func(*cluster) {}, 3, isAvailable},
		{"a surge group is not ready", unready("w-2"), 2, isAvailable},
		{"a wanted group is down and a surge group up", unready("w-1"), 2, wasAvailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := running(t, 3, 2)
			fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Generation++; set.Spec.Replicas = fakeapi.Ptr[int32](2) })
			tt.change(c)
			c.pass(time.Minute)
			status := one[action.WriteStatus](t, c.decideSet()).Status
			if status.ReadyReplicas != tt.ready || brief(status)[available] != tt.want {
				t.Errorf("got %q with %d ready groups, want %q with %d", brief(status)[available], status.ReadyReplicas, tt.want, tt.ready)
			}
		})
	}
}

// With a partition, surge groups stay: the set stayed Progressing for good.
func TestACanaryAtRestIsAvailable(t *testing.T) {
	c := running(t, 3, 1, func(set *lwsv1.LeaderWorkerSet) {
		surge := intstr.FromInt32(1)
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{Partition: fakeapi.Ptr[int32](1), MaxSurge: surge}
		set.Spec.Replicas = fakeapi.Ptr[int32](3)
	})
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Generation++; set.Spec.Replicas = fakeapi.Ptr[int32](2) })
	fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) { pod.Labels[lwsv1.RevisionKey] = "old" })
	c.pass(time.Minute)
	status := one[action.WriteStatus](t, c.decideSet()).Status
	if got := brief(status)[available]; got != isAvailable {
		t.Errorf("got %q with %d ready groups", got, status.ReadyReplicas)
	}
}

func TestGroupsBelowThePartitionNeedNotBeUpdated(t *testing.T) {
	c := running(t, 2, 1, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{Partition: fakeapi.Ptr[int32](1)}
	})
	fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) { pod.Labels[lwsv1.RevisionKey] = "old" })
	c.pass(time.Minute)
	write := one[action.WriteStatus](t, c.decideSet())
	if got := brief(write.Status)[available]; got != isAvailable {
		t.Errorf("got %q", got)
	}
	if write.Status.UpdatedReplicas != 1 {
		t.Errorf("got %d updated, want 1", write.Status.UpdatedReplicas)
	}
}

func TestCountsAloneAreWrittenTogether(t *testing.T) {
	c := running(t, 3, 2)
	down := func(name string) {
		fakeapi.Edit(c.Server, name, func(pod *corev1.Pod) { pod.Status.Conditions = nil })
	}
	down("w-0")
	c.do(c.decideSet())
	down("w-1")
	c.pass(time.Second)
	plan := c.decideSet()
	if len(plan.Actions) != 0 {
		t.Fatalf("a count was written within a second of the last: %s", spelled(plan))
	}
	wait, ok := waitFor(plan, "StatusCoalesced")
	if !ok || !wait.Until.Equal(c.Now.Add(time.Second)) || plan.Next(c.Now) != time.Second {
		t.Errorf("got waits %v", plan.Waits)
	}
	c.pass(time.Second)
	write := one[action.WriteStatus](t, c.decideSet())
	if write.Status.ReadyReplicas != 1 || len(write.Tell.Done) != 0 {
		t.Errorf("got %d ready and events %v, want 1 and none", write.Status.ReadyReplicas, notes(write))
	}
}

func TestATransitionIsWrittenAtOnce(t *testing.T) {
	c := running(t, 1, 1)
	fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) { pod.Status.Conditions = nil })
	c.do(c.decideSet())
	fakeapi.Edit(c.Server, "w-0", fakeapi.Up)
	if got := brief(one[action.WriteStatus](t, c.decideSet()).Status)[available]; got != isAvailable {
		t.Errorf("got %q", got)
	}
}

func TestAGenerationAloneIsToldAgain(t *testing.T) {
	c := running(t, 1, 1)
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Generation++ })
	write := one[action.WriteStatus](t, c.decideSet())
	want := []string{"AllGroupsReady/Update: 1 1"}
	if diff := cmp.Diff(want, notes(write)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if write.Status.ObservedGeneration != 2 {
		t.Errorf("observed generation %d, want 2", write.Status.ObservedGeneration)
	}
}

func TestTheSelectorIsWrittenOnce(t *testing.T) {
	c := running(t, 1, 1)
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Status.HPAPodSelector = "kept"; set.Generation++ })
	if got := one[action.WriteStatus](t, c.decideSet()).Status.HPAPodSelector; got != "kept" {
		t.Errorf("got %q", got)
	}
}
