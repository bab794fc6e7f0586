package webhook

import (
	"testing"

	evanphx "gopkg.in/evanphx/json-patch.v4"
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
		after := created(t, gating, text)
		switch {
		case want == "" && after != text:
			t.Errorf("%s became %s", text, after)
		case want != "" && (after == text || !evanphx.Equal([]byte(after), []byte(want))):
			t.Errorf("%s became %s", text, after)
		}
	}
}
