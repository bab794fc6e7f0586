package webhook

import (
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

// The patch of a decimal leaves all else as it is, also beside an undo, which replaces the container.
func TestUnquotedDecimalBecomesAText(t *testing.T) {
	decimal := func(set string) string {
		return strings.Replace(set, `"image":"i"`, `"image":"i","newer":0.5,"resources":{"newer":0.5,"limits":{"cpu":0.5,"memory":"0.5Gi","a":1}}`, 1)
	}
	asked := decimal(goodSet)
	after := string(patched(t, []byte(asked), post(t, PathMutateSet, review(admissionv1.Create, setKind, asked, "")).Patch))
	for _, want := range []string{`"cpu":"500m"`, `"memory":"0.5Gi"`, `"a":1`, `"newer":0.5,"resources"`} {
		if !strings.Contains(after, want) {
			t.Errorf("the set lacks %s: %s", want, after)
		}
	}
	asked = decimal(undone("0"))
	after = string(patched(t, []byte(asked), post(t, PathMutateSet, review(admissionv1.Update, setKind, asked, goodSet)).Patch))
	if !strings.Contains(after, `"image":"before"`) || strings.Contains(after, `"cpu"`) {
		t.Errorf("the undo of decimals: %s", after)
	}
}

func TestMistypedQuantityIsInvalid(t *testing.T) {
	asked := strings.Replace(goodSet, `"image":"i"`, `"image":"i","resources":{"limits":{"cpu":"half"}}`, 1)
	for _, path := range []string{PathMutateSet, PathValidateSet} {
		answer := post(t, path, review(admissionv1.Create, setKind, asked, ""))
		if answer.Allowed || answer.Result.Code != http.StatusUnprocessableEntity || !strings.Contains(answer.Result.Message, "containers[0].resources.limits[cpu]") {
			t.Errorf("%s: %+v", path, answer.Result)
		}
	}
}
