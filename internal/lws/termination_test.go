package lws_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

const policyKey = lwsv1.PodTerminationPolicyAnnotationKey

func byDefault(set Set) { set.Spec.PodTerminationPolicy = lwsv1.DefaultPodTermination }

// saying gives an object the annotation of another implementation, or takes it away.
func saying[T metav1.Object](policy string) func(T) {
	return func(object T) {
		annotations := map[string]string{}
		for key, value := range object.GetAnnotations() {
			annotations[key] = value
		}
		if annotations[policyKey] = policy; policy == "" {
			delete(annotations, policyKey)
		}
		object.SetAnnotations(annotations)
	}
}

func TestGroupsEndAsThePolicySays(t *testing.T) {
	const together, one = "delete statefulset w-1, delete pod w-1-1, delete pod w-1-2", "annotate statefulset w-1"
	deleted := leaving[Pod]("w-1")
	silent := on("w-1", saying[StatefulSet](""))
	foreground := then(leaving[Set]("w", metav1.FinalizerDeleteDependents), leaving[StatefulSet]("w", metav1.FinalizerDeleteDependents))
	parallel, ordinary := with(2, 3, fakeapi.Parallel), with(2, 3)
	checkDecisions(t, []decision{
		{"a leader is deleted", parallel, deleted, "w-1", together},
		{"a leader is deleted, by default", ordinary, deleted, "w-1", ""},
		{"a leader is rolled", parallel, then(user(fakeapi.Image("image:2")), carriedOut, deleted), "w-1", together},
		{"a leader is rolled, by default", ordinary, then(user(fakeapi.Image("image:2")), carriedOut, deleted), "w-1", ""},
		{"a leader is scaled away", parallel, then(user(replicas(1)), carriedOut, deleted), "w-1", together},
		{"a leader is scaled away, by default", ordinary, then(user(replicas(1)), carriedOut, deleted), "w-1", ""},
		{"a leader that is to be recreated", with(2, 3, fakeapi.Parallel, onRestart), deleted, "w-1", "annotate pod w-1, " + together},
		{"a leader that orphans its workers", parallel, leaving[Pod]("w-1", metav1.FinalizerOrphanDependents), "w-1", ""},
		{"workers end already", parallel, then(deleted, leaving[StatefulSet]("w-1", "a/b"), leaving[Pod]("w-1-1"), leaving[Pod]("w-1-2")), "w-1", ""},
		{"a worker does not end yet", parallel, then(deleted, leaving[StatefulSet]("w-1", "a/b"), leaving[Pod]("w-1-1")), "w-1", "delete pod w-1-2"},
		{"a set is deleted in the foreground", parallel, then(foreground, deleted), "w-1", together},
		{"a set is deleted in the foreground, by default", ordinary, then(foreground, deleted), "w-1", ""},
		{"a set is deleted before its StatefulSet", parallel, then(leaving[Set]("w", "a/b"), deleted), "w-1", together},
		{"the spec decides while the set exists", parallel, then(silent, foreground, deleted), "w-1", together},
		{"a leader lives on in a deleted set", parallel, foreground, "w-1", ""},
		{"the leader StatefulSet is gone", parallel, then(gone[StatefulSet]("w"), deleted), "w-1", together},
		{"it is gone, and nothing is written", parallel, then(silent, gone[StatefulSet]("w"), deleted), "w-1", ""},

		{"the policy becomes Parallel", ordinary, user(fakeapi.Parallel), "w-1", one},
		{"the policy becomes Default", parallel, user(byDefault), "w-1", one},
		{"the policy became Default", parallel, then(user(byDefault), deleted), "w-1", ""},
		{"the default is spelt out", ordinary, user(byDefault), "w-1", ""},
		{"the annotation was edited away", parallel, silent, "w-1", one},
		{"a leader of another implementation says it", parallel, then(silent, on("w-1", saying[Pod]("Parallel"))), "w-1", ""},
		{"it says Parallel, and the policy is Default", ordinary, on("w-1", saying[Pod]("Parallel")), "w-1", one},
	})
}

// The annotation is on the metadata of worker StatefulSets alone, and on none of an ordinary set. An
// annotation of the set is no policy.
func TestThePolicyIsWrittenOnWorkerStatefulSets(t *testing.T) {
	for name, tt := range map[string]struct {
		happens step
		edits   []edit
		want    string
	}{
		"an ordinary set":                {nothing, nil, ""},
		"its default is spelt out":       {nothing, []edit{byDefault}, ""},
		"it has an annotation":           {nothing, []edit{fakeapi.Annotation(policyKey, "Parallel")}, ""},
		"Parallel":                       {nothing, []edit{fakeapi.Parallel}, "Parallel"},
		"it becomes Parallel":            {user(fakeapi.Parallel), nil, "Parallel"},
		"it becomes Default":             {user(byDefault), []edit{fakeapi.Parallel}, ""},
		"a leader says the same":         {then(on("w-0", saying[StatefulSet]("")), on("w-0", saying[Pod]("Parallel"))), []edit{fakeapi.Parallel}, ""},
		"a leader says something else":   {on("w-0", saying[Pod]("Parallel")), nil, "Default"},
		"it says something else no more": {then(on("w-0", saying[Pod]("Parallel")), settled, user(fakeapi.Parallel)), nil, ""},
	} {
		c := running(t, 1, 2, tt.edits...)
		leader := find[Pod](c, "w-0").UID
		tt.happens(c)
		c.settle()
		sts := find[StatefulSet](c, "w-0")
		expect.Equalf(t, tt.want, sts.Annotations[policyKey], "%s: the worker StatefulSet says", name)
		expect.Equalf(t, "", sts.Spec.Template.Annotations[policyKey]+leadersOf(c).Spec.Template.Annotations[policyKey], "%s: a pod template says", name)
		expect.Equalf(t, leader, find[Pod](c, "w-0").UID, "%s: the leader was replaced", name)
	}
}

// Once its set is gone, what is written on a group decides, whatever a set of the same name says.
func TestAGroupEndsAsItSaysOnceItsSetIsGone(t *testing.T) {
	another := func(edits ...edit) step {
		return func(c *cluster) { fakeapi.Add(c.Server, fakeapi.Set("w", 1, 2, edits...)) }
	}
	for name, tt := range map[string]struct {
		edit    edit
		happens step
		want    string
	}{
		"by default":                     {byDefault, nothing, ""},
		"in parallel":                    {fakeapi.Parallel, nothing, "delete statefulset w-0, delete pod w-0-1"},
		"its StatefulSet is gone":        {fakeapi.Parallel, gone[StatefulSet]("w"), "delete statefulset w-0, delete pod w-0-1"},
		"its leader says it":             {byDefault, on("w-0", saying[Pod]("Parallel")), "delete statefulset w-0, delete pod w-0-1"},
		"its leader is contradicted":     {byDefault, then(on("w-0", saying[Pod]("Parallel")), on("w-0", saying[StatefulSet]("Default"))), ""},
		"another set is there":           {fakeapi.Parallel, another(byDefault), "delete statefulset w-0, delete pod w-0-1"},
		"another set ends in parallel":   {byDefault, another(fakeapi.Parallel), ""},
		"another StatefulSet has a name": {fakeapi.Parallel, foreign[StatefulSet]("w-0"), ""},
	} {
		c := running(t, 1, 2, tt.edit)
		then(gone[Set]("w"), tt.happens)(c)
		for _, terminates := range []bool{false, true} {
			want := tt.want
			if !terminates {
				want = ""
			} else {
				leaving[Pod]("w-0")(c)
			}
			live := c.Live()
			observer := lwscache.New(c.cached, live, lwscache.NewMemory()) // of a process that never saw the set
			_, plan, err := groupPlan(observer, "w-0", c.Now)
			expect.Must(t, err == nil || apierrors.IsNotFound(err), "%s: %v", name, err)
			var got []string
			for _, a := range of[action.Delete](plan) {
				if a.OwnerGone == nil {
					got = append(got, fmt.Sprintf("delete %s", a.Object))
				}
			}
			expect.That(t, strings.Join(got, ", ") == want,
				"%s: terminates %t: got %v, want %q", name, terminates, spelled(plan), want)
			if fakeapi.Find[Set](c.Server, "w") == nil && live.Reads > 0 {
				t.Errorf("%s: the set is gone, and %d objects were read live", name, live.Reads)
			}
		}
	}
}

// checkEndedTogether: in Parallel, no worker of a terminating leader stays without a
// deletionTimestamp once its group was reconciled.
func (w *world) checkEndedTogether(name string) {
	leader, sts := fakeapi.Find[Pod](w.Server, name), fakeapi.Find[StatefulSet](w.Server, name)
	if leader == nil || leader.DeletionTimestamp == nil || sts == nil || !metav1.IsControlledBy(sts, leader) || !w.isParallel(leader, sts) {
		return
	}
	if slices.Contains(leader.Finalizers, metav1.FinalizerOrphanDependents) {
		return
	}
	if lws.IsExhausted(leader) && slices.Contains(leader.Finalizers, metav1.FinalizerDeleteDependents) {
		return // this reconcile deleted it in the foreground: the garbage collector deletes them
	}
	stays := sts.DeletionTimestamp == nil
	for _, pod := range fakeapi.All[Pod](w.Objects) {
		stays = stays || metav1.IsControlledBy(pod, sts) && pod.DeletionTimestamp == nil
	}
	if stays {
		w.t.Fatalf("leader %s terminates, and its workers stay\n%s", name, w.all())
	}
}

// isParallel reports whether the policy of a leader's group is Parallel, by what exists.
func (w *world) isParallel(leader Pod, sts StatefulSet) bool {
	owner, set := fakeapi.Find[StatefulSet](w.Server, "w"), fakeapi.Find[Set](w.Server, "w")
	if owner != nil && set != nil && metav1.IsControlledBy(leader, owner) && metav1.IsControlledBy(owner, set) {
		return set.Spec.PodTerminationPolicy == lwsv1.ParallelPodTermination
	}
	return sts.Annotations[policyKey] == string(lwsv1.ParallelPodTermination)
}

// judgeParallel: only what a terminating leader controls ends with it.
func (w *world) judgeParallel(a action.Action) error {
	object := w.Of(a.Target())
	if object == nil || object.GetUID() != a.Target().UID {
		return nil
	}
	parent := object.GetName()
	if a.Target().Kind == identity.KindPod {
		parent, _ = identity.ParentAndOrdinal(parent)
	}
	w.met.when("a group ended in parallel", true)
	w.met.when("a set gone before its group ended", fakeapi.Find[Set](w.Server, "w") == nil)
	if leader := fakeapi.Find[Pod](w.Server, parent); leader != nil && leader.DeletionTimestamp == nil && w.leaderOfAny(object) == leader.UID {
		return fmt.Errorf("leader %s does not terminate", leader.Name)
	}
	return nil
}

// leaderOfAny is the UID of the leader that controls a worker StatefulSet or its pod, if it is known.
func (w *world) leaderOfAny(object metav1.Object) any {
	owner := metav1.GetControllerOf(object)
	if _, isPod := object.(*corev1.Pod); isPod && owner != nil {
		sts := fakeapi.Find[StatefulSet](w.Server, owner.Name)
		if sts == nil || sts.UID != owner.UID {
			return nil
		}
		owner = metav1.GetControllerOf(sts)
	}
	if owner == nil {
		return nil
	}
	return owner.UID
}

// checkParallel checks that a decision ends with a terminating leader only what it controls.
func (d decided) checkParallel(ref identity.Ref) {
	leader := d.group.Leaving
	if leader == nil {
		leader = d.group.Former
	}
	workers := lws.WorkersOf(&d.group.Group, leader)
	for _, sts := range workers {
		object := byUID(d.seen.previous, ref.UID)
		if ref.UID == sts.UID || object != nil && metav1.IsControlledBy(object, sts) {
			return
		}
	}
	if object := byUID(d.seen.orphans, ref.UID); leader == nil || object == nil {
		d.t.Fatalf("%s: deletes %s, which no terminating leader controls", d, ref)
	}
}

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
		write := oneStatus(t, plan)
		expect.Equalf(t, []string{"status leaderworkerset w"}, spelled(plan), "%s: plan", left)
		expect.Equalf(t, map[string]string{progressing: "True WaitingForPreviousIncarnation" + facts}, brief(write.Status), "%s: conditions", left)
		expect.Equalf(t, []string{"WaitingForPreviousIncarnation/Wait" + facts}, notes(write), "%s: events", left)
		c.do(plan)
		gone[Pod]("w-0", "w-1")(c)
		gone[StatefulSet]("w")(c)
		c.pass(10 * time.Second)
		if told := notes(oneStatus(t, c.decideSet())); !slices.Contains(told, "PreviousIncarnationGone/Wait") {
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
		expect.That(t, ok && strings.Contains(wait.Sentence, "previous incarnation") == tt.says, "%s: got %+v", name, wait)
		ofSet, ok := waitFor(c.decideSet(), lws.CodePreviousIncarnation)
		expect.That(t, (!ok || ofSet.Ordinary != tt.says) && wait.Ordinary != tt.says,
			"%s: got %+v and %+v", name, wait, ofSet)
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
		"a node":      {[]string{"If node-0 is powered off: kubectl taint nodes node-0 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"}, leaving[Pod]("w-1")},
		"one owner too many": {[]string{"pod w-1", "garbage collector"}, on("w-1", func(pod Pod) {
			pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "x", UID: "x"})
		})},
	} {
		t.Run(name, func(t *testing.T) {
			c := createdAgain(t, 2, 1, "pod w-1")
			tt.happens(c)
			carriedOut(c)
			c.pass(time.Minute - time.Second)
			expect.Emptyf(t, statusWrites(c.decideSet()), "before a minute")
			c.pass(time.Second)
			plan := c.decideSet()
			write := oneStatus(t, plan)
			message := condition(write.Status, progressing).Message
			for _, part := range tt.says {
				expect.Says(t, message, part)
			}
			expect.That(t, len(message) <= messageLimit/2 && utf8.ValidString(message),
				"the message has %d bytes, valid UTF-8: %t", len(message), utf8.ValidString(message))
			event := write.Tell.Done[len(write.Tell.Done)-1]
			expect.That(t, event.Warning && event.Reason == "PreviousIncarnationStuck" && strings.Contains(event.Note, "w-1"),
				"got event %+v", event)
			if wait, ok := waitFor(plan, lws.CodePreviousIncarnation); !ok || wait.Until.Sub(c.Now) != 10*time.Second || len(of[action.Delete](plan)) > 0 {
				t.Errorf("got %s, waits %v", spelled(plan), plan.Waits)
			}
			c.do(lws.Plan{Plan: action.Plan{Actions: []action.Action{write.WriteStatus}}})
			c.pass(time.Minute)
			if again := statusWrites(c.decideSet()); len(again) > 0 || !lws.ToldStuck(find[Set](c, "w")) {
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
		expect.Equalf(t, step.want, short(c.decideGroup("w-1")), "after %s", step.after)
	}
}
