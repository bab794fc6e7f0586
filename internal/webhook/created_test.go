package webhook

import (
	"encoding/json"
	"testing"

	evanphx "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// created is what a webhook that refuses nothing makes of an object that is created.
func created(t *testing.T, by admission.HandlerFunc, text string) string {
	t.Helper()
	answer := by(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
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
