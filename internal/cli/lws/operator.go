package lws

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lease"
)

// Codes of why no operator acts on a set. They are stable.
const (
	CodeNoOperator  = "NoOperator"
	CodeNotObserved = "NotObserved"
)

// observedWithin is how soon an operator that is well observes a new spec.
const observedWithin = 30 * time.Second

// unattended returns why no operator acts on a set, or nil. Where the lease cannot be read, or an operator has none, only
// a spec that was not observed tells.
func (s *Session) unattended(ctx context.Context, set *lwsv1.LeaderWorkerSet, now time.Time) *action.Reason {
	if s.Lease.Name == "" {
		return nil
	}
	found := &coordinationv1.Lease{}
	err := s.Live.Get(ctx, s.Lease, found)
	if _, isHeld := lease.HolderOf(found, now); err == nil && !isHeld {
		return reasonf(CodeNoOperator, "no operator holds lease %s in namespace %s, so what is shown may be old; see: kubectl -n %[2]s get pods",
			s.Lease.Name, s.Lease.Namespace)
	}
	if set.Status.ObservedGeneration >= set.Generation {
		return nil
	}
	stored := &lwsv1.LeaderWorkerSet{} // the cache keeps no managed fields
	if err := s.Live.Get(ctx, client.ObjectKeyFromObject(set), stored); err != nil || stored.Generation != set.Generation {
		return nil
	}
	if written := specWritten(stored); !written.IsZero() && now.Sub(written) >= observedWithin {
		return reasonf(CodeNotObserved, "the operator has not observed generation %d, which was written at %s; see its log in namespace %s",
			set.Generation, written.UTC().Format(time.RFC3339), s.Lease.Namespace)
	}
	return nil
}

func reasonf(code, format string, args ...any) *action.Reason {
	return &action.Reason{Code: code, Sentence: fmt.Sprintf(format, args...)}
}

// specWritten is when the spec was written last, by its managed fields, or zero. The scale subresource writes it too.
func specWritten(set *lwsv1.LeaderWorkerSet) (at time.Time) {
	for _, entry := range set.ManagedFields {
		var owned map[string]json.RawMessage
		if entry.FieldsV1 == nil || entry.Time == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
			continue
		}
		if owned["f:spec"] != nil && entry.Subresource != "status" && entry.Time.After(at) {
			at = entry.Time.Time
		}
	}
	return at
}
