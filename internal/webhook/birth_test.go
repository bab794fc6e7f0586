package webhook

import (
	"encoding/json"
	"slices"
	"testing"

	evanphx "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"lockstep.dev/lockstep/internal/protect"
)

// born is what a webhook makes of an object.
func born(t *testing.T, birth protect.Birth, text string) string {
	t.Helper()
	answer := giving(birth)(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(text)},
	}})
	if !answer.Allowed {
		t.Errorf("%s is refused: %v", text, answer.Result)
	}
	if len(answer.Patches) == 0 {
		return text
	}
	operations, err := json.Marshal(answer.Patches)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := evanphx.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(after)
}

func TestBornWithFinalizersBesideThoseOfOthers(t *testing.T) {
	for text, want := range map[string][]string{
		`{"metadata":{"name":"a"}}`:                                                                {protect.BarrierFinalizer},
		`{"metadata":{"finalizers":null}}`:                                                         {protect.BarrierFinalizer},
		`{"metadata":{"finalizers":["a/b","c/d"]},"new":{"x":1}}`:                                  {"a/b", "c/d", protect.BarrierFinalizer},
		`{"metadata":{"finalizers":["` + protect.BarrierFinalizer + `","a/b"]}}`:                   {protect.BarrierFinalizer, "a/b"},
		`{"metadata":{"annotations":{"protection.lockstep.dev/mode":"off"},"finalizers":["a/b"]}}`: {"a/b"},
	} {
		after := born(t, protect.BornProtected, text)
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
			if after := born(t, birth, text); after != text {
				t.Errorf("%q became %q", text, after)
			}
		}
	}
}
