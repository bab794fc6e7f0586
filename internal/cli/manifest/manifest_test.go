package manifest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/survey"
)

func manifest(name, spec string) string {
	return "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: " + name + "}\nspec: " + spec + "\n"
}

func TestRead(t *testing.T) {
	tests := []struct{ name, text, sets, fails string }{
		{"one set", manifest("a", "{replicas: 1}"), "ns/a", ""},
		{"documents and a list", "# a comment\n---\n" + manifest("a", "{}") + "---\nkind: List\napiVersion: v1\nitems:\n- " +
			strings.ReplaceAll(strings.TrimSpace(manifest("b", "{}")), "\n", "\n  ") + "\n- {apiVersion: v1, kind: Service, metadata: {name: s}}", "ns/a ns/b", ""},
		{"not YAML", "a: [", "", "document 1: not YAML"},
		{"a text", "rubbish", "", "not an object"},
		{"twice the same field", "kind: A\nkind: B", "", `"kind" already set`},
		{"nothing", "", "", "holds no LeaderWorkerSet"},
		{"another kind", "{apiVersion: v1, kind: Service, metadata: {name: s}}", "", `Service "s" is not a LeaderWorkerSet`},
		{"another version", strings.Replace(manifest("a", "{}"), "/v1", "/v2", 1), "", `apiVersion "leaderworkerset.x-k8s.io/v2" is not served`},
		{"no name", manifest("", "{}"), "", "metadata.name is missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sets, _, err := Read("-", strings.NewReader(tt.text), "ns")
			if (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Fatalf("got %v, want %q", err, tt.fails)
			}
			var names []string
			for _, s := range sets {
				names = append(names, s.Namespace()+"/"+s.object.GetName())
			}
			if got := strings.Join(names, " "); got != tt.sets {
				t.Errorf("got %q, want %q", got, tt.sets)
			}
		})
	}
}

func TestReadNamesFilesThatItCannotRead(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, sizeLimit+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{t.TempDir(): "give the path", "no such file": "give the path", large: "is larger than 16 MiB"} {
		if _, _, err := Read(path, nil, "ns"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

func TestPatchKeepsWhatTheFileDoesNotName(t *testing.T) {
	said := &unstructured.Unstructured{Object: map[string]any{"kind": "A", "spec": map[string]any{"image": "new"}}}
	for _, tt := range []struct{ name, last, want string }{
		{"never applied", "", `{"spec":{"image":"new"}}`},
		{"the last apply named it", `{"spec":{"replicas":5}}`, `{"spec":{"image":"new","replicas":null}}`},
		{"the last apply did not name it", `{"spec":{"image":"old"}}`, `{"spec":{"image":"new"}}`},
		{"the annotation is no object", "rubbish", `{"spec":{"image":"new"}}`},
	} {
		live := &unstructured.Unstructured{Object: map[string]any{"kind": "A", "spec": map[string]any{"image": "old", "replicas": int64(5)}}}
		live.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: tt.last})
		patch, err := threeWay(said, live)
		if got := strings.TrimSpace(string(patch)); err != nil || got != tt.want {
			t.Errorf("%s: got %s, %v, want %s", tt.name, got, err, tt.want)
		}
	}
}

func apply(t *testing.T, c client.Client, text string) *lwsv1.LeaderWorkerSet {
	t.Helper()
	sets, _, err := Read("-", strings.NewReader(text), "ns")
	if err != nil {
		t.Fatal(err)
	}
	set, _, err := (&DryRunner{client: c}).Apply(t.Context(), sets[0])
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestApplyCreatesNothing(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(survey.Scheme()).Build()
	if set := apply(t, c, manifest("a", "{replicas: 2}")); set.UID != "" || *set.Spec.Replicas != 2 {
		t.Errorf("got %+v", set)
	}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, &lwsv1.LeaderWorkerSet{}); !apierrors.IsNotFound(err) {
		t.Errorf("the dry run stored the set: %v", err)
	}
}

// sent counts requests.
type sent int

func (s *sent) RoundTrip(*http.Request) (*http.Response, error) { *s++; return &http.Response{}, nil }

func TestOnlyDryRunsAreSent(t *testing.T) {
	for _, tt := range []struct {
		method, query string
		sent          sent
	}{{"GET", "", 1}, {"POST", "?dryRun=All", 1}, {"PATCH", "?dryRun=All", 1}, {"POST", "", 0}, {"PATCH", "?dryRun=None", 0}, {"DELETE", "", 0}} {
		var got sent
		_, err := dryRuns{&got}.RoundTrip(httptest.NewRequest(tt.method, "https://host/"+tt.query, nil))
		if got != tt.sent || (err == nil) != (tt.sent == 1) {
			t.Errorf("%s %s: sent %d, %v", tt.method, tt.query, got, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(manifest("a", "{replicas: 1}"))
	f.Add("---\nitems: [1]\nkind: List")
	f.Fuzz(func(_ *testing.T, text string) { _, _, _ = Read("-", strings.NewReader(text), "ns") })
}
