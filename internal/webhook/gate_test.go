package webhook

import (
	"encoding/json"
	"testing"

	evanphx "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// TestPodsThatUseClaimsAreGated, and nothing else about them is touched, not even
// what is not known here.
func TestPodsThatUseClaimsAreGated(t *testing.T) {
	const volumes = `"volumes":[{"name":"a","emptyDir":{}},{"name":"b","persistentVolumeClaim":{"claimName":"data"}}]`
	const ours = `{"name":"protection.lockstep.dev/use-recorded"}`
	for text, want := range map[string]string{
		`{"spec":{` + volumes + `}}`:                                    `{"spec":{` + volumes + `,"schedulingGates":[` + ours + `]}}`,
		`{"spec":{` + volumes + `,"schedulingGates":null,"new":1}}`:     `{"spec":{` + volumes + `,"schedulingGates":[` + ours + `],"new":1}}`,
		`{"spec":{` + volumes + `,"schedulingGates":[{"name":"a/b"}]}}`: `{"spec":{` + volumes + `,"schedulingGates":[{"name":"a/b"},` + ours + `]}}`,
		`{"spec":{` + volumes + `,"schedulingGates":[` + ours + `]}}`:   "",
		`{"spec":{` + volumes + `,"nodeName":"n"}}`:                     "", // the policy refuses it
		`{"spec":{"volumes":[{"name":"a","ephemeral":{}}]}}`:            "",
		`{"spec":{}}`: "",
		`{"spec":7}`:  "", // for the API server to refuse
		``:            "",
	} {
		answer := gating(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(text)},
		}})
		if !answer.Allowed || (want == "") != (len(answer.Patches) == 0) {
			t.Errorf("%s: allowed %t, %v", text, answer.Allowed, answer.Patches)
			continue
		}
		if want != "" && !evanphx.Equal([]byte(patched(t, text, answer)), []byte(want)) {
			t.Errorf("%s became %s", text, patched(t, text, answer))
		}
	}
}

func patched(t *testing.T, text string, answer admission.Response) string {
	t.Helper()
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
