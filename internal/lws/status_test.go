package lws_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsrevision "lockstep.dev/lockstep/internal/lws/revision"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lws/table"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

const (
	available   = string(lwsv1.LeaderWorkerSetAvailable)
	progressing = string(lwsv1.LeaderWorkerSetProgressing)
	updating    = string(lwsv1.LeaderWorkerSetUpdateInProgress)
	ready       = string(lwsv1.LeaderWorkerSetReady)

	isProgressing  = "True GroupsProgressing"
	wasProgressing = "False NoGroupsProgressing"
	isAvailable    = "True AllGroupsReady"
	wasAvailable   = "False GroupsNotReady"
	isUpdating     = "True GroupsUpdating"
)

// forTools are the conditions that tools judge a set by.
var forTools = []string{"Ready", "Reconciling", "Stalled"}

// brief is each condition without its prose: "True GroupsProgressing", and the objects
// and numbers that its message names. Those for tools have tests of their own.
func brief(status lwsv1.LeaderWorkerSetStatus) map[string]string {
	short := map[string]string{}
	for _, c := range status.Conditions {
		if slices.Contains(forTools, c.Type) {
			continue
		}
		short[c.Type] = string(c.Status) + " " + c.Reason + facts(c.Message)
	}
	return short
}

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
	for _, event := range a.About().Tell.Done {
		notes = append(notes, event.Reason+"/"+event.Action+facts(event.Note))
	}
	return notes
}

// written is the status that a plan writes.
func written(t testing.TB, plan lws.Plan) lwsv1.LeaderWorkerSetStatus {
	t.Helper()
	return oneStatus(t, plan).Status
}

// Ready groups at or above replicas count as ready, and for Available do not.
func TestConditionsChange(t *testing.T) {
	old := on("w-0", func(pod Pod) { pod.Labels[lwsv1.RevisionKey] = "old" })
	surge := func(set Set) { rollingOf(set).MaxSurge = intstr.FromInt32(1) }
	const update, none = "GroupsProgressing/Update", ""
	down := map[string]string{available: wasAvailable, progressing: isProgressing}
	up := map[string]string{available: isAvailable, progressing: wasProgressing}
	for name, tt := range map[string]struct {
		of             func(testing.TB) *cluster
		happens        step
		want           map[string]string
		event          string
		ready, updated int32
	}{
		"a leader is not ready":     {with(2, 3), on("w-1", unready), down, update + ": 1 2", 1, 2},
		"a leader ended":            {with(2, 3), on("w-1", ends), down, update + ": 1 2", 1, 2},
		"a worker is not available": {with(2, 3), on("w-1", func(s StatefulSet) { s.Status.AvailableReplicas = 1 }), down, update + ": 1 2", 1, 2},
		"workers of two templates":  {with(2, 3), on("w-1", func(s StatefulSet) { s.Status.UpdateRevision = "next" }), down, update + ": 1 2", 1, 2},
		"no workers":                {with(2, 3), gone[StatefulSet]("w-1"), down, update + ": 1 2", 1, 1},
		"more groups are wanted":    {with(2, 3), user(replicas(3)), down, update + ": 2 3", 2, 2},
		"the template changed": {with(2, 3), user(fakeapi.Image("image:2")),
			map[string]string{available: wasAvailable, progressing: isProgressing, updating: isUpdating}, "GroupsUpdating/Update: 2 2", 2, 0},
		// A client that waits for the rollout would see it done at once otherwise.
		"the topology changed": {with(2, 1), place(lwsv1.ExclusiveKeyAnnotationKey, "rack"),
			map[string]string{available: wasAvailable, progressing: isProgressing, updating: isUpdating}, "GroupsUpdating/Update: 2 2", 2, 0},
		"scaled down":                           {with(3, 2), user(replicas(2)), up, "AllGroupsReady/Update: 3 2", 3, 3},
		"a surge group is not ready":            {with(3, 2), then(user(replicas(2)), on("w-2", unready)), up, "AllGroupsReady/Update: 2 2", 2, 3},
		"a wanted group is not, a surge one is": {with(3, 2), then(user(replicas(2)), on("w-1", unready)), down, update + ": 2 2", 2, 3},
		// With a partition, surge groups stay.
		"one below the partition is not ready, a surge one is": {with(3, 1, partitioned(1), surge), then(user(replicas(2)), on("w-0", unready)), down, update + ": 2 2", 2, 3},
		"a canary at rest":               {with(3, 1, partitioned(1), surge), then(user(replicas(2)), old), up, "AllGroupsReady/Update: 3 2", 3, 2},
		"old groups below the partition": {with(2, 1, partitioned(1)), old, up, none, 2, 1},
		"a generation alone":             {with(2, 1), on("w", func(set Set) { set.Generation++ }), up, "AllGroupsReady/Update: 2 2", 2, 2},
		"a selector is kept":             {with(2, 1), on("w", func(set Set) { set.Generation++; set.Status.HPAPodSelector = "kept" }), up, "AllGroupsReady/Update: 2 2", 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			c := tt.of(t)
			before, selector := c.status(), c.status().HPAPodSelector
			tt.happens(c)
			c.pass(time.Minute)
			write := oneStatus(t, c.decideSet())
			expect.Equalf(t, tt.want, brief(write.Status), "conditions")
			expect.Equalf(t, tt.event, strings.Join(notes(write), ", "), "events")
			expect.That(t, write.Status.ReadyReplicas == tt.ready && write.Status.UpdatedReplicas == tt.updated,
				"%d ready, %d updated, want %d, %d", write.Status.ReadyReplicas, write.Status.UpdatedReplicas, tt.ready, tt.updated)
			if strings.Contains(name, "selector") {
				selector = "kept"
			}
			generation := find[Set](c, "w").Generation
			expect.That(t, write.Status.HPAPodSelector == selector && write.Status.ObservedGeneration == generation,
				"selector %q at generation %d", write.Status.HPAPodSelector, write.Status.ObservedGeneration)
			checkTransitions(t, before.Conditions, write.Status.Conditions, generation, c.Now)
		})
	}
}

// Pods that take two minutes to become ready make a step of a rollout long: Available turns False at the first step, and
// True after the last.
func TestAvailableDoesNotChangeWithEachStep(t *testing.T) {
	for _, size := range []int32{1, 2} {
		c := running(t, 4, size)
		c.Starts = 2 * time.Minute
		user(fakeapi.Image("image:2"))(c)
		var turns []string
		for range 400 {
			for range 2 { // the write of a step is read before the StatefulSet controller acts on it
				c.reconcileSet()
				if now := string(condition(c.status(), available).Status); len(turns) == 0 || turns[len(turns)-1] != now {
					turns = append(turns, now)
				}
			}
			c.turn()
		}
		if images := imagesOf(c); images["image:1"] > 0 || !slices.Equal(turns, []string{"False", "True"}) {
			t.Errorf("size %d: Available was %v, images %v", size, turns, images)
		}
	}
}

// checkTransitions checks that times move with the status and with nothing else,
// and that every condition is observed at the generation.
func checkTransitions(t *testing.T, before, after []metav1.Condition, generation int64, now time.Time) {
	t.Helper()
	for _, c := range after {
		i := slices.IndexFunc(before, func(b metav1.Condition) bool { return b.Type == c.Type })
		want := now
		if i >= 0 && before[i].Status == c.Status {
			want = before[i].LastTransitionTime.Time
		}
		if !c.LastTransitionTime.Time.Equal(want) || c.ObservedGeneration != generation || i < 0 && c.Status != metav1.ConditionTrue && c.Type != ready {
			t.Errorf("got %+v, want %s at generation %d", c, want, generation)
		}
	}
}

// Counts alone are written together, after two seconds at first, after eight later on.
// A condition that changes is written at once.
func TestCountsAreWrittenTogether(t *testing.T) {
	const groups = 60
	c := running(t, groups, 1)
	for i := range groups {
		on(identity.LeaderName("w", i), unready)(c)
	}
	carriedOut(c)
	var written []int
	for second := 1; second < 50; second++ {
		c.pass(time.Second)
		on(identity.LeaderName("w", second), fakeapi.Up)(c)
		plan := c.decideSet()
		if wait, ok := waitFor(plan, "StatusCoalesced"); len(plan.Actions) > 0 {
			written = append(written, second)
			expect.Emptyf(t, notes(plan.Actions[0]), "counts alone have events")
		} else if !ok || wait.Until.Before(c.Now.Add(time.Second)) {
			t.Errorf("waits %v", plan.Waits)
		}
		c.do(plan)
	}
	expect.Equalf(t, []int{2, 4, 8, 16, 24, 32, 40, 48}, written, "written after seconds")
	carriedOut(c)
	for i := range groups {
		on(identity.LeaderName("w", i), fakeapi.Up)(c)
	}
	expect.Equal(t, isAvailable, brief(oneStatus(t, c.decideSet()).Status)[available])
}

func TestTheLastLeaderThatArrivesIsWrittenAtOnce(t *testing.T) {
	c := running(t, 3, 1)
	arrive := func(leaders int32) lws.Plan {
		on("w", func(sts StatefulSet) { sts.Status.Replicas = leaders })(c)
		return c.decideSet()
	}
	c.pass(time.Minute)
	c.do(arrive(1))
	plan := arrive(2)
	expect.Must(t, len(plan.Actions) == 0, "two of three: %s", spelled(plan))
	expect.Equal(t, 3, written(t, arrive(3)).Replicas)
}

var statefulSets = schema.GroupResource{Group: "apps", Resource: "statefulsets"}

func forbidden(why string) *apierrors.StatusError {
	return apierrors.NewForbidden(statefulSets, "w-1", errors.New(why))
}

func ending() error {
	err := forbidden("unable to create new content in namespace x because it is being terminated")
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NamespaceTerminating"}}
	return err
}

func denied(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: `admission webhook "w.example.com" denied the request: no`}}
}

// unreadable is how the API server answers an error that it has no status for.
func unreadable(said string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: said}}
}

// An error that passes by itself is no refusal.
func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"a quota":                        {forbidden("exceeded quota: few, requested: count/statefulsets.apps=1"), true},
		"no right":                       {forbidden(`User "system:serviceaccount:a:b" cannot create resource "statefulsets" in API group "apps"`), true},
		"a policy":                       {apierrors.NewInvalid(schema.GroupKind{Kind: "StatefulSet"}, "w", nil), true},
		"a terminating namespace":        {ending(), true},
		"a webhook":                      {denied(403), true},
		"a webhook with a code":          {denied(418), true},
		"a webhook that does not answer": {apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.com": no route to host`)), true},
		"a bad request":                  {apierrors.NewBadRequest("no"), true},
		"an apply with duplicate keys":   {unreadable("failed to create typed patch object (a/w; apps/v1, Kind=StatefulSet): .env: duplicate entries for key [name=\"A\"]"), true},
		"a live object it cannot read":   {unreadable("failed to create typed live object (a/w; apps/v1, Kind=StatefulSet): errors"), true},
		"a new object it cannot read":    {unreadable("failed to convert new object (a/w; apps/v1, Kind=StatefulSet) to smd typed: errors"), true},
		"a body that is too large":       {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), true},
		"a media type":                   {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 415, Reason: metav1.StatusReasonUnsupportedMediaType}}, true},
		"no media type":                  {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 406, Reason: metav1.StatusReasonNotAcceptable}}, true},
		"a conflict":                     {apierrors.NewConflict(statefulSets, "w-1", errors.New("changed")), false},
		"another 500":                    {unreadable("etcdserver: request timed out"), false},
		"a busy server":                  {apierrors.NewTooManyRequests("later", 1), false},
		"a kind that is being deleted":   {apierrors.NewMethodNotSupported(statefulSets, "patch"), false},
		"a timeout":                      {apierrors.NewTimeoutError("later", 1), false},
		"a server that fails":            {apierrors.NewInternalError(errors.New("etcd has no leader")), false},
		"no connection":                  {errors.New("connection refused"), false},
	} {
		_, got := action.RefusalOf(fmt.Errorf("create statefulset w-1: %w", tt.err), fakeapi.Epoch)
		expect.That(t, got == tt.want, "%s: a refusal: %t", name, got)
	}
}

func TestARefusedWriteIsTriedEverLater(t *testing.T) {
	var r action.Refusal
	for _, step := range []struct{ at, again int }{{0, 1}, {1, 1}, {2, 2}, {4, 4}, {59, 30}, {60, 30}, {300, 1}} {
		next, _ := action.RefusalOf(forbidden("no"), fakeapi.Epoch.Add(time.Duration(step.at)*time.Second))
		r = next.After(r)
		expect.Equalf(t, time.Duration(step.again)*time.Second, r.Again().Sub(r.At), "after %d s: tried again in", step.at)
	}
}

// messageLimit is the most bytes that the API takes in the message of a condition.
const messageLimit = 32 << 10

// A refusal that quoted the whole object made a status that the API server refused in its turn.
func TestALongRefusalFitsIntoAStatus(t *testing.T) {
	for _, lead := range []string{"", "x", "xx"} { // the cut falls within a character
		c := newCluster(t)
		fakeapi.Add(c.Server, fakeapi.Set("w", 1, 1))
		world := c.set()
		world.Refusal = action.Refusal{Sentence: lead + strings.Repeat("€", 100<<10/3), At: world.Now}
		got := progress(t, lwsset.Decide(world))
		if got.Reason != lws.CodeRefused || !strings.Contains(got.Message, lead+"€€€") || len(got.Message) > messageLimit/2 || !utf8.ValidString(got.Message) {
			t.Errorf("got %s: %d bytes, %.200q", got.Reason, len(got.Message), got.Message)
		}
	}
}

// states returns the wanted groups by state.
func (c *cluster) states() map[string]int32 {
	c.t.Helper()
	counted := map[string]int32{}
	for state, n := range c.decideSet().Standing.States {
		if n > 0 {
			counted[lws.GroupState(state).String()] = n
		}
	}
	return counted
}

func TestStatesOfGroups(t *testing.T) {
	failed := then(crashes, (*cluster).decided)
	recreated := then(failed, gone[Pod]("w-0", "w-0-1"), gone[StatefulSet]("w-0"))
	for name, tt := range map[string]struct {
		change step
		want   map[string]int32
	}{
		"ready":                     {func(*cluster) {}, map[string]int32{"ready": 2}},
		"surge groups do not count": {user(replicas(1)), map[string]int32{"ready": 1}},
		"scaled up":                 {user(replicas(4)), map[string]int32{"ready": 2, "starting": 2}},
		"not ready any more":        {on("w-0-1", func(pod Pod) { unready(pod) }), map[string]int32{"ready": 2}}, // until the StatefulSet says so
		"the leader is not ready":   {on("w-0", unready), map[string]int32{"ready": 1, "unready": 1}},
		"failed":                    {failed, map[string]int32{"ready": 1, "restarting": 1}},
		"recreated":                 {recreated, map[string]int32{"ready": 1, "restarting": 1}},
		"failed again":              {then(failed, settled, failed), map[string]int32{"ready": 1, "backingOff": 1}},
		"failed again, due": {
			then(failed, settled, failed, after(time.Minute)), map[string]int32{"ready": 1, "restarting": 1},
		},
		"recreated, and started": {then(failed, settled), map[string]int32{"ready": 2}},
		"rolled after a restart": {
			then(failed, settled, gone[Pod]("w-0", "w-0-1"), gone[StatefulSet]("w-0")), map[string]int32{"ready": 1, "starting": 1},
		},
		"another owner's workers": {
			then(withoutWorkers, func(c *cluster) {
				pod := fakeapi.Pod("w-0-1", "w", 1)
				strange(c, pod)
				fakeapi.Add(c.Server, pod)
			}), map[string]int32{"ready": 1, "waiting": 1},
		},
		"refused": {
			func(c *cluster) {
				withoutWorkers(c)
				set := find[Set](c, "w")
				c.memory.RefusedTo(set, "w-0", []action.Refusal{{Sentence: "no", At: c.Now, Since: c.Now}})
			}, map[string]int32{"ready": 1, "refused": 1},
		},
	} {
		c := running(t, 2, 2, onRestart)
		tt.change(c)
		expect.Equalf(t, tt.want, c.states(), "%s", name)
	}
}

func TestStatesOfASetThatWaits(t *testing.T) {
	c := createdAgain(t, 2, 2, leaders(2)...)
	expect.Equalf(t, map[string]int32{"waiting": 2}, c.states(), "for a previous incarnation")
	c = newCluster(t)
	set := fakeapi.Add(c.Server, fakeapi.Set("w", 2, 2))
	c.memory.Refused(set, action.Refusal{Sentence: "no", At: c.Now, Since: c.Now})
	expect.Equalf(t, map[string]int32{"refused": 2}, c.states(), "refused")
	user(func(set Set) {
		set.DeletionTimestamp, set.Finalizers = fakeapi.Ptr(set.CreationTimestamp), []string{"x/y"}
	})(c)
	if standing := c.decideSet().Standing; standing != nil {
		t.Errorf("a set that is being deleted stands at %+v", standing)
	}
}

// A new template takes no group down before the StatefulSet has it.
func TestGroupsThatAreDown(t *testing.T) {
	c := running(t, 4, 2, onRestart)
	image(c, "image:2")
	if s := c.decideSet().Standing; s.Down != 0 || s.Budget != 1 || s.Target-s.TargetUpdated != 4 {
		t.Errorf("before: %d groups are down of %d that may be, %d of %d are updated", s.Down, s.Budget, s.TargetUpdated, s.Target)
	}
	on("w-1", unready)(c)
	expect.Equalf(t, 1, c.decideSet().Standing.Down, "groups that are down")
}

func unstarted(standing *lws.Standing) []lws.LedGroup {
	return slices.DeleteFunc(standing.Led, func(g lws.LedGroup) bool { return !g.IsUnstarted() })
}

// A group counts as not started until its record is in the status: its pods are beyond need if
// another leader comes first.
func TestGroupsThatHaveNotStarted(t *testing.T) {
	c := running(t, 2, 3, onRestart)
	expect.Emptyf(t, unstarted(c.decideSet().Standing), "while all groups run")
	then(gone[Pod]("w-1", "w-1-1", "w-1-2"), gone[StatefulSet]("w-1"))(c)
	c.sync()
	c.reconcileGroup("w-1")
	c.sync()
	found := unstarted(c.decideSet().Standing)
	expect.That(t, len(found) == 1 && found[0].Index == 1 && found[0].Leader == c.leaders()["w-1"] && found[0].Pods == 3, "got %+v", found)
	user(fakeapi.Policy(lwsv1.NoneRestartPolicy))(c)
	expect.Emptyf(t, unstarted(c.decideSet().Standing), "with policy None, where no group is recorded")
}

func TestAcceleratorsOfAGroup(t *testing.T) {
	requests := func(set Set) {
		limits := fakeapi.Resources("nvidia.com/gpu", "8")
		limits["cpu"], limits["hugepages-2Mi"] = fakeapi.Resources("cpu", "1")["cpu"], fakeapi.Resources("hugepages-2Mi", "2Mi")["hugepages-2Mi"]
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Limits = limits
		set.Spec.LeaderWorkerTemplate.LeaderTemplate = fakeapi.Ptr(fakeapi.Template("leader", "image"))
	}
	c := running(t, 2, 3, requests)
	got := map[corev1.ResourceName]int64{}
	for name, quantity := range table.Accelerators(c.decideSet().Standing.Effective) {
		got[name] = quantity.Value()
	}
	expect.Equal(t, map[corev1.ResourceName]int64{"nvidia.com/gpu": 16}, got)
}

// checkStanding checks that each wanted group has one state.
func (w *world) checkStanding(d decided) {
	standing := d.plan.Standing
	if d.group != nil || standing == nil {
		return
	}
	var sum int32
	for _, n := range standing.States {
		sum += n
	}
	want := *d.set.Set.Spec.Replicas
	expect.Must(w.t, sum == want, "%s: %d groups have a state, %d are wanted: %v", d.what, sum, want, standing.States)
	for _, g := range unstarted(standing) {
		name := identity.LeaderName(d.set.Set.Name, g.Index)
		if leader := byUID(d.seen.owned, g.Leader); leader == nil || leader.GetName() != name {
			w.t.Fatalf("%s: group %d has not started under leader %s, which is %v", d.what, g.Index, g.Leader, leader)
		}
	}
}

func TestANewSet(t *testing.T) {
	c := newCluster(t)
	set := fakeapi.Add(c.Server, fakeapi.Set("w", 2, 3))
	plan := c.decideSet()
	want := []string{"create controllerrevision w-" + lwsrevision.Key(data(t, set)) + "-1", "create statefulset w", "create service w", "status leaderworkerset w"}
	expect.Equal(t, want, spelled(plan))
	if told := plan.Actions[0].About().Tell.Done; len(told) != 1 || told[0].Reason != "CreatingRevision" {
		t.Errorf("got events %+v of the revision", told)
	}
	write := oneStatus(t, plan)
	expect.Equalf(t, map[string]string{progressing: isProgressing}, brief(write.Status), "conditions")
	expect.Equalf(t, "leaderworkerset.sigs.k8s.io/name=w,leaderworkerset.sigs.k8s.io/worker-index=0", write.Status.HPAPodSelector, "got selector")
	expect.Equalf(t, []string{"GroupsProgressing/Update: 0 2"}, notes(write), "events")
	user(replicas(0))(c)
	expect.Equalf(t, map[string]string{available: isAvailable}, brief(written(t, c.decideSet())), "a set without groups")
}
