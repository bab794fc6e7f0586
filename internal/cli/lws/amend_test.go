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
)

func TestUndo(t *testing.T) {
	third := imageSet("three", because("third"))
	tests := []struct {
		name  string
		to    int64
		image string
		cause string
		verb  string
		fails string
	}{
		{"to the one before", Previous, "two", "second", "rolled back to revision 2", ""},
		{"to one of the history", 1, "one", "", "rolled back to revision 1", ""},
		{"to the present one", 3, "three", "third", "skipped rollback (current template already matches revision 3)", ""},
		{"to one that is not there", 9, "three", "third", "", `leaderworkerset "llama" has no revision 9; there are: 1, 2, 3`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, third.DeepCopy(), filed(revisionOf(t, imageSet("one"), 1)),
				filed(revisionOf(t, imageSet("two", because("second")), 2)), revisionOf(t, third, 3))
			change, after, err := w.editor().Amend(t.Context(), key, Undo(tt.to))
			if tt.fails != "" {
				if err == nil || err.Error() != tt.fails {
					t.Errorf("got %v, want %q", err, tt.fails)
				}
			} else if err != nil || change.Verb != tt.verb || image(after) != tt.image {
				t.Errorf("got %v, %q, %+v", err, change.Verb, after)
			}
			stored := w.set(t)
			if image(stored) != tt.image || stored.Annotations[lws.ChangeCauseAnnotationKey] != tt.cause {
				t.Errorf("stored is %s because %q", image(stored), stored.Annotations[lws.ChangeCauseAnnotationKey])
			}
			if tt.verb != "" && !lws.Agrees(stored, revisionOf(t, imageSet(tt.image), 1).Data.Raw) {
				t.Errorf("stored another revision: %+v", stored.Spec)
			}
		})
	}
}

// volumeClaimTemplates are immutable: undo keeps those of the spec, and so is not refused.
func TestUndoKeepsVolumeClaimTemplates(t *testing.T) {
	claim := func(name string) func(*lwsv1.LeaderWorkerSet) {
		return func(set *lwsv1.LeaderWorkerSet) {
			if name != "" {
				set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: name}}}
			}
		}
	}
	for _, tt := range []struct{ then, now string }{{"data", "cache"}, {"data", ""}, {"", "data"}, {"data", "data"}} {
		live := imageSet("two", claim(tt.now))
		w := newWorld(t, live, revisionOf(t, imageSet("one", claim(tt.then)), 1), revisionOf(t, imageSet("two", claim(tt.then)), 2))
		if _, _, err := w.editor().Amend(t.Context(), key, Undo(Previous)); err != nil {
			t.Errorf("from %q to %q: %v", tt.now, tt.then, err)
		}
		want, stored := live.Spec.LeaderWorkerTemplate.VolumeClaimTemplates, w.set(t)
		if diff := cmp.Diff(want, stored.Spec.LeaderWorkerTemplate.VolumeClaimTemplates); diff != "" || image(stored) != "one" {
			t.Errorf("stored is %s, claims (-want +got)\n%s", image(stored), diff)
		}
	}
}

func TestWritesNameTheVersionThatWasRead(t *testing.T) {
	w := newWorld(t, imageSet("one"))
	version := w.set(t).ResourceVersion
	if _, _, err := w.editor().Amend(t.Context(), key, Pause); err != nil {
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
		{"while paused", imageSet("two", paused), []*lwsv1.LeaderWorkerSet{imageSet("one"), imageSet("two")},
			`cannot undo the rollout of leaderworkerset "llama" while its rollout is paused; resume it first with: kubectl lockstep rollout resume llama -n ns`},
		{"without a history", imageSet("one"), nil, `no rollout history found for leaderworkerset "llama"`},
		{"with nothing before", imageSet("one"), []*lwsv1.LeaderWorkerSet{imageSet("one")},
			`leaderworkerset "llama" has nothing to go back to: its only revision is 1, and the spec is equal to it`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects := []client.Object{tt.set}
			for i, kept := range tt.kept {
				objects = append(objects, revisionOf(t, kept, int64(i+1)))
			}
			w := newWorld(t, objects...)
			if _, _, err := w.editor().Amend(t.Context(), key, Undo(Previous)); err == nil || err.Error() != tt.want {
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
		w := newWorld(t, imageSet("one", func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.LeaderTemplate = leader }))
		if _, _, err := w.editor().Amend(t.Context(), key, Restart(now)); err != nil {
			t.Fatal(err)
		}
		stored := w.set(t).Spec.LeaderWorkerTemplate
		want := map[string]string{RestartedAtKey: "2026-01-01T12:00:00Z"}
		if diff := cmp.Diff(want, stored.WorkerTemplate.Annotations); diff != "" || image(w.set(t)) != "one" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		if want["kept"] = "yes"; leader != nil {
			if diff := cmp.Diff(want, stored.LeaderTemplate.Annotations); diff != "" {
				t.Errorf("%s, leader (-want +got)\n%s", name, diff)
			}
		}
		if _, _, err := w.editor().Amend(t.Context(), key, Restart(now)); err == nil || !strings.Contains(err.Error(), "within the past second") {
			t.Errorf("%s, in the same second: got %v", name, err)
		}
	}
}

func TestPauseAndResume(t *testing.T) {
	w := newWorld(t, imageSet("one", because("kept")))
	steps := []struct {
		decide Decide
		verb   string
		fails  string
		paused bool
	}{
		{Resume, "", `leaderworkerset "llama" is not paused`, false},
		{Pause, "paused", "", true},
		{Pause, "", `leaderworkerset "llama" is already paused`, true},
		{Restart(now), "", `cannot restart leaderworkerset "llama" while its rollout is paused; resume it first with: kubectl lockstep rollout resume llama -n ns`, true},
		{Resume, "resumed", "", false},
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
	roll := edit(func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate = template("three")
		set.Generation++
	})
	recreate := func(c client.Client) {
		if err := c.Delete(t.Context(), imageSet("two")); err != nil {
			t.Error(err)
		}
		again := imageSet("two")
		again.UID = "another"
		if err := c.Create(t.Context(), again); err != nil {
			t.Error(err)
		}
	}
	tests := []struct {
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
	}
	for _, tt := range tests {
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

func TestNothingIsWritten(t *testing.T) {
	deleted := imageSet("one", func(set *lwsv1.LeaderWorkerSet) {
		at := metav1.NewTime(now)
		set.DeletionTimestamp, set.Finalizers = &at, []string{"example.com/hold"}
	})
	for _, tt := range []struct {
		name  string
		set   *lwsv1.LeaderWorkerSet
		dry   DryRun
		fails string
	}{
		{"a dry run on the client", imageSet("one"), DryRunClient, ""},
		{"a set that is being deleted", deleted, DryRunNone, "is being deleted"},
	} {
		w := newWorld(t, tt.set)
		editor := w.editor()
		editor.DryRun = tt.dry
		_, after, err := editor.Amend(t.Context(), key, Pause)
		if (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) || err == nil && !lws.Paused(after) {
			t.Errorf("%s: got %v", tt.name, err)
		}
		if len(w.patches) > 0 {
			t.Errorf("%s: wrote %v", tt.name, w.patches)
		}
	}
}
