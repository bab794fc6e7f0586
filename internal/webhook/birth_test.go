package webhook

import (
	"encoding/json"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

func TestBornWithFinalizersBesideThoseOfOthers(t *testing.T) {
	for text, want := range map[string][]string{
		`{"metadata":{"name":"a"}}`:                                                                {pvc.BarrierFinalizer},
		`{"metadata":{"finalizers":null}}`:                                                         {pvc.BarrierFinalizer},
		`{"metadata":{"finalizers":["a/b","c/d"]},"new":{"x":1}}`:                                  {"a/b", "c/d", pvc.BarrierFinalizer},
		`{"metadata":{"finalizers":["` + pvc.BarrierFinalizer + `","a/b"]}}`:                       {pvc.BarrierFinalizer, "a/b"},
		`{"metadata":{"annotations":{"protection.lockstep.dev/mode":"off"},"finalizers":["a/b"]}}`: {"a/b"},
	} {
		after := created(t, giving(pvc.BornProtected), text)
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal([]byte(after), &object); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(object.Finalizers, want) {
			t.Errorf("%s: got %q, want %q", text, object.Finalizers, want)
		}
	}
}

// A claim that cannot be read is for the API server to refuse, with its own words.
func TestABirthIsNeverRefused(t *testing.T) {
	for _, text := range []string{"", "{", "[]", `{"metadata":{"finalizers":7}}`, `{"metadata":{"annotations":{"protection.lockstep.dev/mode":false}}}`} {
		for _, birth := range births() {
			if after := created(t, giving(birth), text); after != text {
				t.Errorf("%q became %q", text, after)
			}
		}
	}
}
