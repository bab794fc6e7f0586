package pvc

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"lockstep.dev/lockstep/internal/pvc"
)

// A refusal by admission and a lack of permission are both 403.
func TestAnswersToADryRun(t *testing.T) {
	forbidden := func(message string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "data", errors.New(message))
	}
	webhook := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	webhook.ErrStatus.Message = `admission webhook "w.example.com" denied the request: no`
	for name, tt := range map[string]struct {
		err  error
		want Deletion
	}{
		"done":      {nil, Deletion{Outcome: Accepted}},
		"a policy":  {forbidden("ValidatingAdmissionPolicy 'p' denied request: in use"), Deletion{Outcome: Refused, RefusedBy: "ValidatingAdmissionPolicy 'p'", Message: "in use"}},
		"a webhook": {webhook, Deletion{Outcome: Refused, RefusedBy: `"w.example.com"`, Message: "no"}},
		"RBAC":      {forbidden(`User "carol" cannot delete`), Deletion{Outcome: NotAllowed, Message: `User "carol" cannot delete`}},
		"a quota":   {forbidden("quota"), Deletion{Outcome: Refused, RefusedBy: "the API server", Message: "quota"}},
		"no dry run": {apierrors.NewBadRequest(`admission webhook "w" does not support dry run`),
			Deletion{Outcome: NotTried, Message: `admission webhook "w" does not support dry run`}},
	} {
		if got, err := deletionOf(tt.err); err != nil || got.Outcome != tt.want.Outcome || got.RefusedBy != tt.want.RefusedBy || got.Message != tt.want.Message {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// The dry run passes the guard of requests, and brings the warnings of the API server.
func TestADryRunIsSent(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete || r.URL.Path != "/api/v1/namespaces/prod/persistentvolumeclaims/data" || r.URL.Query().Get("dryRun") != "All" {
			t.Errorf("got %s %s", r.Method, r.URL)
		}
		w.Header().Set("Warning", `299 - "in use"`)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Status","status":"Success"}`))
	}))
	defer server.Close()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "data"}}
	got, err := TryDelete(t.Context(), &rest.Config{Host: server.URL}, claim)
	if err != nil || got.Outcome != Accepted || len(got.Warnings) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A dry run shows whether a policy enforces the hold.
func TestDryRunShowsWhetherAHoldIsEnforced(t *testing.T) {
	for name, tt := range map[string]struct {
		found     *Found
		outcome   string
		unguarded bool
	}{
		"refused":            {&Found{Case: pvc.Case{Claim: claim("a", held("b"))}}, Refused, false},
		"not allowed":        {&Found{Case: pvc.Case{Claim: claim("a", held("b"))}}, NotAllowed, false},
		"accepted, held":     {&Found{Case: pvc.Case{Claim: claim("a", held("b"))}}, Accepted, true},
		"accepted, free":     {&Found{Case: pvc.Case{Claim: claim("a")}}, Accepted, false},
		"accepted, released": {&Found{Case: pvc.Case{Claim: claim("a", held("b"), token("uid-a"))}}, Accepted, false},
	} {
		if tt.found.Learn(&Deletion{Outcome: tt.outcome}); tt.found.Unguarded != tt.unguarded {
			t.Errorf("%s: unguarded %t", name, tt.found.Unguarded)
		}
	}
}
