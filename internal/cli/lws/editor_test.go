package lws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/admission"
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

var (
	key = types.NamespacedName{Namespace: "ns", Name: "llama"}
	now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

func imageSet(image string, edits ...func(*lwsv1.LeaderWorkerSet)) *lwsv1.LeaderWorkerSet {
	size := int32(2)
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "set"}}
	set.Spec.LeaderWorkerTemplate = lwsv1.LeaderWorkerTemplate{Size: &size, WorkerTemplate: template(image)}
	admission.Default(set)
	for _, edit := range edits {
		edit(set)
	}
	return set
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "serve", Image: image}}}}
}

func paused(set *lwsv1.LeaderWorkerSet) {
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, lwsv1.PausedAnnotationKey, "true")
}

func because(cause string) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) {
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, lwsrevision.ChangeCauseAnnotationKey, cause)
	}
}

// revisionOf is the revision that the operator creates for a set.
func revisionOf(t *testing.T, set *lwsv1.LeaderWorkerSet, number int64) *appsv1.ControllerRevision {
	t.Helper()
	data, err := lwsrevision.Data(set)
	if err != nil {
		t.Fatal(err)
	}
	hash := lwsrevision.Key(data)
	r := &appsv1.ControllerRevision{Revision: number, Data: runtime.RawExtension{Raw: data}}
	r.ObjectMeta = owned(metaOf(fmt.Sprintf("%s-%s-%d", set.Name, hash, number), hash), "LeaderWorkerSet", set.Name, string(set.UID))
	r.Labels = map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: hash}
	r.Annotations = set.Annotations
	return r
}

// filed moves a revision to the history, as the operator does with unused ones.
func filed(r *appsv1.ControllerRevision) *appsv1.ControllerRevision {
	delete(r.Labels, lwsv1.SetNameLabelKey)
	r.Labels[lwsrevision.HistoryLabelKey] = "llama"
	return r
}

// world is a fake API server that records patches. A call of meanwhile comes before a patch, which is
// then answered by a conflict.
type world struct {
	client.Client
	patches   []map[string]any
	owners    []string
	meanwhile []func(client.Client)
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{}
	inner := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects...).Build()
	w.Client = interceptor.NewClient(inner, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if len(w.meanwhile) > 0 {
				do := w.meanwhile[0]
				w.meanwhile = w.meanwhile[1:]
				do(c)
				return apierrors.NewConflict(lwsv1.Resource("leaderworkersets"), object.GetName(), errors.New("changed"))
			}
			raw, err := patch.Data(object)
			if err != nil {
				return err
			}
			var written map[string]any
			if err := json.Unmarshal(raw, &written); err != nil {
				return err
			}
			all := client.PatchOptions{}
			all.ApplyOptions(options)
			w.patches, w.owners = append(w.patches, written), append(w.owners, all.FieldManager)
			return c.Patch(ctx, object, patch, options...)
		},
	})
	return w
}

func (w *world) editor() *Editor {
	return &Editor{Client: w.Client, DryRun: DryRunNone}
}

func (w *world) set(t *testing.T) *lwsv1.LeaderWorkerSet {
	t.Helper()
	set := &lwsv1.LeaderWorkerSet{}
	if err := w.Get(t.Context(), key, set); err != nil {
		t.Fatal(err)
	}
	return set
}

func image(set *lwsv1.LeaderWorkerSet) string {
	return set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image
}
