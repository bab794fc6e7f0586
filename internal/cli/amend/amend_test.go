package amend_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/amend"
	"lockstep.dev/lockstep/internal/lws"
)

func TestUndoGoesBackInOneWrite(t *testing.T) {
	third := newSet("three", because("third"))
	tests := []struct {
		name     string
		to       int64
		image    string
		cause    string
		verb     string
		mistaken string
	}{
		{"to the one before", amend.Previous, "two", "second", "rolled back to revision 2", ""},
		{"to one of the history", 1, "one", "", "rolled back to revision 1", ""},
		{"to the present one", 3, "three", "third", "skipped rollback (current template already matches revision 3)", ""},
		{"to one that is not there", 9, "three", "third", "", `leaderworkerset "llama" has no revision 9; there are: 1, 2, 3`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, third.DeepCopy(), history(revisionOf(t, newSet("one"), 1)),
				history(revisionOf(t, newSet("two", because("second")), 2)), revisionOf(t, third, 3))
			change, after, err := w.editor().Amend(t.Context(), key, amend.Undo(tt.to))
			if tt.mistaken != "" {
				if err == nil || err.Error() != tt.mistaken {
					t.Errorf("got %v, want %q", err, tt.mistaken)
				}
			} else if err != nil || change.Verb != tt.verb || image(after) != tt.image {
				t.Errorf("got %v, %q, %+v", err, change.Verb, after)
			}
			stored := w.set(t)
			if image(stored) != tt.image || stored.Annotations[lws.ChangeCauseAnnotationKey] != tt.cause {
				t.Errorf("stored is %s because %q", image(stored), stored.Annotations[lws.ChangeCauseAnnotationKey])
			}
			if tt.verb != "" && !lws.Agrees(stored, revisionOf(t, newSet(tt.image), 1).Data.Raw) {
				t.Errorf("what is stored is another revision: %+v", stored.Spec)
			}
		})
	}
}

// Claims never change: going back leaves those of the spec, whatever the revision says,
// and so is not refused.
func TestUndoLeavesTheClaims(t *testing.T) {
	claim := func(name string) func(*lwsv1.LeaderWorkerSet) {
		return func(set *lwsv1.LeaderWorkerSet) {
			if name != "" {
				set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: name}}}
			}
		}
	}
	for _, tt := range []struct{ then, now string }{{"data", "cache"}, {"data", ""}, {"", "data"}, {"data", "data"}} {
		live := newSet("two", claim(tt.now))
		w := newWorld(t, live, revisionOf(t, newSet("one", claim(tt.then)), 1), revisionOf(t, newSet("two", claim(tt.then)), 2))
		if _, _, err := w.editor().Amend(t.Context(), key, amend.Undo(amend.Previous)); err != nil {
			t.Errorf("from %q to %q: %v", tt.now, tt.then, err)
		}
		want, stored := live.Spec.LeaderWorkerTemplate.VolumeClaimTemplates, w.set(t)
		if diff := cmp.Diff(want, stored.Spec.LeaderWorkerTemplate.VolumeClaimTemplates); diff != "" || image(stored) != "one" {
			t.Errorf("stored is %s, claims (-want +got)\n%s", image(stored), diff)
		}
	}
}

func TestEveryWriteNamesTheVersionThatWasLookedAt(t *testing.T) {
	w := newWorld(t, newSet("one"))
	version := w.set(t).ResourceVersion
	if _, _, err := w.editor().Amend(t.Context(), key, amend.Pause); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{{"metadata": map[string]any{
		"annotations": map[string]any{"lockstep.dev/paused": "true"}, "resourceVersion": version,
	}}}
	if diff := cmp.Diff(want, w.patches); diff != "" || !slices.Equal(w.owners, []string{"kubectl-lockstep"}) {
		t.Errorf("by %v (-want +got)\n%s", w.owners, diff)
	}
}

func TestUndoIsRefused(t *testing.T) {
	tests := []struct {
		name string
		set  *lwsv1.LeaderWorkerSet
		kept []*lwsv1.LeaderWorkerSet
		want string
	}{
		{"while paused", newSet("two", paused), []*lwsv1.LeaderWorkerSet{newSet("one"), newSet("two")},
			`cannot undo the rollout of leaderworkerset "llama" while its rollout is paused; resume it first with: kubectl lockstep rollout resume llama -n ns`},
		{"without a history", newSet("one"), nil, `no rollout history found for leaderworkerset "llama"`},
		{"with nothing before", newSet("one"), []*lwsv1.LeaderWorkerSet{newSet("one")},
			`leaderworkerset "llama" has nothing to go back to: its only revision is 1, and that is what the spec says`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects := []client.Object{tt.set}
			for i, kept := range tt.kept {
				objects = append(objects, revisionOf(t, kept, int64(i+1)))
			}
			w := newWorld(t, objects...)
			if _, _, err := w.editor().Amend(t.Context(), key, amend.Undo(amend.Previous)); err == nil || err.Error() != tt.want {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
			if len(w.patches) > 0 {
				t.Errorf("it wrote %v", w.patches)
			}
		})
	}
}

func TestRestartAnnotatesEveryTemplate(t *testing.T) {
	for name, leader := range map[string]*corev1.PodTemplateSpec{
		"workers alone": nil, "a leader template": {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kept": "yes"}}, Spec: template("leader").Spec},
	} {
		w := newWorld(t, newSet("one", func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.LeaderTemplate = leader }))
		if _, _, err := w.editor().Amend(t.Context(), key, amend.Restart(now)); err != nil {
			t.Fatal(err)
		}
		stored := w.set(t).Spec.LeaderWorkerTemplate
		want := map[string]string{amend.RestartedAtKey: "2026-01-01T12:00:00Z"}
		if diff := cmp.Diff(want, stored.WorkerTemplate.Annotations); diff != "" || image(w.set(t)) != "one" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		if want["kept"] = "yes"; leader != nil {
			if diff := cmp.Diff(want, stored.LeaderTemplate.Annotations); diff != "" {
				t.Errorf("%s, leader (-want +got)\n%s", name, diff)
			}
		}
		if _, _, err := w.editor().Amend(t.Context(), key, amend.Restart(now)); err == nil || !strings.Contains(err.Error(), "within the past second") {
			t.Errorf("%s, in the same second: got %v", name, err)
		}
	}
}

func TestPauseAndResume(t *testing.T) {
	w := newWorld(t, newSet("one", because("kept")))
	steps := []struct {
		decide amend.Decide
		verb   string
		fails  string
		paused bool
	}{
		{amend.Resume, "", `leaderworkerset "llama" is not paused`, false},
		{amend.Pause, "paused", "", true},
		{amend.Pause, "", `leaderworkerset "llama" is already paused`, true},
		{amend.Restart(now), "", `cannot restart leaderworkerset "llama" while its rollout is paused; resume it first with: kubectl lockstep rollout resume llama -n ns`, true},
		{amend.Resume, "resumed", "", false},
	}
	for i, step := range steps {
		change, _, err := w.editor().Amend(t.Context(), key, step.decide)
		if (err != nil) != (step.fails != "") || err != nil && err.Error() != step.fails || change.Verb != step.verb {
			t.Errorf("step %d: got %q, %v", i, change.Verb, err)
		}
		if set := w.set(t); lws.Paused(set) != step.paused || set.Annotations[lws.ChangeCauseAnnotationKey] != "kept" {
			t.Errorf("step %d: got %v", i, set.Annotations)
		}
	}
}

// Somebody else was faster: what was decided is carried out only if it was decided
// on what is still so.
func TestAConflictIsLookedAtAgain(t *testing.T) {
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
	scale := edit(func(set *lwsv1.LeaderWorkerSet) { replicas := int32(9); set.Spec.Replicas = &replicas })
	roll := edit(func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.WorkerTemplate = template("three") })
	rebirth := func(c client.Client) {
		if err := c.Delete(t.Context(), newSet("two")); err != nil {
			t.Error(err)
		}
		again := newSet("two")
		again.UID = "another"
		if err := c.Create(t.Context(), again); err != nil {
			t.Error(err)
		}
	}
	tests := []struct {
		name      string
		decide    amend.Decide
		meanwhile []func(client.Client)
		fails     string
	}{
		{"undo, scaled", amend.Undo(amend.Previous), []func(client.Client){scale}, ""},
		{"undo, rolled", amend.Undo(amend.Previous), []func(client.Client){roll}, "was changed meanwhile"},
		{"restart, rolled", amend.Restart(now), []func(client.Client){roll}, ""},
		{"pause, reborn", amend.Pause, []func(client.Client){rebirth}, "was deleted and created anew"},
		{"pause, paused", amend.Pause, []func(client.Client){edit(paused)}, "is already paused"},
		{"restart, paused", amend.Restart(now), []func(client.Client){edit(paused)}, "cannot restart"},
		{"pause, again and again", amend.Pause, []func(client.Client){scale, scale, scale, scale, scale}, "Operation cannot be fulfilled"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, newSet("two"), revisionOf(t, newSet("one"), 1), revisionOf(t, newSet("two"), 2))
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

func TestNothingIsWritten(t *testing.T) {
	deleted := newSet("one", func(set *lwsv1.LeaderWorkerSet) {
		at := metav1.NewTime(now)
		set.DeletionTimestamp, set.Finalizers = &at, []string{"example.com/hold"}
	})
	for _, tt := range []struct {
		name  string
		set   *lwsv1.LeaderWorkerSet
		dry   amend.DryRun
		fails string
	}{
		{"a dry run on the client", newSet("one"), amend.DryRunClient, ""},
		{"a set that is being deleted", deleted, amend.DryRunNone, "is being deleted"},
	} {
		w := newWorld(t, tt.set)
		editor := w.editor()
		editor.DryRun = tt.dry
		_, after, err := editor.Amend(t.Context(), key, amend.Pause)
		if (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) || err == nil && !lws.Paused(after) {
			t.Errorf("%s: got %v", tt.name, err)
		}
		if len(w.patches) > 0 {
			t.Errorf("%s: wrote %v", tt.name, w.patches)
		}
	}
}
