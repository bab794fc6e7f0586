package lws_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	rev "lockstep.dev/lockstep/internal/lws/revision"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

const (
	budgetFinalizer = lwsv1.GroupRestartBudgetFinalizer
	recover         = lwsv1.RecoverAnnotationKey
)

// atMost limits how often a group is recreated. A negative number is no limit.
func atMost(n int32) edit {
	return func(set Set) {
		set.Spec.LeaderWorkerTemplate.MaxGroupRestarts = &n
		if n < 0 {
			set.Spec.LeaderWorkerTemplate.MaxGroupRestarts = nil
		}
	}
}

// budget returns a set of groups in step that are recreated so often at most.
func budget(replicas, size, n int32, edits ...edit) func(testing.TB) *cluster {
	return with(replicas, size, append([]edit{onRestart, atMost(n)}, edits...)...)
}

// failures lets a worker of group 0 fail so often, until the cluster is at rest each time.
func failures(times int) step {
	return func(c *cluster) {
		for range times {
			c.pass(time.Hour) // no back-off
			on("w-0-1", crash)(c)
			c.settle()
		}
	}
}

// recovered has a user recover group 0.
var recovered = annotated("w-0", recover, "true")

func annotated(pod, key, value string) step {
	return on(pod, func(pod Pod) {
		pod.Annotations = withAnnotation(pod.Annotations, key, value)
	})
}

func withAnnotation(annotations map[string]string, key, value string) map[string]string {
	changed := map[string]string{key: value}
	for k, v := range annotations {
		if k != key {
			changed[k] = v
		}
	}
	return changed
}

// ofOthers makes a retained group as another implementation leaves it.
var ofOthers = then(
	on("w-0", func(pod Pod) {
		pod.Annotations = withAnnotation(pod.Annotations, lwsv1.GroupRestartBudgetExhaustedAnnotationKey, "true")
	}),
	leaving[Pod]("w-0", budgetFinalizer, metav1.FinalizerDeleteDependents),
	leaving[StatefulSet]("w-0", metav1.FinalizerDeleteDependents), leaving[Pod]("w-0-1", budgetFinalizer),
)

// recreations returns how often group 0 was recreated by the status, or -1.
func recreations(c *cluster) int32 {
	for _, entry := range c.status().Restarts {
		if entry.Index == 0 && entry.Recreations != nil {
			return *entry.Recreations
		}
	}
	return -1
}

func uidsOf(c *cluster, names ...string) (uids []types.UID) {
	for _, name := range names {
		uids = append(uids, find[Pod](c, name).UID)
	}
	return uids
}

// A group is recreated as often as maxGroupRestarts allows, and the failure that exhausts it is not
// counted.
func TestAGroupIsRecreatedAsOftenAsItMay(t *testing.T) {
	for limit, want := range map[int32]int32{-1: -1, 0: -1, 1: 1, 2: 2} {
		c := budget(2, 2, limit)(t)
		for i := range 5 {
			before := find[Pod](c, "w-0").UID
			if failures(1)(c); int32(i) == limit {
				break
			}
			expect.That(t, find[Pod](c, "w-0").UID != before,
				"maxGroupRestarts %d: failure %d did not recreate the group", limit, i+1)
			if limit > 0 && recreations(c) != int32(i+1) {
				t.Errorf("maxGroupRestarts %d: %d counted after %d failures", limit, recreations(c), i+1)
			}
		}
		expect.Equalf(t, want, recreations(c), "maxGroupRestarts %d: counted", limit)
		stopped := lws.IsExhausted(find[Pod](c, "w-0"))
		expect.That(t, stopped == (limit >= 0) && !lws.IsExhausted(find[Pod](c, "w-1")),
			"maxGroupRestarts %d: stopped %t", limit, stopped)
		if stopped {
			uids := uidsOf(c, "w-0", "w-0-1")
			then(settled, after(24*time.Hour), settled)(c)
			expect.Equalf(t, uids, uidsOf(c, "w-0", "w-0-1"), "maxGroupRestarts %d: the pods that stay became others", limit)
			if entry := c.status().Restarts[0]; entry.Leader != uids[0] || entry.Failures[len(entry.Failures)-1].Reason != "OOMKilled" {
				t.Errorf("maxGroupRestarts %d: the evidence is %+v", limit, entry)
			}
		}
	}
}

// A drain stops no group, whichever pod it evicts and whatever the limit, and leaves the count as it is.
func TestADrainExhaustsNoBudget(t *testing.T) {
	for _, pod := range []string{"w-0", "w-0-1"} {
		for name, condition := range map[string]func(Pod){
			"DisruptionTarget": disrupted, "TerminationTarget": terminationTarget,
			"the kubelet": func(pod Pod) { disrupted(pod); pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted" },
		} {
			for _, limit := range []int32{0, 1} {
				c := budget(2, 2, limit)(t)
				failures(int(limit))(c)
				counted := recreations(c)
				for range 3 {
					before := find[Pod](c, "w-0").UID
					if on(pod, condition)(c); find[Pod](c, pod).Status.Phase != corev1.PodFailed {
						leaving[Pod](pod)(c)
					}
					settled(c)
					if leader := find[Pod](c, "w-0"); leader.UID == before || lws.IsExhausted(leader) {
						t.Errorf("%s of %s, maxGroupRestarts %d: the group is not recreated", name, pod, limit)
					}
				}
				expect.Equalf(t, counted, recreations(c), "%s of %s, maxGroupRestarts %d: counted", name, pod, limit)
				if failures(1)(c); !lws.IsExhausted(find[Pod](c, "w-0")) {
					t.Errorf("%s of %s, maxGroupRestarts %d: the failure after the drains does not stop the group", name, pod, limit)
				}
			}
		}
	}
}

// The marks go onto the leader, then onto its workers; then the leader is deleted, once.
func TestAGroupThatExhaustsItsBudgetIsStopped(t *testing.T) {
	c := budget(1, 3, 0)(t)
	then(annotated("w-0", recover, "true"), on("w-0-1", crash))(c)
	plan := c.decideGroup("w-0")
	got, want := short(plan), "set-finalizers pod w-0, set-finalizers pod w-0-1, set-finalizers pod w-0-2, delete pod w-0"
	expect.Must(t, got == want, "got %q, want %q", got, want)
	event := plan.Actions[3].(action.Delete).Tell.Done[0]
	if !event.Warning || event.Reason != "ReplicaRestartBudgetExceeded" || event.Action != "Delete" ||
		event.Note != "Restart budget exhausted; terminated group 0 and stopped automatic recovery" {
		t.Errorf("the event is %+v", event)
	}
	c.do(lws.Plan{Plan: action.Plan{Actions: plan.Actions[:1]}})
	c.awake() // the process ended, and another one continues
	if a := find[Pod](c, "w-0").Annotations; a[lwsv1.GroupRestartBudgetExhaustedAnnotationKey] != "true" || a[recover] != "" || a[restart.AnnotationKey] == "" {
		t.Errorf("the leader has %v", a)
	}
	expect.Equal(t, spelled(plan)[1:], spelled(c.decideGroup("w-0")))
}

// How a group that was stopped leaves that state.
func TestWhatEndsTheRetention(t *testing.T) {
	const stays, goes, recreated = "stays", "goes", "is recreated"
	one := func(edits ...edit) func(testing.TB) *cluster { return budget(1, 2, 0, edits...) }
	two := budget(2, 2, 0)
	exhausts := failures(1)
	deletedSet := func(c *cluster) { c.Remove(find[Set](c, "w"), metav1.DeletePropagationBackground) }
	foreground := func(c *cluster) { c.Remove(find[Set](c, "w"), metav1.DeletePropagationForeground) }
	bothDown := func(set Set) { rollingOf(set).MaxUnavailable = intstr.FromInt32(2) }
	image2 := user(fakeapi.Image("image:2"))
	for name, tt := range map[string]struct {
		of      func(testing.TB) *cluster
		happens step
		want    string
	}{
		"nothing":                            {one(), exhausts, stays},
		"it is recovered":                    {one(), then(exhausts, recovered), recreated},
		"recover has another value":          {one(), then(exhausts, annotated("w-0", recover, "yes")), stays},
		"recover was set before":             {one(), then(annotated("w-0", recover, "true"), exhausts), stays},
		"recover is on a worker":             {one(), then(exhausts, annotated("w-0-1", recover, "true")), stays},
		"the set is deleted":                 {one(), then(exhausts, deletedSet), goes},
		"it is deleted in the foreground":    {one(), then(exhausts, foreground), goes},
		"the set is gone":                    {one(), then(exhausts, gone[Set]("w")), goes},
		"another set has its name":           {one(), then(exhausts, gone[Set]("w"), func(c *cluster) { fakeapi.Add(c.Server, fakeapi.Set("w", 1, 2, onRestart)) }), recreated},
		"its StatefulSet is deleted":         {one(), then(exhausts, gone[StatefulSet]("w")), recreated},
		"its StatefulSet loses its owner":    {one(), then(exhausts, orphaned[StatefulSet]("w")), stays},
		"it is scaled away":                  {one(), then(exhausts, user(replicas(0))), goes},
		"others are scaled away":             {two, then(exhausts, user(replicas(1))), stays},
		"the set is scaled up":               {one(), then(exhausts, user(replicas(2))), stays},
		"the template changes":               {one(), then(exhausts, image2), recreated},
		"the partition keeps it":             {two, then(exhausts, user(partitioned(1)), image2), stays},
		"the rollout reaches it":             {two, then(exhausts, user(partitioned(1), bothDown), image2, settled, user(partitioned(0))), recreated},
		"it uses up the budget of a rollout": {two, then(exhausts, image2), stays},
		"the rollout is paused":              {one(), then(exhausts, pause, image2), stays},
		"the limit is raised":                {one(), then(exhausts, user(atMost(9))), stays},
		"the limit is unset":                 {one(), then(exhausts, user(atMost(-1))), stays},
		"it is unset, and it is recovered":   {one(), then(exhausts, user(atMost(-1)), settled, recovered), recreated},
		"the policy becomes None":            {one(), then(exhausts, pause, user(atMost(-1), fakeapi.Policy(lwsv1.NoneRestartPolicy))), stays},
		"it is recovered under None":         {budget(2, 2, 1), then(failures(2), user(atMost(-1), fakeapi.Policy(lwsv1.NoneRestartPolicy)), settled, recovered), recreated},
		"its pods are deleted by hand":       {one(), then(exhausts, removed[Pod]("w-0"), removed[Pod]("w-0-1")), stays},
		"a worker is gone":                   {one(), then(exhausts, gone[Pod]("w-0-1")), stays},
		"its leader is gone":                 {one(), then(exhausts, gone[Pod]("w-0")), recreated},
		"another implementation kept it":     {with(1, 2, onRestart, atMost(3)), ofOthers, stays},
		"it is kept without a limit":         {with(1, 2, onRestart), ofOthers, stays},
		"it kept it, and it is recovered":    {with(1, 2, onRestart, atMost(3)), then(ofOthers, settled, recovered), recreated},
		"the set with gangs is recovered":    {one(volcano), then(exhausts, recovered), recreated},
		"a group of one pod":                 {budget(1, 1, 0), then(on("w-0", crash), settled), stays},
	} {
		t.Run(name, func(t *testing.T) {
			c := tt.of(t)
			fleeting := c.leaders()["w-0"]
			tt.happens(c)
			settleAnyhow(c)
			leader := fakeapi.Find[Pod](c.Server, "w-0")
			got := recreated
			switch {
			case leader == nil:
				got = goes
			case leader.UID == fleeting:
				got = stays
			}
			expect.Must(t, got == tt.want, "%s: it %s, want it %s", name, got, tt.want)
			if got == recreated {
				if set := fakeapi.Find[Set](c.Server, "w"); !lws.PodReady(leader) || recreations(c) > 0 || brief(set.Status)[available] != isAvailable {
					t.Errorf("it is not whole: %v", brief(set.Status))
				}
			}
		})
	}
}

// settleAnyhow is settle for a set that may be gone.
func settleAnyhow(c *cluster) {
	for range 40 {
		c.reconcileSet()
		c.turn()
	}
}

// Workers end before their leader, whose StatefulSet makes another group at once.
func TestRecoveredPodsGoBeforeTheirLeader(t *testing.T) {
	c := budget(1, 3, 1)(t)
	then(failures(2), recovered)(c)
	expect.Equalf(t, "| ReplicaRestartBudgetExceeded", short(c.decideGroup("w-0")), "before the count is cleared")
	c.reconcileSet()
	expect.Equalf(t, -1, recreations(c), "counted")
	plan := c.decideGroup("w-0")
	expect.Equal(t, "set-finalizers pod w-0-1, set-finalizers pod w-0-2", short(plan))
	c.do(plan)
	gone[Pod]("w-0-1", "w-0-2")(c)
	expect.Equal(t, "set-finalizers pod w-0", short(c.decideGroup("w-0")))
	c.settle()
	failures(1)(c)
	expect.Equalf(t, false, lws.IsExhausted(find[Pod](c, "w-0")), "a recovered group has no budget")
	expect.Equalf(t, 1, recreations(c), "recreations of a recovered group")
}

// A count belongs to a group at a revision, and ends with either. A lower limit holds for the next failure, and a user who
// recovers a group that was not stopped changes nothing.
func TestWhatALimitCounts(t *testing.T) {
	for name, tt := range map[string]struct {
		limit   int32
		happens step
		want    int32
		stopped bool // by one more failure
	}{
		"another revision, and back":  {1, then(failures(1), user(fakeapi.Image("image:2")), settled, user(fakeapi.Image("image:1")), settled), -1, false},
		"scaled away, and back":       {1, then(failures(1), user(replicas(0)), settled, user(replicas(1)), settled), -1, false},
		"a lower limit":               {9, then(failures(2), user(atMost(1)), settled), 2, true},
		"a running group recovered":   {2, then(failures(1), recovered, failures(1), recovered), 2, true},
		"a stopped group recovered":   {1, then(failures(2), recovered, settled), -1, false},
		"the limit is as it was once": {1, failures(1), 1, true},
	} {
		c := budget(1, 2, tt.limit)(t)
		tt.happens(c)
		expect.Equalf(t, tt.want, recreations(c), "%s: counted", name)
		expect.Equalf(t, false, lws.IsExhausted(find[Pod](c, "w-0")), "%s: exhausted", name)
		failures(1)(c)
		expect.Equalf(t, tt.stopped, lws.IsExhausted(find[Pod](c, "w-0")), "%s: one more failure stops the group", name)
	}
}

// What another implementation counted holds for the leaders that it made.
func TestCountsOfAnotherImplementation(t *testing.T) {
	for name, tt := range map[string]struct {
		counts  string // of "%s", the revision key
		happens step
		want    int32 // after one failure
	}{
		"of the group":       {`{"%s/0": 2}`, nothing, 3},
		"it is exhausted":    {`{"%s/0": 3}`, nothing, 3},
		"of another group":   {`{"%s/1": 2}`, nothing, 1},
		"of another version": {`{"%sx/0": 2}`, nothing, 1},
		"it is no object":    {`[%q]`, nothing, 1},
		"it is negative":     {`{"%s/0": -2}`, nothing, 1},
		"it is no JSON":      {`{%s`, nothing, 1},
		"of a former leader": {`{"%s/0": 2}`, then(user(replicas(0)), settled, user(replicas(1)), settled), 1},
	} {
		c := budget(1, 2, 3)(t)
		then(on("w", func(set Set) {
			value := fmt.Sprintf(tt.counts, find[Pod](c, "w-0").Labels[lwsv1.RevisionKey])
			set.Annotations = withAnnotation(set.Annotations, lwsv1.GroupRestartCountsAnnotationKey, value)
			set.Status.RestartsSince = &metav1.Time{Time: find[Pod](c, "w-0").CreationTimestamp.Add(time.Second)}
		}), tt.happens, failures(1))(c)
		expect.Equalf(t, tt.want, recreations(c), "%s: counted", name)
		expect.Equalf(t, name == "it is exhausted", lws.IsExhausted(find[Pod](c, "w-0")), "%s: stopped", name)
		expect.Equalf(t, "", leadersOf(c).Annotations[lwsv1.GroupRestartCountsAnnotationKey]+find[StatefulSet](c, "w-0").Annotations[lwsv1.GroupRestartCountsAnnotationKey], "%s: a StatefulSet has the counts", name)
	}
}

// A rollout waits for the groups of its surge: the set says that one is stopped.
func TestAStoppedSurgeGroupIsTold(t *testing.T) {
	c := budget(4, 2, 0)(t)
	user(fakeapi.Image("image:2"), func(set Set) {
		rollingOf(set).MaxUnavailable, rollingOf(set).MaxSurge = intstr.FromInt32(0), intstr.FromInt32(1)
	})(c)
	for range 20 {
		if fakeapi.Find[Pod](c.Server, "w-4-1") != nil {
			break
		}
		c.reconcileSet()
		c.turn()
	}
	then(on("w-4-1", crash), settled)(c)
	expect.Must(t, lws.IsExhausted(find[Pod](c, "w-4")), "the surge group is not stopped")
	degraded := meta.FindStatusCondition(c.status().Conditions, string(lwsv1.LeaderWorkerSetDegraded))
	if degraded == nil || degraded.Status != metav1.ConditionTrue || !strings.Contains(degraded.Message, "kubectl annotate pod w-4 ") {
		t.Errorf("the condition is %+v", degraded)
	}
}

// The conditions while a group is stopped, and after.
func TestConditionsOfAStoppedGroup(t *testing.T) {
	const exceeded = "ReplicaRestartBudgetExceeded"
	type said struct{ Status, Reason, Message string }
	none := said{}
	over := said{"False", "AsExpected", "No replica has exhausted its restart budget"}
	says := func(c *cluster, kind string) said {
		found := meta.FindStatusCondition(c.status().Conditions, kind)
		if found == nil {
			return none
		}
		return said{string(found.Status), found.Reason, found.Message}
	}
	degraded := said{"True", exceeded, "group 0 failed once more than maxGroupRestarts allows and was stopped; " +
		"to recreate it: kubectl annotate pod w-0 -n ns leaderworkerset.sigs.k8s.io/recover=true"}
	unavailable := said{"False", exceeded, "Not all replicas are ready"}
	idle := said{"False", exceeded, "No rolling update is in progress"}
	stopped := said{"False", exceeded, "Automatic recovery is stopped for one or more replicas"}
	progressing := said{"True", "GroupsProgressing", "Replicas are progressing"}
	for name, tt := range map[string]struct {
		of                                      func(testing.TB) *cluster
		happens                                 step
		degraded, available, progress, updating said
		isStalled                               bool
	}{
		"no limit":         {with(2, 2, onRestart), nothing, none, said{"True", "AllGroupsReady", "All replicas are ready"}, said{"False", "NoGroupsProgressing", "No replica is progressing"}, none, false},
		"a limit":          {budget(2, 2, 0), nothing, over, said{"True", "AllGroupsReady", "All replicas are ready"}, said{"False", "NoGroupsProgressing", "No replica is progressing"}, none, false},
		"a group stopped":  {budget(2, 2, 0), failures(1), degraded, unavailable, stopped, idle, true},
		"the limit is off": {budget(2, 2, 0), then(failures(1), user(atMost(-1)), settled), degraded, unavailable, stopped, idle, true},
		"another starts": {budget(2, 2, 0), then(failures(1), on("w-1", unready), func(c *cluster) { c.pass(time.Minute); c.reconcileSet() }),
			degraded, unavailable, progressing, idle, true},
		"recovered": {budget(2, 2, 0), then(failures(1), recovered, settled), over, said{"True", "AllGroupsReady", "All replicas are ready"},
			said{"False", "NoGroupsProgressing", "No replica is progressing"}, said{"False", "NoGroupsUpdating", "No rolling update is in progress"}, false},
		"kept by others": {with(2, 2, onRestart), then(ofOthers, settled), degraded, unavailable, stopped, idle, true},
	} {
		c := tt.of(t)
		tt.happens(c)
		for kind, want := range map[string]said{"Degraded": tt.degraded, "Available": tt.available, "Progressing": tt.progress, "UpdateInProgress": tt.updating} {
			expect.Equalf(t, want, says(c, kind), "%s: %s", name, kind)
		}
		got := says(c, "Stalled")
		expect.That(t, (got.Status == "True" && got.Reason == exceeded) == tt.isStalled, "%s: Stalled is %+v", name, got)
		states := lwsset.Stand(c.set()).States
		expect.Equalf(t, tt.isStalled, states[lws.GroupExhausted] == 1, "%s: states %v", name, states)
		if wait, found := waitFor(c.decideSet(), lws.CodePreviousIncarnation); found {
			t.Errorf("%s: %s", name, wait.Sentence)
		}
		expect.That(t, len(statusWrites(c.decideSet())) == 0 || name == "another starts",
			"%s: the status is written again", name)
	}
}

// No set rolls for the field, and no revision brings an old value back.
func TestNoRevisionHasTheLimit(t *testing.T) {
	c := budget(1, 2, 1)(t)
	set := find[Set](c, "w").DeepCopy()
	data := expect.Value(rev.Data(set))(t)
	atMost(7)(set)
	again, err := rev.Data(set)
	expect.That(t, err == nil && string(data) == string(again), "the data differs: %v", err)
	others := strings.Replace(string(data), `"leaderWorkerTemplate":{`, `"leaderWorkerTemplate":{"maxGroupRestarts":5,`, 1)
	restored, err := rev.Restore(set, []byte(others))
	expect.That(t, err == nil && *restored.Spec.LeaderWorkerTemplate.MaxGroupRestarts == 7,
		"restored %v, %v", restored, err)
	expect.That(t, rev.Same(set, []byte(others), again), "a revision that has the field differs")
	uids := c.leaders()
	then(user(atMost(7)), settled, user(atMost(-1)), settled)(c)
	expect.Equalf(t, uids, c.leaders(), "a change of the limit rolls")
	expect.Equalf(t, 1, len(revisions(c)), "revisions after a change of the limit")
}
