package lws_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	applies "lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

func image(c *cluster, image string) {
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) {
		set.Generation++
		fakeapi.Image(image)(set)
	})
}

func revisions(c *cluster) []*appsv1.ControllerRevision {
	return fakeapi.All[*appsv1.ControllerRevision](c.Objects)
}

// checkRevisionEvent checks that one event names the key of a new revision.
func checkRevisionEvent(t *testing.T, create action.Create, key string) {
	t.Helper()
	if told := create.Tell.Done; len(told) != 1 || told[0].Reason != "CreatingRevision" || !strings.Contains(told[0].Note, key) {
		t.Errorf("got events %+v, want one of revision %s", told, key)
	}
}

func TestRevisionOfANewSet(t *testing.T) {
	set, plan := firstLook(t)
	got, create := created[*appsv1.ControllerRevision](t, plan)
	encoded := data(t, set)
	want := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fakeapi.Namespace, Name: "w-" + lws.RevisionKey(encoded) + "-1",
			Labels:          map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.RevisionKey: lws.RevisionKey(encoded)},
			OwnerReferences: controllerRef("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", set),
		},
		Revision: 1,
		Data:     runtime.RawExtension{Raw: encoded},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	checkRevisionEvent(t, create, lws.RevisionKey(encoded))
}

func TestRevisionOfAChangedTemplate(t *testing.T) {
	c := running(t, 2, 2)
	image(c, "image:2")
	plan := c.decideSet()
	got, create := created[*appsv1.ControllerRevision](t, plan)
	if got.Revision != 2 {
		t.Errorf("got number %d, want 2", got.Revision)
	}
	key := got.Labels[lwsv1.RevisionKey]
	checkRevisionEvent(t, create, key)
	apply := one[action.Apply](t, plan)
	if sts, _ := apply.Object.(*appsv1.StatefulSet); sts == nil || sts.Labels[lwsv1.RevisionKey] != key {
		t.Errorf("the leaders are not brought to %s: %+v", key, apply.Object)
	}
	image(c, "image:1")
	if err := c.Do(apply); !errors.Is(err, applies.ErrStale) {
		t.Errorf("a template of an earlier spec is written: %v", err)
	}
}

func TestASpecThatMeansTheSameKeepsItsRevision(t *testing.T) {
	c := running(t, 1, 2, fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart))
	// As a version of the types that wrote null timestamps stored it.
	older := []byte(`{"spec":{"leaderWorkerTemplate":{"$patch":"replace","restartPolicy":"RecreateGroupOnPodRestart","size":2,"workerTemplate":{"metadata":{"creationTimestamp":null},"spec":{"containers":[{"image":"image:1","name":"worker","resources":{}}]}}},"networkConfig":{"$patch":"replace","subdomainPolicy":"Shared"}}}`)
	key := lws.RevisionKey(older)
	fakeapi.Edit(c.Server, revisions(c)[0].Name, func(r *appsv1.ControllerRevision) {
		r.Data.Raw = older
		r.Labels[lwsv1.RevisionKey] = key
	})
	relabel := func(labels map[string]string) { labels[lwsv1.RevisionKey] = key }
	fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { relabel(sts.Labels); relabel(sts.Spec.Template.Labels) })
	fakeapi.Edit(c.Server, "w-0", func(sts *appsv1.StatefulSet) { relabel(sts.Labels) })
	fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) { relabel(pod.Labels) })
	c.pass(time.Minute)
	for _, a := range c.decideSet().Actions {
		if ref := a.Target(); ref.Kind == identity.KindControllerRevision {
			t.Errorf("%s %s: the spec means the same", a.Verb(), ref)
		}
		if apply, ok := a.(action.Apply); ok {
			if sts, _ := apply.Object.(*appsv1.StatefulSet); sts.Spec.Template.Labels[lwsv1.RevisionKey] != key {
				t.Errorf("the leaders would restart at key %s", sts.Spec.Template.Labels[lwsv1.RevisionKey])
			}
		}
	}
}

func TestALostRevisionIsMadeAgainUnderItsKey(t *testing.T) {
	c := running(t, 1, 2)
	lost := revisions(c)[0]
	key := lost.Labels[lwsv1.RevisionKey]
	fakeapi.Drop[*appsv1.ControllerRevision](c.Server, lost.Name)
	c.pass(time.Minute)
	plan := c.decideSet()
	got, create := created[*appsv1.ControllerRevision](t, plan)
	if got.Labels[lwsv1.RevisionKey] != key || got.Name != lost.Name {
		t.Errorf("got %q at key %q", got.Name, got.Labels[lwsv1.RevisionKey])
	}
	checkRevisionEvent(t, create, key)
	for _, a := range of[action.Apply](plan) {
		if sts, ok := a.Object.(*appsv1.StatefulSet); ok && sts.Spec.Template.Labels[lwsv1.RevisionKey] != key {
			t.Errorf("the leaders would restart at key %s", sts.Spec.Template.Labels[lwsv1.RevisionKey])
		}
	}
	c.do(plan)
	if again := of[action.Create](c.decideSet()); len(again) != 0 {
		t.Errorf("it is made again: %v", again)
	}
}

func TestARevisionCountsOnlyIfItIsGenuineAndOurs(t *testing.T) {
	for name, change := range map[string]func(*appsv1.ControllerRevision){
		"its data is another's": func(r *appsv1.ControllerRevision) { r.Data.Raw = []byte(`{"spec":{"leaderWorkerTemplate":{}}}`) },
		"it is a former life's": func(r *appsv1.ControllerRevision) { r.OwnerReferences[0].UID = "former" },
		"it is on its way out":  func(r *appsv1.ControllerRevision) { r.DeletionTimestamp = &metav1.Time{Time: fakeapi.Epoch} },
		"neither label nor name tell": func(r *appsv1.ControllerRevision) {
			r.Labels, r.Data.Raw = nil, append([]byte(" "), r.Data.Raw...)
		},
	} {
		c := withoutWorkers(t)
		fakeapi.Edit(c.Server, revisions(c)[0].Name, change)
		plan := c.decideGroup("w-0")
		if _, waits := waitFor(plan, lws.CodeRevisionNotVisible); len(plan.Actions) != 0 || !waits {
			t.Errorf("%s: workers were made from it: %s", name, spelled(plan))
		}
	}
}

func TestAnOrphanedRevisionIsAdopted(t *testing.T) {
	c := running(t, 1, 1)
	orphan := fakeapi.Edit(c.Server, revisions(c)[0].Name, func(r *appsv1.ControllerRevision) { r.OwnerReferences = nil })
	apply := one[action.Apply](t, c.decideSet())
	set := find[*lwsv1.LeaderWorkerSet](c, "w")
	part, _ := apply.Object.(*appsv1.ControllerRevision)
	if apply.Onto != identity.RefOf(identity.KindControllerRevision, orphan) || *apply.Adopter != identity.RefOf(identity.KindLeaderWorkerSet, set) {
		t.Errorf("got %+v", apply)
	}
	if diff := cmp.Diff(controllerRef("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", set), part.OwnerReferences); diff != "" {
		t.Errorf("owner (-want +got)\n%s", diff)
	}
	if err := c.Do(apply); err != nil {
		t.Fatal(err)
	}
	want := orphan.DeepCopy()
	want.OwnerReferences = part.OwnerReferences
	got := revisions(c)[0]
	want.ResourceVersion = got.ResourceVersion
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("adoption changes more than the owner (-want +got)\n%s", diff)
	}
}

// Numbers are free: the name of a previous incarnation's revision is left out.
func TestARevisionTakesTheNextFreeName(t *testing.T) {
	c := newCluster(t)
	set := fakeapi.Add(c.Server, fakeapi.Set("w", 1, 1))
	name := "w-" + lws.RevisionKey(data(t, set)) + "-"
	fakeapi.Add(c.Server, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Namespace: fakeapi.Namespace, Name: name + "1", Labels: map[string]string{lwsv1.SetNameLabelKey: "w"},
	}})
	fakeapi.Terminate[*appsv1.ControllerRevision](c.Server, name+"1", "example.com/stuck")
	if got, _ := created[*appsv1.ControllerRevision](t, c.decideSet()); got.Revision != 2 || got.Name != name+"2" {
		t.Errorf("got %q, number %d", got.Name, got.Revision)
	}
}
