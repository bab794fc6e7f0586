package pvc

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
