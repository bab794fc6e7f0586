package lws

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
)

// Survey is a set and those of its groups that have an object, with the plan for each. Its objects
// belong to a cache and must not be changed.
type Survey struct {
	Set      lws.SetSnapshot
	Plan     lws.Plan
	Standing lws.Standing
	// Groups are ordered by rising index.
	Groups []Group
	// Refusals are read if a group is not ready.
	Refusals Refusals
}

// Group is one group of a survey.
type Group struct {
	lws.GroupSnapshot
	Plan lws.Plan
}

// Set surveys a set. The error is NotFound if there is none.
func (s *Session) Set(ctx context.Context, key types.NamespacedName, now time.Time) (Survey, error) {
	found, err := s.read(ctx, s.Cached, key, now)
	if err == nil {
		found.Refusals = s.refusals(ctx, found)
	}
	return found, err
}

// As surveys a set as if it were stored as given.
func (s *Session) As(ctx context.Context, set *lwsv1.LeaderWorkerSet, now time.Time) (Survey, error) {
	return s.read(ctx, overlay{Reader: s.Cached, set: set}, client.ObjectKeyFromObject(set), now)
}

// read reads a set and its groups, and decides.
func (s *Session) read(ctx context.Context, cached client.Reader, key types.NamespacedName, now time.Time) (found Survey, err error) {
	observer := lwscache.New(cached, s.Live, lwscache.NewMemory())
	if found.Set, _, err = observer.SetPlan(ctx, key, now); err != nil {
		return found, err
	}
	found.Set.Vigil = recall(found.Set.Vigil, found.Set.Set, now)
	found.Plan, found.Standing = lws.DecideSet(found.Set), lws.Stand(found.Set)
	indices, err := indices(ctx, cached, found.Set)
	if err != nil {
		return found, err
	}
	for _, index := range indices {
		var g Group
		g.GroupSnapshot, _, err = observer.GroupPlan(ctx, types.NamespacedName{Namespace: key.Namespace, Name: identity.LeaderName(key.Name, index)}, now)
		switch {
		case apierrors.IsForbidden(err):
			g.Plan = lws.Plan{Waits: []lws.Wait{{Reason: action.Reason{
				Code: CodeNotAllowed, Sentence: fmt.Sprintf("the plan of the group cannot be read: %v", err),
			}}}}
		case err != nil:
			return found, err
		default:
			g.Vigil = recall(g.Vigil, g.Set, now)
			g.Plan = lws.DecideGroup(g.GroupSnapshot)
		}
		found.Groups = append(found.Groups, g)
	}
	return found, nil
}

// CodeNotAllowed is the wait of a group whose plan needs objects that the user may not read, as the
// nodes of exclusive placement.
const CodeNotAllowed = "NotAllowedToSee"

// stuckFor is the least age of objects that the status calls stuck.
const stuckFor = time.Minute

// recall adds what the operator has written into the status: that objects of the previous incarnation
// are stuck.
func recall(v lws.Vigil, set *lwsv1.LeaderWorkerSet, now time.Time) lws.Vigil {
	if !lws.ToldStuck(set) {
		return v
	}
	for uid := range v.Seen {
		v.Seen[uid] = now.Add(-stuckFor)
	}
	v.Moved = time.Time{}
	return v
}

// overlay reads a set that is not stored, and everything else from the cache.
type overlay struct {
	client.Reader
	set *lwsv1.LeaderWorkerSet
}

// Get implements client.Reader.
func (o overlay) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if set, ok := into.(*lwsv1.LeaderWorkerSet); ok && key == client.ObjectKeyFromObject(o.set) {
		*set = *o.set
		return nil
	}
	return o.Reader.Get(ctx, key, into, options...)
}
