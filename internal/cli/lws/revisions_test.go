package lws

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	lwsrevision "lockstep.dev/lockstep/internal/lws/revision"
)

// The history leaves out revisions of a previous incarnation, and those with a wrong label.
func TestRevisionsAreThoseOfTheSet(t *testing.T) {
	set := imageSet("i")
	revision := func(name string, number int64, edit func(*appsv1.ControllerRevision) *appsv1.ControllerRevision) client.Object {
		r := revisionOf(t, imageSet(name), number)
		r.Name = name
		return edit(r)
	}
	as := func(r *appsv1.ControllerRevision) *appsv1.ControllerRevision { return r }
	label := func(key, value string) func(*appsv1.ControllerRevision) *appsv1.ControllerRevision {
		return func(r *appsv1.ControllerRevision) *appsv1.ControllerRevision { r.Labels[key] = value; return r }
	}
	reader := clientOf(t, []client.Object{
		set,
		revision("current", 7, as),
		revision("filed", 5, filed),
		revision("between", 6, filed),
		revision("both", 4, label(lwsrevision.HistoryLabelKey, "llama")),
		revision("forged", 9, label(lwsv1.RevisionKey, "z")),
		revision("former", 3, func(r *appsv1.ControllerRevision) *appsv1.ControllerRevision {
			r.OwnerReferences[0].UID = "another incarnation"
			return r
		}),
		revision("elsewhere", 8, func(r *appsv1.ControllerRevision) *appsv1.ControllerRevision { r.Namespace = "other"; return r }),
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
