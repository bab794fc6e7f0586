package lws

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// FieldOwner is the default field manager of the writes.
const FieldOwner = "kubectl-lockstep"

// attempts bounds the retries after conflicts.
const attempts = 5

// DryRun says how much of a change is carried out.
type DryRun string

// The values of DryRun.
const (
	DryRunNone   DryRun = "none"
	DryRunClient DryRun = "client"
	DryRunServer DryRun = "server"
)

// State is what a change is decided on. Revisions are ordered by rising number.
type State struct {
	Set       *lwsv1.LeaderWorkerSet
	Revisions []*appsv1.ControllerRevision
}

// Change is one write: the set as it is to become, and the verb that describes it, as in "paused".
type Change struct {
	Verb  string
	After *lwsv1.LeaderWorkerSet
}

// Decide decides what to change, or why nothing can be changed.
type Decide func(State) (Change, error)

// Editor changes sets.
type Editor struct {
	client.Client
	// Owner is the field manager of the writes.
	Owner  string
	DryRun DryRun
	// WithHistory reads the revisions for every decision.
	WithHistory bool
}

// NewEditor returns an editor that can write nothing but patches of sets.
func NewEditor(config *rest.Config) (*Editor, error) {
	c, err := client.New(restrict(config, isPatchOfSet), client.Options{Scheme: Scheme()})
	return &Editor{Client: c, Owner: FieldOwner, DryRun: DryRunNone}, err
}

func isPatchOfSet(request *http.Request) bool {
	return request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/"+lwsv1.GroupVersion.Group+"/") &&
		strings.Contains(request.URL.Path, "/leaderworkersets/")
}

// Amend changes a set. It returns the decision, and the set as it became. After a conflict it decides
// again if the spec is the same: the operator writes the status at any time.
func (e *Editor) Amend(ctx context.Context, key types.NamespacedName, decide Decide) (Change, *lwsv1.LeaderWorkerSet, error) {
	var first *lwsv1.LeaderWorkerSet
	for attempt := 1; ; attempt++ {
		state, err := e.read(ctx, key)
		if err != nil {
			return Change{}, nil, err
		}
		if first == nil {
			first = state.Set
		}
		if state.Set.UID != first.UID || state.Set.Generation != first.Generation {
			return Change{}, nil, fmt.Errorf("leaderworkerset %q was changed meanwhile; check it and try again", key.Name)
		}
		change, err := decide(state)
		if err != nil {
			return Change{}, nil, err
		}
		if e.DryRun == DryRunClient || equality.Semantic.DeepEqual(state.Set, change.After) {
			return change, change.After, nil
		}
		after, err := e.write(ctx, state.Set, change.After)
		if !apierrors.IsConflict(err) || attempt == attempts {
			return change, after, err
		}
	}
}

func (e *Editor) read(ctx context.Context, key types.NamespacedName) (State, error) {
	set := &lwsv1.LeaderWorkerSet{}
	if err := e.Get(ctx, key, set); err != nil {
		return State{}, err
	}
	if set.DeletionTimestamp != nil {
		return State{}, fmt.Errorf("leaderworkerset %q is being deleted", key.Name)
	}
	if !e.WithHistory {
		return State{Set: set}, nil
	}
	revisions, err := Revisions(ctx, e, set)
	return State{Set: set, Revisions: revisions}, err
}

// write patches the exact resourceVersion that was read: another incarnation has another one.
func (e *Editor) write(ctx context.Context, before, after *lwsv1.LeaderWorkerSet) (*lwsv1.LeaderWorkerSet, error) {
	options := []client.PatchOption{client.FieldOwner(e.Owner)}
	if e.DryRun == DryRunServer {
		options = append(options, client.DryRunAll)
	}
	stored := after.DeepCopy()
	err := e.Patch(ctx, stored, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), options...)
	return stored, err
}
