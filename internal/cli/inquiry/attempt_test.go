package inquiry_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"lockstep.dev/lockstep/internal/cli/inquiry"
	"lockstep.dev/lockstep/internal/pvc"
)

// answering is an API server that answers every DELETE alike.
type answering struct {
	code   int
	status string
	sent   []string
}

func (a *answering) RoundTrip(request *http.Request) (*http.Response, error) {
	a.sent = append(a.sent, request.Method+" "+request.URL.RequestURI())
	return &http.Response{
		StatusCode: a.code, Request: request, Body: io.NopCloser(strings.NewReader(a.status)),
		Header: http.Header{"Content-Type": {"application/json"}, "Warning": {`299 - "think twice"`}},
	}, nil
}

func refusal(code, reason, message string) string {
	return `{"kind":"Status","apiVersion":"v1","status":"Failure","code":` + code + `,"reason":"` + reason + `","message":"` + message + `"}`
}

func TestARefusalIsToldFromALackOfPermission(t *testing.T) {
	const head = `persistentvolumeclaims \"data\" is forbidden: `
	for _, tt := range []struct {
		name    string
		code    int
		status  string
		outcome inquiry.Outcome
		by, why string
	}{
		{"done", 200, `{"kind":"Status","apiVersion":"v1","status":"Success"}`, inquiry.Accepted, "", ""},
		{"a policy", 403, refusal("403", "Forbidden", head+`ValidatingAdmissionPolicy 'p' with binding 'b' denied request: in use`), inquiry.Refused, "ValidatingAdmissionPolicy 'p' with binding 'b'", "in use"},
		{"a webhook", 403, refusal("403", "Forbidden", `admission webhook \"w.example.com\" denied the request: no`), inquiry.Refused, `"w.example.com"`, "no"},
		{"no permission", 403, refusal("403", "Forbidden", head+`User \"carol\" cannot delete resource`), inquiry.NotAllowed, "", `User "carol" cannot delete resource`},
		{"another plugin", 403, refusal("403", "Forbidden", head+`quota`), inquiry.Refused, "the API server", "quota"},
		{"a webhook that cannot try", 400, refusal("400", "BadRequest", "admission webhook \\\"w\\\" does not support dry run"), inquiry.NotTried, "", `admission webhook "w" does not support dry run`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wire := &answering{code: tt.code, status: tt.status}
			a, err := inquiry.Try(t.Context(), &rest.Config{Host: "http://server", Transport: wire}, types.NamespacedName{Namespace: ns, Name: "data"})
			if err != nil {
				t.Fatal(err)
			}
			if a.Outcome != tt.outcome || a.By != tt.by || a.Message != tt.why || len(a.Warnings) != 1 || a.Warnings[0] != "think twice" {
				t.Errorf("got %+v", a)
			}
			if len(wire.sent) != 1 || wire.sent[0] != "DELETE /api/v1/namespaces/prod/persistentvolumeclaims/data?dryRun=All" {
				t.Errorf("sent %v", wire.sent)
			}
		})
	}
}

// A dry run shows whether a policy enforces the hold.
func TestADryRunShowsWhetherTheHoldIsEnforced(t *testing.T) {
	held := map[string]string{pvc.HoldersAnnotation: "StatefulSet/db"}
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		outcome     inquiry.Outcome
		unguarded   bool
	}{
		{"refused", held, inquiry.Refused, false},
		{"not allowed", held, inquiry.NotAllowed, false},
		{"accepted, held", held, inquiry.Accepted, true},
		{"accepted, free", nil, inquiry.Accepted, false},
		{"accepted, released", map[string]string{pvc.HoldersAnnotation: "a", pvc.ReleaseAnnotation: "u"}, inquiry.Accepted, false},
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", UID: "u", Annotations: tt.annotations}}
		f := &inquiry.Found{Case: pvc.Case{Claim: claim}}
		if f.Learn(inquiry.Attempt{Outcome: tt.outcome}); f.Unguarded != tt.unguarded {
			t.Errorf("%s: unguarded %t", tt.name, f.Unguarded)
		}
	}
}
