package lws

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	lwsrevision "lockstep.dev/lockstep/internal/lws/revision"
)

func TestAmend(t *testing.T) {
	deleted := func(set *lwsv1.LeaderWorkerSet) {
		at := metav1.NewTime(now)
		set.DeletionTimestamp, set.Finalizers = &at, []string{"example.com/hold"}
	}
	for _, tt := range []struct {
		name   string
		edit   func(*lwsv1.LeaderWorkerSet)
		kept   []string // images of the revisions
		decide Decide
		dry    string
		verb   string // or the error
		image  string // empty if nothing is written
	}{
		{"undo", nil, []string{"one", "two", "three"}, Undo(Previous), "", "rolled back to revision 2", "two"},
		{"undo to a revision", nil, []string{"one", "two", "three"}, Undo(1), "", "rolled back to revision 1", "one"},
		{"undo to the current one", nil, []string{"one", "two", "three"}, Undo(3), "", "skipped rollback (current template already matches revision 3)", ""},
		{"undo to a missing one", nil, []string{"one", "three"}, Undo(9), "", "has no revision 9; there are: 1, 2", ""},
		{"undo while paused", paused, []string{"one", "three"}, Undo(Previous), "", "resume it first with: kubectl lockstep rollout resume llama -n ns", ""},
		{"undo without history", nil, nil, Undo(Previous), "", "no rollout history found", ""},
		{"undo with one revision", nil, []string{"three"}, Undo(Previous), "", "nothing to go back to", ""},
		{"pause", nil, nil, Pause, "", "paused", "three"},
		{"pause in a dry run", nil, nil, Pause, DryRunClient, "paused", ""},
		{"pause again", paused, nil, Pause, "", "is already paused", ""},
		{"pause a terminating set", deleted, nil, Pause, "", "is being deleted", ""},
		{"resume", paused, nil, Resume, "", "resumed", "three"},
		{"resume again", nil, nil, Resume, "", "is not paused", ""},
		{"restart", nil, nil, Restart(now), "", "restarted", "three"},
		{"restart while paused", paused, nil, Restart(now), "", "cannot restart", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set := imageSet("three", because("third"))
			if tt.edit != nil {
				tt.edit(set)
			}
			objects := []client.Object{set}
			for i, image := range tt.kept {
				objects = append(objects, filed(revisionOf(t, imageSet(image, because("of "+image)), int64(i+1))))
			}
			w := newWorld(t, objects...)
			editor := w.editor()
			editor.DryRun = tt.dry
			change, _, err := editor.Amend(t.Context(), key, tt.decide)
			if err == nil && change.Verb != tt.verb || err != nil && !strings.Contains(err.Error(), tt.verb) {
				t.Errorf("got %q, %v", change.Verb, err)
			}
			stored := w.set(t)
			if (len(w.patches) == 1) != (tt.image != "") || tt.image != "" && image(stored) != tt.image {
				t.Errorf("stored %s by %v", image(stored), w.patches)
			}
			if image(stored) != "three" && stored.Annotations[lwsrevision.ChangeCauseAnnotationKey] != "of "+tt.image {
				t.Errorf("the change cause is %q", stored.Annotations)
			}
			if want := tt.edit != nil && tt.verb != "resumed" && set.DeletionTimestamp == nil || tt.image != "" && tt.verb == "paused"; lws.Paused(stored) != want {
				t.Errorf("paused: %t", lws.Paused(stored))
			}
		})
	}
}

// volumeClaimTemplates are immutable: undo keeps those of the spec, and so is not refused.
func TestUndoKeepsVolumeClaimTemplates(t *testing.T) {
	pvc := func(name string) func(*lwsv1.LeaderWorkerSet) {
		return func(set *lwsv1.LeaderWorkerSet) {
			if name != "" {
				set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: name}}}
			}
		}
	}
	for _, tt := range []struct{ then, now string }{{"data", "cache"}, {"data", ""}, {"", "data"}, {"data", "data"}} {
		live := imageSet("two", pvc(tt.now))
		w := newWorld(t, live, revisionOf(t, imageSet("one", pvc(tt.then)), 1), revisionOf(t, imageSet("two", pvc(tt.then)), 2))
		_, _, err := w.editor().Amend(t.Context(), key, Undo(Previous))
		want, stored := live.Spec.LeaderWorkerTemplate.VolumeClaimTemplates, w.set(t)
		if diff := cmp.Diff(want, stored.Spec.LeaderWorkerTemplate.VolumeClaimTemplates); err != nil || diff != "" || image(stored) != "one" {
			t.Errorf("from %q to %q: %v, stored is %s, templates (-want +got)\n%s", tt.now, tt.then, err, image(stored), diff)
		}
	}
}

func TestRestartAnnotatesEveryTemplateOfTheVersionThatWasRead(t *testing.T) {
	leader := template("leader")
	leader.Annotations = map[string]string{"kept": "yes"}
	w := newWorld(t, imageSet("one", func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.LeaderTemplate = &leader }))
	version := w.set(t).ResourceVersion
	if _, _, err := w.editor().Amend(t.Context(), key, Restart(now)); err != nil {
		t.Fatal(err)
	}
	at := map[string]any{"metadata": map[string]any{"annotations": map[string]any{RestartedAtKey: "2026-01-01T12:00:00Z"}}}
	want := []map[string]any{{"metadata": map[string]any{"resourceVersion": version}, "spec": map[string]any{
		"leaderWorkerTemplate": map[string]any{"leaderTemplate": at, "workerTemplate": at},
	}}}
	if diff := cmp.Diff(want, w.patches); diff != "" || !slices.Equal(w.owners, []string{"kubectl-lockstep"}) {
		t.Errorf("by %v (-want +got)\n%s", w.owners, diff)
	}
	if _, _, err := w.editor().Amend(t.Context(), key, Restart(now)); err == nil || !strings.Contains(err.Error(), "within the past second") {
		t.Errorf("in the same second: got %v", err)
	}
}

// After a conflict, a change is decided again if the spec is the same.
func TestConflicts(t *testing.T) {
	edit := func(change func(*lwsv1.LeaderWorkerSet)) func(client.Client) {
		return func(c client.Client) {
			set := &lwsv1.LeaderWorkerSet{}
			if err := c.Get(t.Context(), key, set); err != nil {
				t.Error(err)
			}
			change(set)
			if err := c.Update(t.Context(), set); err != nil {
				t.Error(err)
			}
		}
	}
	status := edit(func(set *lwsv1.LeaderWorkerSet) { set.Status.ReadyReplicas++ })
	roll := edit(func(set *lwsv1.LeaderWorkerSet) { set.Generation++ })
	recreate := func(c client.Client) {
		again := imageSet("two")
		again.UID = "another"
		if err := c.Delete(t.Context(), imageSet("two")); err != nil {
			t.Error(err)
		}
		if err := c.Create(t.Context(), again); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		name      string
		decide    Decide
		meanwhile []func(client.Client)
		fails     string
	}{
		{"undo, status", Undo(Previous), []func(client.Client){status}, ""},
		{"undo, rolled", Undo(Previous), []func(client.Client){roll}, "was changed meanwhile"},
		{"pause, recreated", Pause, []func(client.Client){recreate}, "was changed meanwhile"},
		{"pause, paused", Pause, []func(client.Client){edit(paused)}, "is already paused"},
		{"pause, too many conflicts", Pause, []func(client.Client){status, status, status, status, status}, "Operation cannot be fulfilled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, imageSet("two"), revisionOf(t, imageSet("one"), 1), revisionOf(t, imageSet("two"), 2))
			w.meanwhile = tt.meanwhile
			_, _, err := w.editor().Amend(t.Context(), key, tt.decide)
			if (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("got %v, want %q", err, tt.fails)
			}
			if written := len(w.patches) > 0; written != (tt.fails == "") {
				t.Errorf("wrote %v", w.patches)
			}
		})
	}
}
