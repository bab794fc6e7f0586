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

// Surveyor makes surveys. It is safe for concurrent use.
type Surveyor struct {
	cached, live client.Reader
}

// NewSurveyor returns a Surveyor. The cache must have lwscache.CacheOptions and lwscache.Index.
func NewSurveyor(cached, live client.Reader) *Surveyor {
	return &Surveyor{cached: cached, live: live}
}

// Set surveys a set. The error is NotFound if there is none.
func (r *Surveyor) Set(ctx context.Context, key types.NamespacedName, now time.Time) (Survey, error) {
	found, err := r.read(ctx, r.cached, key, now)
	if err == nil {
		found.Refusals = r.refusals(ctx, found)
	}
	return found, err
}

// As surveys a set as if it were stored as given.
func (r *Surveyor) As(ctx context.Context, set *lwsv1.LeaderWorkerSet, now time.Time) (Survey, error) {
	return r.read(ctx, overlay{Reader: r.cached, set: set}, client.ObjectKeyFromObject(set), now)
}

// read reads a set and its groups, and decides.
func (r *Surveyor) read(ctx context.Context, cached client.Reader, key types.NamespacedName, now time.Time) (s Survey, err error) {
	observer := lwscache.New(cached, r.live, lwscache.NewMemory())
	if s.Set, _, err = observer.SetPlan(ctx, key, now); err != nil {
		return s, err
	}
	s.Set.Vigil = recall(s.Set.Vigil, s.Set.Set, now)
	s.Plan, s.Standing = lws.DecideSet(s.Set), lws.Stand(s.Set)
	indices, err := indices(ctx, cached, s.Set)
	if err != nil {
		return s, err
	}
	for _, index := range indices {
		g, err := readGroup(ctx, observer, types.NamespacedName{Namespace: key.Namespace, Name: identity.LeaderName(key.Name, index)}, now)
		if err != nil {
			return s, err
		}
		s.Groups = append(s.Groups, g)
	}
	return s, nil
}

func readGroup(ctx context.Context, observer *lwscache.Observer, key types.NamespacedName, now time.Time) (Group, error) {
	snapshot, _, err := observer.GroupPlan(ctx, key, now)
	if apierrors.IsForbidden(err) {
		return Group{GroupSnapshot: snapshot, Plan: unreadable(err)}, nil
	}
	if err != nil {
		return Group{}, err
	}
	snapshot.Vigil = recall(snapshot.Vigil, snapshot.Set, now)
	return Group{GroupSnapshot: snapshot, Plan: lws.DecideGroup(snapshot)}, nil
}

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

// CodeNotAllowed is the wait of a group whose plan needs objects that the user may not read, as the
// nodes of exclusive placement.
const CodeNotAllowed = "NotAllowedToSee"

func unreadable(err error) lws.Plan {
	return lws.Plan{Waits: []lws.Wait{{Reason: action.Reason{
		Code: CodeNotAllowed, Sentence: fmt.Sprintf("the plan of the group cannot be read: %v", err),
	}}}}
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
