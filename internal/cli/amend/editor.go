package amend

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
	"lockstep.dev/lockstep/internal/cli/survey"
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

// State is what a change is decided on.
type State struct {
	Set *lwsv1.LeaderWorkerSet
	// Revisions are ordered by rising number. They are read for changes that need them.
	Revisions []*appsv1.ControllerRevision
}

// Change is one write.
type Change struct {
	// Verb describes the write once it is done, as in "rolled back".
	Verb string
	// After is the set as it is to become.
	After *lwsv1.LeaderWorkerSet
	// Basis must be the same after a conflict for the change to be retried.
	Basis string
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

// Open returns an editor that can write nothing but patches of sets.
func Open(config *rest.Config) (*Editor, error) {
	narrow := rest.CopyConfig(config)
	narrow.Wrap(func(next http.RoundTripper) http.RoundTripper { return patcher{next} })
	narrow.WarningHandler = rest.NoWarnings{}
	c, err := client.New(narrow, client.Options{Scheme: survey.Scheme()})
	if err != nil {
		return nil, err
	}
	return &Editor{Client: c, Owner: FieldOwner, DryRun: DryRunNone}, nil
}

// patcher sends reads and patches of sets, and nothing else.
type patcher struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p patcher) RoundTrip(request *http.Request) (*http.Response, error) {
	patches := request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/"+lwsv1.GroupVersion.Group+"/") &&
		strings.Contains(request.URL.Path, "/leaderworkersets/")
	if request.Method != http.MethodGet && !patches {
		return nil, fmt.Errorf("refused to send %s %s: only sets are changed", request.Method, request.URL.Path)
	}
	return p.next.RoundTrip(request)
}

// Amend changes a set. It returns what was decided, and the set as it became.
func (e *Editor) Amend(ctx context.Context, key types.NamespacedName, decide Decide) (Change, *lwsv1.LeaderWorkerSet, error) {
	var first Change
	var uid types.UID
	for attempt := 1; ; attempt++ {
		state, err := e.read(ctx, key)
		if err != nil {
			return first, nil, err
		}
		change, err := decide(state)
		if err != nil {
			return first, nil, err
		}
		switch {
		case attempt == 1:
			first, uid = change, state.Set.UID
		case state.Set.UID != uid:
			return first, nil, fmt.Errorf("leaderworkerset %q was deleted and created anew meanwhile; check it and try again", key.Name)
		case change.Basis != first.Basis:
			return first, nil, fmt.Errorf("leaderworkerset %q was changed meanwhile; check it and try again", key.Name)
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
	revisions, err := survey.Revisions(ctx, e, set)
	return State{Set: set, Revisions: revisions}, err
}

// write patches the exact resourceVersion that was read: another incarnation has another one.
func (e *Editor) write(ctx context.Context, before, after *lwsv1.LeaderWorkerSet) (*lwsv1.LeaderWorkerSet, error) {
	options := []client.PatchOption{client.FieldOwner(e.Owner)}
	if e.DryRun == DryRunServer {
		options = append(options, client.DryRunAll)
	}
	stored := after.DeepCopy()
	if err := e.Patch(ctx, stored, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), options...); err != nil {
		return nil, err
	}
	return stored, nil
}
