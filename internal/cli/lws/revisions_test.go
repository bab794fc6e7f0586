package lws

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
)

// The history leaves out revisions of a previous incarnation, and those with a wrong label.
func TestRevisionsAreThoseOfTheSet(t *testing.T) {
	set := newSet("a", 1, 1)
	revision := func(name string, number int64, image string, edit func(*metav1.ObjectMeta)) client.Object {
		past := newSet("a", 1, 1)
		past.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = image
		data, err := lws.RevisionData(past)
		if err != nil {
			t.Fatal(err)
		}
		m := owned(metaOf(name, name), "LeaderWorkerSet", "a", "set-uid")
		m.Labels = map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.RevisionKey: lws.RevisionKey(data)}
		edit(&m)
		return &appsv1.ControllerRevision{ObjectMeta: m, Revision: number, Data: runtime.RawExtension{Raw: data}}
	}
	asItIs := func(*metav1.ObjectMeta) {}
	filed := func(m *metav1.ObjectMeta) {
		delete(m.Labels, lwsv1.SetNameLabelKey)
		m.Labels[lws.HistoryLabelKey] = "a"
	}
	reader := clientOf(t, []client.Object{
		set,
		revision("current", 7, "i", asItIs),
		revision("filed", 5, "older", filed),
		revision("between", 6, "old", filed),
		revision("both", 4, "oldest", func(m *metav1.ObjectMeta) { m.Labels[lws.HistoryLabelKey] = "a" }),
		revision("former", 3, "x", func(m *metav1.ObjectMeta) { m.OwnerReferences[0].UID = "another incarnation" }),
		revision("forged", 9, "y", func(m *metav1.ObjectMeta) { m.Labels[lwsv1.RevisionKey] = "z" }),
		revision("elsewhere", 8, "z", func(m *metav1.ObjectMeta) { m.Namespace = "other" }),
	})
	found, err := Revisions(t.Context(), reader, set)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range found {
		names = append(names, r.Name)
	}
	if want := []string{"both", "filed", "between", "current"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}
