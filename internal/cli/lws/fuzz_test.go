package lws

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

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
