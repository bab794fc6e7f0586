package amend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/survey"
)

// FieldOwner owns what users change through the plugin.
const FieldOwner = "kubectl-lockstep"

// attempts bounds how often a write is tried that others are faster than.
const attempts = 5

// DryRun is how much of a change is carried out.
type DryRun string

// The values of DryRun.
const (
	DryRunNone   DryRun = "none"
	DryRunClient DryRun = "client"
	DryRunServer DryRun = "server"
)

// Looked is what a change is decided on.
type Looked struct {
	Set *lwsv1.LeaderWorkerSet
	// Revisions are by rising number; only changes that ask for them have them.
	Revisions []*appsv1.ControllerRevision
}

// Change is one write, as decided on one look.
type Change struct {
	// Verb is what is told of it once it is done: "rolled back".
	Verb string
	// Patch is the write as a JSON patch, without its preconditions. An empty one
	// means that nothing is to be written.
	Patch []Operation
	// After is the set as it is to become.
	After *lwsv1.LeaderWorkerSet
	// Basis is what must be the same on another look for this to be carried out.
	Basis string
}

// Operation is one operation of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Decide decides what to change, or says why nothing can be.
type Decide func(Looked) (Change, error)

// Editor changes sets.
type Editor struct {
	client.Client
	// Owner is the field manager of the writes.
	Owner  string
	DryRun DryRun
	// WithHistory has revisions read for every decision.
	WithHistory bool
}

// Open returns an editor. It can write nothing but patches of sets.
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

// patcher lets reads through, and patches of sets.
type patcher struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p patcher) RoundTrip(request *http.Request) (*http.Response, error) {
	reads := request.Method == http.MethodGet || request.Method == http.MethodHead
	patches := request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/"+lwsv1.GroupVersion.Group+"/") &&
		strings.Contains(request.URL.Path, "/leaderworkersets/")
	if !reads && !patches {
		return nil, fmt.Errorf("refused to send %s %s: only sets are changed", request.Method, request.URL.Path)
	}
	return p.next.RoundTrip(request)
}

// Amend changes a set and returns what was decided, and the set as it became.
func (e *Editor) Amend(ctx context.Context, key types.NamespacedName, decide Decide) (Change, *lwsv1.LeaderWorkerSet, error) {
	var first Change
	var uid types.UID
	for attempt := 1; ; attempt++ {
		looked, err := e.look(ctx, key)
		if err != nil {
			return first, nil, err
		}
		change, err := decide(looked)
		if err != nil {
			return first, nil, err
		}
		switch {
		case attempt == 1:
			first, uid = change, looked.Set.UID
		case looked.Set.UID != uid:
			return first, nil, fmt.Errorf("leaderworkerset %q was deleted and created anew meanwhile; look at it and try again", key.Name)
		case change.Basis != first.Basis:
			return first, nil, fmt.Errorf("somebody else changed leaderworkerset %q meanwhile; look at it and try again", key.Name)
		}
		if len(change.Patch) == 0 || e.DryRun == DryRunClient {
			return change, change.After, nil
		}
		after, err := e.write(ctx, looked.Set, change)
		if !apierrors.IsConflict(err) || attempt == attempts {
			return change, after, err
		}
	}
}

func (e *Editor) look(ctx context.Context, key types.NamespacedName) (Looked, error) {
	set := &lwsv1.LeaderWorkerSet{}
	if err := e.Get(ctx, key, set); err != nil {
		return Looked{}, err
	}
	if set.DeletionTimestamp != nil {
		return Looked{}, fmt.Errorf("leaderworkerset %q is being deleted", key.Name)
	}
	if !e.WithHistory {
		return Looked{Set: set}, nil
	}
	revisions, err := survey.Revisions(ctx, e, set)
	return Looked{Set: set, Revisions: revisions}, err
}

// write patches the exact version that was looked at. To replace a version or UID
// by another is what the API server refuses as a conflict.
func (e *Editor) write(ctx context.Context, set *lwsv1.LeaderWorkerSet, change Change) (*lwsv1.LeaderWorkerSet, error) {
	if set.UID == "" || set.ResourceVersion == "" {
		return nil, errors.New("a set without UID or version cannot be changed")
	}
	operations := append([]Operation{
		{"replace", "/metadata/uid", set.UID}, {"replace", "/metadata/resourceVersion", set.ResourceVersion},
	}, change.Patch...)
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	options := []client.PatchOption{client.FieldOwner(e.Owner)}
	if e.DryRun == DryRunServer {
		options = append(options, client.DryRunAll)
	}
	after := set.DeepCopy()
	if err := e.Patch(ctx, after, client.RawPatch(types.JSONPatchType, patch), options...); err != nil {
		return nil, err
	}
	return after, nil
}
