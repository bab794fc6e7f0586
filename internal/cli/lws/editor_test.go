package lws

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsrevision "lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/undo"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

func TestAmend(t *testing.T) {
	deleted := func(set *lwsv1.LeaderWorkerSet) {
		at := metav1.NewTime(now)
		set.DeletionTimestamp, set.Finalizers = &at, []string{"example.com/hold"}
	}
	unsupported := func(set *lwsv1.LeaderWorkerSet) {
		set.Status.Conditions = []metav1.Condition{{Type: lws.CodeUnsupported, Status: metav1.ConditionTrue}}
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
		{"undo", nil, []string{"one", "two", "three"}, Undo(undo.Previous), "", "rolled back to revision 2 (", "two"},
		{"undo to a revision", nil, []string{"one", "two", "three"}, Undo(1), "", "rolled back to revision 1 (", "one"},
		{"undo of an unsupported set", unsupported, []string{"one", "three"}, Undo(undo.Previous), "", "upgrade Lockstep", ""},
		{"undo while paused", paused, []string{"one", "three"}, Undo(undo.Previous), "", "rolled back to revision 1 (", "one"},
		{"restart while paused", paused, nil, Restart(now), "", "resume it first with: kubectl lockstep rollout resume llama -n ns", ""},
		{"undo without history", nil, nil, Undo(undo.Previous), "", "no rollout history found", ""},
		{"undo with one revision", nil, []string{"three"}, Undo(undo.Previous), "", "nothing to go back to", ""},
		{"pause", nil, nil, Pause[*lwsv1.LeaderWorkerSet], "", "paused", "three"},
		{"pause in a dry run", nil, nil, Pause[*lwsv1.LeaderWorkerSet], DryRunClient, "paused", ""},
		{"pause a terminating set", deleted, nil, Pause[*lwsv1.LeaderWorkerSet], "", "is being deleted", ""},
		{"resume", paused, nil, Resume[*lwsv1.LeaderWorkerSet], "", "resumed", "three"},
		{"resume again", nil, nil, Resume[*lwsv1.LeaderWorkerSet], "", "is not paused", ""},
		{"restart", nil, nil, Restart(now), "", "restarted", "three"},
	} {
		set := imageSet("three", because("third"))
		if tt.edit != nil {
			tt.edit(set)
		}
		objects := []client.Object{set}
		for i, image := range tt.kept {
			objects = append(objects, filed(revisionOf(t, imageSet(image, because("of "+image)), int64(i+1))))
		}
		s := serverOf(t, objects...)
		change, err := Amend(t.Context(), &Editor{Client: s, DryRun: tt.dry}, key, tt.decide)
		if err == nil && !strings.HasPrefix(change.Verb, tt.verb) || err != nil && !strings.Contains(err.Error(), tt.verb) {
			t.Errorf("%s: got %q, %v", tt.name, change.Verb, err)
		}
		now, patches := stored(s), s.Asked("patch")
		if (len(patches) == 1) != (tt.image != "") || tt.image != "" && image(now) != tt.image {
			t.Errorf("%s: stored %s by %v", tt.name, image(now), patches)
		}
		if image(now) != "three" && now.Annotations[lwsrevision.ChangeCauseAnnotationKey] != "of "+tt.image {
			t.Errorf("%s: the change cause is %q", tt.name, now.Annotations)
		}
		want := lws.Paused(set) && tt.verb != "resumed" || tt.image != "" && tt.verb == "paused"
		expect.Equalf(t, want, lws.Paused(now), "%s: paused", tt.name)
	}
}

// A verb changes what it names. A set that this version does not wholly know is not undone: its
// revisions lack what it has.
func TestVerbsKeepFieldsOfALaterVersion(t *testing.T) {
	for name, decide := range map[string]Decide{"pause": Pause[*lwsv1.LeaderWorkerSet], "restart": Restart(now)} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				s := serverOf(t, imageSet("three"))
				raw := expect.Value(json.Marshal(stored(s)))(t)
				raw = fakeapi.WithLater(rt, raw)
				_, err := Amend(t.Context(), &Editor{Client: s}, key, decide)
				expect.OK(t, err)
				after := expect.Value(jsonpatch.MergePatch(raw, []byte(s.Asked("patch")[0].Body)))(t)
				expect.Equalf(rt, fakeapi.LaterOf(raw), fakeapi.LaterOf(after), "fields of a later version")
			})
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
		s := serverOf(t, live, revisionOf(t, imageSet("one", pvc(tt.then)), 1), revisionOf(t, imageSet("two", pvc(tt.then)), 2))
		_, err := Amend(t.Context(), &Editor{Client: s}, key, Undo(undo.Previous))
		want, now := live.Spec.LeaderWorkerTemplate.VolumeClaimTemplates, stored(s)
		if diff := cmp.Diff(want, now.Spec.LeaderWorkerTemplate.VolumeClaimTemplates); err != nil || diff != "" || image(now) != "one" {
			t.Errorf("from %q to %q: %v, stored is %s, templates (-want +got)\n%s", tt.now, tt.then, err, image(now), diff)
		}
	}
}

func TestRestartAnnotatesEveryTemplateOfTheVersionThatWasRead(t *testing.T) {
	s := serverOf(t, imageSet("one", fakeapi.Leader("leader"), func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.LeaderTemplate.Annotations = map[string]string{"kept": "yes"}
	}))
	version := stored(s).ResourceVersion
	_, err := Amend(t.Context(), &Editor{Client: s}, key, Restart(now))
	expect.OK(t, err)
	const at = `{"metadata":{"annotations":{"` + RestartedAtKey + `":"2026-01-01T12:00:00Z"}}}`
	want := `{"metadata":{"resourceVersion":"` + version + `"},"spec":{"leaderWorkerTemplate":{"leaderTemplate":` + at + `,"workerTemplate":` + at + `}}}`
	if patches := s.Asked("patch"); len(patches) != 1 || patches[0].Body != want || patches[0].Owner != "kubectl-lockstep" {
		t.Errorf("got %+v, want %s", patches, want)
	}
	if _, err := Amend(t.Context(), &Editor{Client: s}, key, Restart(now)); err == nil || !strings.Contains(err.Error(), "within the past second") {
		t.Errorf("in the same second: got %v", err)
	}
}

// After a conflict, a change is decided again if the spec is the same.
func TestConflicts(t *testing.T) {
	edit := func(change func(*lwsv1.LeaderWorkerSet)) func(*fakeapi.Server) {
		return func(s *fakeapi.Server) { fakeapi.Edit(s, key.Name, change) }
	}
	status := edit(func(set *lwsv1.LeaderWorkerSet) { set.Status.ReadyReplicas++ })
	roll := edit(func(set *lwsv1.LeaderWorkerSet) { set.Generation++ })
	recreate := edit(func(set *lwsv1.LeaderWorkerSet) { set.UID = "another" })
	for _, tt := range []struct {
		name      string
		decide    Decide
		meanwhile []func(*fakeapi.Server)
		fails     string
	}{
		{"undo, status", Undo(undo.Previous), []func(*fakeapi.Server){status}, ""},
		{"undo, rolled", Undo(undo.Previous), []func(*fakeapi.Server){roll}, "was changed meanwhile"},
		{"pause, recreated", Pause[*lwsv1.LeaderWorkerSet], []func(*fakeapi.Server){recreate}, "was changed meanwhile"},
		{"pause, paused", Pause[*lwsv1.LeaderWorkerSet], []func(*fakeapi.Server){edit(paused)}, "is already paused"},
		{"pause, too many conflicts", Pause[*lwsv1.LeaderWorkerSet], []func(*fakeapi.Server){status, status, status, status, status}, "Operation cannot be fulfilled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serverOf(t, imageSet("two"), revisionOf(t, imageSet("one"), 1), revisionOf(t, imageSet("two"), 2))
			s.Refuse = func(fakeapi.Request) error { // before a patch, another client changes the set
				if done := len(s.Requests); done <= len(tt.meanwhile) {
					tt.meanwhile[done-1](s)
				}
				return nil
			}
			_, err := Amend(t.Context(), &Editor{Client: s}, key, tt.decide)
			expect.That(t, (err != nil) == (tt.fails != "") && (err == nil || strings.Contains(err.Error(), tt.fails)),
				"got %v, want %q", err, tt.fails)
			expect.Equalf(t, tt.fails == "", len(s.Requests) > len(tt.meanwhile), "wrote %v", s.Requests)
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
	reader := serverOf(t,
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
	)
	found := expect.Value(lwscache.Revisions(t.Context(), reader, set))(t)
	names := fakeapi.Each(found, func(r *appsv1.ControllerRevision) string { return r.Name })
	expect.Equal(t, []string{"both", "filed", "between", "current"}, names)
}

var (
	key = types.NamespacedName{Namespace: fakeapi.Namespace, Name: "llama"}
	now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

func imageSet(image string, edits ...func(*lwsv1.LeaderWorkerSet)) *lwsv1.LeaderWorkerSet {
	set := fakeapi.Set(key.Name, 1, 2, append(edits, fakeapi.Image(image))...)
	set.UID = "set"
	return set
}

var paused = fakeapi.Annotation(lwsv1.PausedAnnotationKey, "true")

func because(cause string) func(*lwsv1.LeaderWorkerSet) {
	return fakeapi.Annotation(lwsrevision.ChangeCauseAnnotationKey, cause)
}

// revisionOf is the revision that the operator creates for a set.
func revisionOf(t *testing.T, set *lwsv1.LeaderWorkerSet, number int64) *appsv1.ControllerRevision {
	t.Helper()
	data := expect.Value(lwsrevision.Data(set))(t)
	hash := lwsrevision.Key(data)
	r := &appsv1.ControllerRevision{Revision: number, Data: runtime.RawExtension{Raw: data}}
	r.Namespace, r.Name = set.Namespace, lwsrevision.Name(set.Name, hash, number)
	r.Labels = map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: hash}
	r.Annotations = set.Annotations
	fakeapi.OwnedBy(r, lwsv1.GroupVersion.String(), identity.RefOf(identity.KindLeaderWorkerSet, set))
	return r
}

// filed moves a revision to the history, as the operator does with unused ones.
func filed(r *appsv1.ControllerRevision) *appsv1.ControllerRevision {
	delete(r.Labels, lwsv1.SetNameLabelKey)
	r.Labels[lwsrevision.HistoryLabelKey] = "llama"
	return r
}

func stored(s *fakeapi.Server) *lwsv1.LeaderWorkerSet {
	return fakeapi.Find[*lwsv1.LeaderWorkerSet](s, key.Name)
}

func image(set *lwsv1.LeaderWorkerSet) string {
	return set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image
}

func manifest(name, spec string) string {
	return "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: " + name + "}\nspec: " + spec + "\n"
}

func TestReadManifest(t *testing.T) {
	tests := []struct{ name, text, sets, fails string }{
		{"one set", manifest("a", "{replicas: 1}"), "a", ""},
		{"documents and a list", "# a comment\n---\n" + manifest("a", "{}") + "---\nkind: List\napiVersion: v1\nitems:\n- " +
			strings.ReplaceAll(strings.TrimSpace(manifest("b", "{}")), "\n", "\n  ") + "\n- {apiVersion: v1, kind: Service, metadata: {name: s}}", "a b", ""},
		{"not YAML", "a: [", "", "standard input"},
		{"a text", "rubbish", "", "standard input"},
		{"nothing", "", "", "holds no LeaderWorkerSet"},
		{"a list of a set with other metadata", listed(`{"name":"a","labels":["b"]}`), "", `the metadata of LeaderWorkerSet "a"`},
		{"another kind", "{apiVersion: v1, kind: Service, metadata: {name: s}}", "", `Service "s" is not a LeaderWorkerSet`},
		{"another version", strings.Replace(manifest("a", "{}"), "/v1", "/v2", 1), "", "leaderworkerset.x-k8s.io/v1, "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sets, _, err := ReadManifest("-", strings.NewReader(tt.text))
			expect.Must(t, (err != nil) == (tt.fails != "") && (err == nil || strings.Contains(err.Error(), tt.fails)),
				"got %v, want %q", err, tt.fails)
			names := fakeapi.Each(sets, func(s *unstructured.Unstructured) string { return s.GetName() })
			expect.Equal(t, tt.sets, strings.Join(names, " "))
		})
	}
	_, _, err := ReadManifest("no such file", nil)
	expect.That(t, err != nil && strings.Contains(err.Error(), "give the path"), "got %v", err)
}

func TestPatchKeepsFieldsThatTheManifestLacks(t *testing.T) {
	manifest := &unstructured.Unstructured{Object: map[string]any{"kind": "A", "spec": map[string]any{"image": "new"}}}
	for _, tt := range []struct{ name, last, want string }{
		{"never applied", "", `{"spec":{"image":"new"}}`},
		{"the last apply named it", `{"spec":{"replicas":5}}`, `{"spec":{"image":"new","replicas":null}}`},
		{"the last apply did not name it", `{"spec":{"image":"old"}}`, `{"spec":{"image":"new"}}`},
	} {
		live := &unstructured.Unstructured{Object: map[string]any{"kind": "A", "spec": map[string]any{"image": "old", "replicas": int64(5)}}}
		live.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: tt.last})
		patch, err := threeWay(manifest, live)
		expect.OK(t, err)
		expect.Equalf(t, tt.want, strings.TrimSpace(string(patch)), "%s", tt.name)
	}
}

// A manifest is an error, or it has LeaderWorkerSets that say the same when they are read again.
func FuzzReadManifest(f *testing.F) {
	for _, text := range []string{
		"", "{}", "null", "---\n---\n", "a: [", "\x00", "\xff\xfe", "[[[[", "a: &a [*a]\n", "- &a b\n- *a\n",
		manifest("a", "{replicas: 1}"), "# a comment\n---\n" + manifest("a", "{}") + "---\n{apiVersion: v1, kind: Service}\n",
		"kind: List\napiVersion: v1\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(manifest("b", "{}")), "\n", "\n  "),
		`{"kind":"List","apiVersion":"v1","items":[{"kind":"List","apiVersion":"v1","items":[null]}]}`,
		`{"kind":"LeaderWorkerSet","apiVersion":"leaderworkerset.x-k8s.io/v1","metadata":{"name":1,"annotations":[]}}`,
		`{"kind":"LeaderWorkerSet","apiVersion":"leaderworkerset.x-k8s.io/v1","metadata":{"name":"a"},"spec":1e400}`,
		listed(`"r"`), listed(`{"name":1}`), listed(`{"name":"a","labels":["b"]}`), listed(`{"name":"a","creationTimestamp":"then"}`),
		manifest("a", "{a: &a "+strings.Repeat("x", 100)+", b: [*a, *a]}"),
		manifest("\"\\u202e\"", "{1: 2, ~: 3, 0x10: !!binary aGVsbG8=, 2001-01-01: .inf}"),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		sets, skipped, err := ReadManifest("-", bytes.NewReader(text))
		expect.Must(t, (err == nil) == (len(sets) > 0), "%d sets and error %v", len(sets), err)
		size := len(strings.Join(skipped, ""))
		expect.Must(t, size <= 100*(len(text)+1), "%d bytes say what is left out of %d", size, len(text))
		for _, set := range sets {
			checkManifest(t, set, len(text))
		}
	})
}

// listed is a list of one set, which has this metadata.
func listed(metadata string) string {
	return `{"kind":"List","apiVersion":"v1","items":[{"kind":"LeaderWorkerSet","apiVersion":"leaderworkerset.x-k8s.io/v1","metadata":` + metadata + `}]}`
}

func checkManifest(t *testing.T, set *unstructured.Unstructured, size int) {
	expect.Must(t, set.GroupVersionKind() == lwsv1.GroupVersion.WithKind("LeaderWorkerSet"),
		"a %s", set.GroupVersionKind())
	once, err := set.MarshalJSON()
	expect.OKf(t, err, "it cannot be sent")
	expect.Must(t, len(once) <= mostOfOne<<20+16*size, "%d bytes became %d", size, len(once))
	again, _, err := ReadManifest("-", bytes.NewReader(once))
	expect.Must(t, err == nil && len(again) == 1, "our own text is read as %d sets, %v: %s", len(again), err, once)
	if twice, err := json.Marshal(again[0]); err != nil || !bytes.Equal(bytes.TrimSpace(once), twice) {
		t.Fatalf("not the same twice, %v:\n%s\n%s", err, once, twice)
	}
}
