package lws_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
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
		if got := sts.Annotations[policyKey]; got != tt.want {
			t.Errorf("%s: the worker StatefulSet says %q, want %q", name, got, tt.want)
		}
		if template := sts.Spec.Template.Annotations[policyKey] + leadersOf(c).Spec.Template.Annotations[policyKey]; template != "" {
			t.Errorf("%s: a pod template says %q", name, template)
		}
		if find[Pod](c, "w-0").UID != leader {
			t.Errorf("%s: the leader was replaced", name)
		}
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
			if err != nil && !apierrors.IsNotFound(err) {
				t.Fatalf("%s: %v", name, err)
			}
			var got []string
			for _, a := range of[action.Delete](plan) {
				if a.OwnerGone == nil {
					got = append(got, fmt.Sprintf("delete %s", a.Object))
				}
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("%s: terminates %t: got %v, want %q", name, terminates, spelled(plan), want)
			}
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
