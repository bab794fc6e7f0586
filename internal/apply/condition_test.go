package apply

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// statusOnly takes writes of a status, and nothing else.
type statusOnly struct {
	client.SubResourceWriter
	document string
	kind     types.PatchType
	waits    bool
}

// behind has a status written by its writer.
type behind struct {
	client.Client
	status *statusOnly
}

func (b behind) Status() client.SubResourceWriter { return b.status }

func (s *statusOnly) Patch(_ context.Context, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	data, err := patch.Data(object)
	s.document, s.kind = string(data), patch.Type()
	s.waits = !(&client.SubResourcePatchOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency
	return errors.Join(err, json.Unmarshal(data, object))
}

// Of the conditions of a claim the caches keep one: a list that goes as a whole would
// take the others off.
func TestAConditionIsMergedOntoTheVersionJudged(t *testing.T) {
	claim := identity.Ref{Kind: identity.KindPersistentVolumeClaim, Namespace: "ns", Name: "data", UID: "u", ResourceVersion: "7"}
	is := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue, Reason: "r", Message: "m",
		LastTransitionTime: metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)),
	}
	writer := &statusOnly{}
	if _, err := New(behind{status: writer}, nil).Do(t.Context(), action.Condition{Claim: claim, Is: is}); err != nil {
		t.Fatal(err)
	}
	const want = `{"metadata":{"resourceVersion":"7","uid":"u"},"status":{"conditions":[{"type":"Unused","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-21T12:00:00Z","reason":"r","message":"m"}]}}`
	if writer.document != want || writer.kind != types.StrategicMergePatchType || writer.waits {
		t.Errorf("got %s %s, waits %t", writer.kind, writer.document, writer.waits)
	}
	claim.UID = ""
	if _, err := New(behind{status: writer}, nil).Do(t.Context(), action.Condition{Claim: claim, Is: is}); err == nil || errors.Is(err, ErrStale) {
		t.Errorf("of no incarnation: %v", err)
	}
}
