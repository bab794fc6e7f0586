package lws

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// FieldOwner is the field manager of the writes.
const FieldOwner = "kubectl-lockstep"

// The values of Editor.DryRun: how much of a change is carried out.
const (
	DryRunNone   = "none"
	DryRunClient = "client"
	DryRunServer = "server"
)

// Change is one write: the set as it is to become, and the verb that describes it, as in "paused".
type Change struct {
	Verb  string
	After *lwsv1.LeaderWorkerSet
}

// Decide decides what to change, or why nothing can be changed. read reads the revisions of the set, by rising
// number.
type Decide func(set *lwsv1.LeaderWorkerSet, read revisions) (Change, error)

// Editor changes sets. It writes nothing but patches of sets.
type Editor struct {
	client.Client
	DryRun string
}

// Amend changes a set. It returns the decision, and the set as it became. After a conflict it decides
// again if the spec is the same: the operator writes the status at any time.
func (e *Editor) Amend(ctx context.Context, key types.NamespacedName, decide Decide) (Change, *lwsv1.LeaderWorkerSet, error) {
	first, change, after := (*lwsv1.LeaderWorkerSet)(nil), Change{}, (*lwsv1.LeaderWorkerSet)(nil)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		set := &lwsv1.LeaderWorkerSet{}
		if err := e.Get(ctx, key, set); err != nil {
			return err
		}
		if first == nil {
			first = set
		}
		switch {
		case set.UID != first.UID, set.Generation != first.Generation:
			return fmt.Errorf("leaderworkerset %q was changed meanwhile; check it and try again", key.Name)
		case set.DeletionTimestamp != nil:
			return fmt.Errorf("leaderworkerset %q is being deleted", key.Name)
		}
		var err error
		change, err = decide(set, func() ([]*appsv1.ControllerRevision, error) { return Revisions(ctx, e, set) })
		if err != nil {
			return err
		}
		after = change.After
		if e.DryRun != DryRunClient && !equality.Semantic.DeepEqual(set, change.After) {
			after, err = e.write(ctx, set, change.After)
		}
		return err
	})
	return change, after, err
}

// write patches the exact resourceVersion that was read: another incarnation has another one.
func (e *Editor) write(ctx context.Context, before, after *lwsv1.LeaderWorkerSet) (*lwsv1.LeaderWorkerSet, error) {
	options := []client.PatchOption{client.FieldOwner(FieldOwner)}
	if e.DryRun == DryRunServer {
		options = append(options, client.DryRunAll)
	}
	stored := after.DeepCopy()
	err := e.Patch(ctx, stored, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), options...)
	return stored, err
}
