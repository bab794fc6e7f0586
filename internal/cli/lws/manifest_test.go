package lws

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
