package lws

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

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
		{"another kind", "{apiVersion: v1, kind: Service, metadata: {name: s}}", "", `Service "s" is not a LeaderWorkerSet`},
		{"another version", strings.Replace(manifest("a", "{}"), "/v1", "/v2", 1), "", "leaderworkerset.x-k8s.io/v1, "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sets, _, err := ReadManifest("-", strings.NewReader(tt.text))
			if (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Fatalf("got %v, want %q", err, tt.fails)
			}
			var names []string
			for _, s := range sets {
				names = append(names, s.GetName())
			}
			if got := strings.Join(names, " "); got != tt.sets {
				t.Errorf("got %q, want %q", got, tt.sets)
			}
		})
	}
	if _, _, err := ReadManifest("no such file", nil); err == nil || !strings.Contains(err.Error(), "give the path") {
		t.Errorf("got %v", err)
	}
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
		if got := strings.TrimSpace(string(patch)); err != nil || got != tt.want {
			t.Errorf("%s: got %s, %v, want %s", tt.name, got, err, tt.want)
		}
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
		manifest("a", "{a: &a "+strings.Repeat("x", 100)+", b: [*a, *a]}"),
		manifest("\"\\u202e\"", "{1: 2, ~: 3, 0x10: !!binary aGVsbG8=, 2001-01-01: .inf}"),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		sets, skipped, err := ReadManifest("-", bytes.NewReader(text))
		if (err == nil) != (len(sets) > 0) {
			t.Fatalf("%d sets and error %v", len(sets), err)
		}
		if size := len(strings.Join(skipped, "")); size > 100*(len(text)+1) {
			t.Fatalf("%d bytes say what is left out of %d", size, len(text))
		}
		for _, set := range sets {
			checkManifest(t, set, len(text))
		}
	})
}

func checkManifest(t *testing.T, set *unstructured.Unstructured, size int) {
	if set.GroupVersionKind() != lwsv1.GroupVersion.WithKind("LeaderWorkerSet") {
		t.Fatalf("a %s", set.GroupVersionKind())
	}
	once, err := set.MarshalJSON()
	if err != nil {
		t.Fatalf("it cannot be sent: %v", err)
	}
	if len(once) > mostOfOne<<20+16*size {
		t.Fatalf("%d bytes became %d", size, len(once))
	}
	again, _, err := ReadManifest("-", bytes.NewReader(once))
	if err != nil || len(again) != 1 {
		t.Fatalf("our own text is read as %d sets, %v: %s", len(again), err, once)
	}
	if twice, err := json.Marshal(again[0]); err != nil || !bytes.Equal(bytes.TrimSpace(once), twice) {
		t.Fatalf("not the same twice, %v:\n%s\n%s", err, once, twice)
	}
}
