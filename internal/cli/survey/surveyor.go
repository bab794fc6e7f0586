package survey

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
func (s *Surveyor) Set(ctx context.Context, key types.NamespacedName, now time.Time) (Survey, error) {
	found, err := s.survey(ctx, s.cached, key, now)
	if err == nil {
		found.Refusals = s.refusals(ctx, found)
	}
	return found, err
}

// As surveys a set as if it were stored as given.
func (s *Surveyor) As(ctx context.Context, set *lwsv1.LeaderWorkerSet, now time.Time) (Survey, error) {
	return s.survey(ctx, overlay{Reader: s.cached, set: set}, client.ObjectKeyFromObject(set), now)
}

// survey reads and decides. If the plan creates objects, it reads their names live and decides again:
// the operator learns from the refusal that an object without labels has the name.
func (s *Surveyor) survey(ctx context.Context, cached client.Reader, key types.NamespacedName, now time.Time) (Survey, error) {
	observer := lwscache.New(cached, s.live, lwscache.NewMemory(time.Time{}))
	found, err := read(ctx, observer, cached, key, now)
	if err != nil {
		return found, err
	}
	names := found.creates()
	if len(names) == 0 {
		return found, nil
	}
	for _, name := range names {
		if err := observer.Uncover(ctx, name, now); err != nil {
			return found, err
		}
	}
	return read(ctx, observer, cached, key, now)
}

// read reads a set and its groups.
func read(ctx context.Context, observer *lwscache.Observer, cached client.Reader, key types.NamespacedName, now time.Time) (Survey, error) {
	s, err := readSet(ctx, observer, key, now)
	if err != nil {
		return s, err
	}
	return s, s.readGroups(ctx, observer, cached, key, now)
}

func readSet(ctx context.Context, observer *lwscache.Observer, key types.NamespacedName, now time.Time) (s Survey, err error) {
	if s.Set, err = observer.Set(ctx, key, now); err != nil {
		return s, err
	}
	s.Set.Vigil = recall(s.Set.Vigil, s.Set.Set, now)
	s.Plan, s.Standing = lws.DecideSet(s.Set), lws.Stand(s.Set)
	return s, nil
}

func (s *Survey) readGroups(ctx context.Context, observer *lwscache.Observer, cached client.Reader, key types.NamespacedName, now time.Time) error {
	indices, err := indices(ctx, cached, s.Set)
	if err != nil {
		return err
	}
	for _, index := range indices {
		key := types.NamespacedName{Namespace: key.Namespace, Name: identity.LeaderName(key.Name, index)}
		world, _, err := observer.GroupPlan(ctx, key, now)
		switch {
		case apierrors.IsForbidden(err):
			s.Groups = append(s.Groups, Group{GroupSnapshot: world, Plan: blind(err)})
			continue
		case err != nil:
			return err
		}
		world.Vigil = recall(world.Vigil, world.Set, now)
		s.Groups = append(s.Groups, Group{GroupSnapshot: world, Plan: lws.DecideGroup(world)})
	}
	return nil
}

// CodeNotAllowed is what a group waits for that cannot be decided about, because
// the user may not read what the operator would: for exclusive placement, nodes.
const CodeNotAllowed = "NotAllowedToSee"

func blind(err error) lws.Plan {
	return lws.Plan{Waits: []lws.Wait{{Reason: action.Reason{
		Code: CodeNotAllowed, Sentence: fmt.Sprintf("what is to be done cannot be seen: %v", err),
	}}}}
}

// creates returns the names that the plans would create.
func (s Survey) creates() []identity.Ref {
	var names []identity.Ref
	collect := func(p lws.Plan) {
		for _, a := range p.Actions {
			if create, ok := a.(action.Create); ok {
				names = append(names, create.Target())
			}
		}
	}
	collect(s.Plan)
	for _, g := range s.Groups {
		collect(g.Plan)
	}
	return names
}

// overlay shows a set as it is not stored, and everything else as it is.
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
