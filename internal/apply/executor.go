// Package apply is the one place that writes the cluster.
//
// It knows how each action becomes a request that names the incarnation it was
// decided for, and which refusals mean that the cluster moved since the look. It
// refuses to decide whether to write, and to tell anybody about it.
package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
)

// ErrStale means that the cluster moved since the look that an action was
// decided from. It is answered by looking again, and told to nobody.
var ErrStale = errors.New("the cluster moved since the look")

// ErrGone means that what was to be deleted had gone: somebody else did it, and
// tells of it.
var ErrGone = errors.New("what was to go has gone")

// TakenError means that a name thought to be free is not. It is an ErrStale: what
// bears the name must be looked at.
type TakenError struct {
	Name identity.Ref
}

// Error implements error.
func (e *TakenError) Error() string { return fmt.Sprintf("the name of %s is taken", e.Name) }

// Is makes every TakenError an ErrStale.
func (e *TakenError) Is(target error) bool { return target == ErrStale }

// Actor carries out actions. It is safe for concurrent use.
type Actor struct {
	writer client.Client
	live   client.Reader
	survey Survey
	// found holds the owners found alive in this pass, or is nil outside of one.
	found *owners
}

// Survey returns the metadata of all that stands now of the kind, in the namespace
// and with the labels of what is relied on. It must not read from a cache.
type Survey func(context.Context, action.Standing) ([]metav1.ObjectMeta, error)

// New returns an Actor that writes through writer and verifies owners through
// live, which must not read from a cache.
func New(writer client.Client, live client.Reader) *Actor {
	return &Actor{writer: writer, live: live}
}

// Surveying has writes that rely on others look for them through survey. Without it
// such writes are refused. It returns the Actor.
func (a *Actor) Surveying(survey Survey) *Actor {
	a.survey = survey
	return a
}

// Done is what became of an action: the object after the write, where the API
// server said.
type Done struct {
	UID             types.UID
	Generation      int64
	ResourceVersion string
}

// Do carries out one action. The error is ErrStale when a precondition did not
// hold, ErrGone when there was nothing to delete or to free, and what the API server said
// otherwise.
func (a *Actor) Do(ctx context.Context, what action.Action) (Done, error) {
	switch what := what.(type) {
	case action.Create:
		return a.create(ctx, what)
	case action.Apply:
		return a.apply(ctx, what)
	case action.Relabel:
		return Done{}, a.relabel(ctx, what)
	case action.Tie:
		return Done{}, a.tie(ctx, what)
	case action.Annotate:
		return a.annotate(ctx, what)
	case action.Delete:
		return Done{}, a.remove(ctx, what)
	case action.WriteStatus:
		return Done{}, a.writeStatus(ctx, what)
	case action.SetFinalizers:
		return Done{}, a.setFinalizers(ctx, what)
	case pvc.Release:
		return Done{}, a.release(ctx, what)
	case pvc.Recording:
		return Done{}, a.record(ctx, what)
	case pvc.DropUnused:
		return Done{}, a.dropUnused(ctx, what)
	case pvc.Lifting:
		return Done{}, a.lift(ctx, what)
	}
	return Done{}, fmt.Errorf("no such action: %T", what)
}

func (a *Actor) create(ctx context.Context, what action.Create) (Done, error) {
	if err := a.alive(ctx, what.Owner); err != nil {
		return Done{}, err
	}
	if createsApplied(what) {
		return a.createApplied(ctx, what)
	}
	object, ok := what.Object.DeepCopyObject().(client.Object)
	if !ok {
		return Done{}, fmt.Errorf("create %s: not an API object: %T", what.Target(), what.Object)
	}
	if what.Kind == identity.KindPersistentVolumeClaim {
		return Done{}, a.createClaim(ctx, object)
	}
	if what.Target().APIVersion != "" {
		return a.createForeign(ctx, what, object)
	}
	err := a.writer.Create(ctx, object, client.FieldOwner(fieldOwner))
	if apierrors.IsAlreadyExists(err) && !denied(err) {
		return Done{}, &TakenError{Name: what.Target()}
	}
	return Done{UID: object.GetUID(), Generation: object.GetGeneration()}, err
}

// createClaim makes a claim unless one of its name is there: whoever made that
// one, it serves, as it would the StatefulSet controller. Claims are not cached,
// so no look may wait to see one.
func (a *Actor) createClaim(ctx context.Context, claim client.Object) error {
	err := a.writer.Create(ctx, claim, client.FieldOwner(fieldOwner), client.DisableReadYourWritesConsistency)
	return client.IgnoreAlreadyExists(err)
}

// remove deletes what was judged. No look waits to see it leave: a cache that
// hides it, or that saw its name change hands, would never tell. A second delete
// of the same incarnation does no harm.
func (a *Actor) remove(ctx context.Context, what action.Delete) error {
	if what.OwnerGone != nil {
		if err := a.gone(ctx, *what.OwnerGone); err != nil {
			return err
		}
	}
	if err := a.standing(ctx, what.Relies); err != nil {
		return err
	}
	object, err := emptyOf(what.Object)
	if err != nil {
		return err
	}
	exactly := client.Preconditions{UID: &what.Object.UID, ResourceVersion: &what.Object.ResourceVersion}
	if what.AnyVersion {
		exactly.ResourceVersion = nil
	}
	err = a.writer.Delete(ctx, object, client.DisableReadYourWritesConsistency, exactly,
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsNotFound(err) && !denied(err) {
		return ErrGone
	}
	return quiet(err)
}

func (a *Actor) writeStatus(ctx context.Context, what action.WriteStatus) error {
	set := &lwsv1.LeaderWorkerSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: what.Set.Namespace, Name: what.Set.Name,
			UID: what.Set.UID, ResourceVersion: what.Set.ResourceVersion,
		},
		Status: what.Status,
	}
	return quiet(a.writer.Status().Update(ctx, set, client.FieldOwner(fieldOwner)))
}

// alive reads an owner live, once a pass: the very incarnation, not on its way out.
func (a *Actor) alive(ctx context.Context, owner identity.Ref) error {
	if a.found.has(owner.UID) {
		return nil
	}
	found, err := a.look(ctx, owner)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s is gone: %w", owner, ErrStale)
	case err != nil:
		return fmt.Errorf("look for owner %s: %w", owner, err)
	case found.UID != owner.UID:
		return fmt.Errorf("%s is another incarnation now: %w", owner, ErrStale)
	case found.DeletionTimestamp != nil:
		return fmt.Errorf("%s is being deleted: %w", owner, ErrStale)
	}
	a.found.add(owner.UID)
	return nil
}

// gone reads live that the very incarnation of an owner does not exist. A version that
// is served no more tells nothing: the owner may live on in another.
func (a *Actor) gone(ctx context.Context, owner identity.Ref) error {
	found, err := a.look(ctx, owner)
	switch {
	case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return nil
	case err != nil:
		return fmt.Errorf("look for owner %s: %w", owner, err)
	case found.UID == owner.UID:
		return fmt.Errorf("%s is still there: %w", owner, ErrStale)
	}
	return nil
}

// reliable looks whether what a write relies on still holds, and before and after
// that, whether what is written is still as it was judged: one that changes with every
// status of its controller would mostly be refused.
func (a *Actor) reliable(ctx context.Context, what action.Apply) error {
	if len(what.Relies) == 0 {
		return nil
	}
	if err := a.unchanged(ctx, what.Onto); err != nil {
		return err
	}
	if err := a.standing(ctx, what.Relies); err != nil {
		return err
	}
	return a.unchanged(ctx, what.Onto)
}

// unchanged reads live that an object is still the version that was judged.
func (a *Actor) unchanged(ctx context.Context, onto identity.Ref) error {
	found, err := a.look(ctx, onto)
	if err != nil {
		return quiet(err)
	}
	if found.UID != onto.UID || found.ResourceVersion != onto.ResourceVersion {
		return fmt.Errorf("%s changed: %w", onto, ErrStale)
	}
	return nil
}

// standing looks whether everything a write relies on still holds.
func (a *Actor) standing(ctx context.Context, relied []action.Standing) error {
	for _, s := range relied {
		if a.survey == nil {
			return fmt.Errorf("nobody can tell whether %s that are relied on still stand", s.Kind)
		}
		now, err := a.survey(ctx, s)
		if err != nil {
			return err
		}
		if broken := s.Broken(now); broken != "" {
			return fmt.Errorf("%s: %w", broken, ErrStale)
		}
	}
	return nil
}

func (a *Actor) look(ctx context.Context, ref identity.Ref) (*metav1.PartialObjectMetadata, error) {
	meta := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: cmp.Or(ref.APIVersion, apiVersionOf(ref.Kind)), Kind: string(ref.Kind)}}
	return meta, a.live.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, meta)
}

// quiet turns refusals that mean "the cluster moved" into ErrStale.
func quiet(err error) error {
	if err == nil || denied(err) {
		return err
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || anotherIncarnation(err) {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return err
}

// denied tells whether somebody's webhook refused a write. It may do so with any code: a
// conflict, or that something is not there, is then nothing that another look would show.
func denied(err error) bool {
	return err != nil && strings.Contains(err.Error(), "denied the request")
}

// anotherIncarnation tells whether the API server refused a write because the
// object under the name has another UID by now.
func anotherIncarnation(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "metadata.uid" {
			return true
		}
	}
	return false
}
