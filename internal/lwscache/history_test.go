package lwscache_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/lwstest"
)

// A revision that leaders run and nobody shows is looked for in the API server, by its
// owner. What was looked for in vain is not looked for again at every look.
func TestARevisionThatLeadersRunIsLookedForWhateverItsLabels(t *testing.T) {
	e, set, _ := chained(t)
	data := []byte("{}")
	key := lws.RevisionKey(data)
	lwstest.Edit(e.FakeStore, "w", func(sts *appsv1.StatefulSet) { sts.Labels[lwsv1.RevisionKey] = key })
	e.set("w")
	before := e.live.Reads
	if e.set("w"); e.live.Reads != before {
		t.Errorf("looked for with each look: %d reads more", e.live.Reads-before)
	}
	e.Now = e.Now.Add(10 * time.Second)
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: lwstest.Namespace, Name: "w-" + key + "-1"}}
	revision.Data.Raw = data
	lwstest.OwnedBy(revision, lwsv1.GroupVersion.String(), identity.RefOf(identity.KindLeaderWorkerSet, set))
	lwstest.Add(e.FakeStore, revision)
	if got := e.set("w").Revisions; len(got.Members) != 1 {
		t.Errorf("found %+v", got)
	}

	// Shown again and hidden again, it is what it is, not what it was.
	label := func(labels map[string]string) {
		lwstest.Edit(e.FakeStore, revision.Name, func(r *appsv1.ControllerRevision) { r.Labels = labels })
	}
	label(map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.RevisionKey: key})
	e.set("w")
	label(nil)
	if got := e.set("w").Revisions; len(got.Members) != 1 || got.Members[0].Labels != nil {
		t.Errorf("found %+v", got)
	}
}

// Nobody can tell what a leader runs whose revision was deleted, and each look at its
// set listed the history for it.
func TestARevisionThatIsLostCostsNoListForEachLook(t *testing.T) {
	e, set, _ := chained(t)
	data, err := lws.RevisionData(set)
	if err != nil {
		t.Fatal(err)
	}
	key := lws.RevisionKey(data)
	add := func(name, key string) {
		revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: lwstest.Namespace, Name: name}}
		revision.Labels, revision.Data.Raw = map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.RevisionKey: key}, data
		lwstest.OwnedBy(revision, lwsv1.GroupVersion.String(), identity.RefOf(identity.KindLeaderWorkerSet, set))
		lwstest.Add(e.FakeStore, revision)
	}
	add("w-"+key+"-1", key)
	lwstest.Edit(e.FakeStore, "w", func(sts *appsv1.StatefulSet) { sts.Labels[lwsv1.RevisionKey] = key })
	runs := func(key string) {
		lwstest.Edit(e.FakeStore, "w-0", func(pod *corev1.Pod) { pod.Labels[lwsv1.RevisionKey] = key })
	}
	lists := func(want bool) {
		t.Helper()
		before := e.live.Lists
		e.set("w")
		if got := e.live.Lists - before; (got > 0) != want {
			t.Errorf("%d lists, want some: %t", got, want)
		}
	}
	runs(key)
	lists(false)
	runs("lost")
	lists(true)
	lists(false)
	runs("other")
	lists(true) // what was looked for in vain was something else
	runs("lost")
	lists(false)
	e.Now = e.Now.Add(10 * time.Second)
	lists(true)
}
