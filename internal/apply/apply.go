// Package apply is the one place that writes the cluster.
//
// It knows how each action becomes a request that names the incarnation it was decided for, and which refusals mean
// that the cluster changed since the read. It refuses to decide whether to write, and to report it.
package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/pvc"
)

// ErrStale means that the cluster changed since the read that an action was decided from. The
// answer is another read; it is not reported.
var ErrStale = errors.New("the cluster changed since the read")

// ErrGone means that the object to delete does not exist: another client deleted it, and reports it.
var ErrGone = errors.New("the object to delete is gone")

// fieldOwner owns what is created, as it owns what is applied.
const fieldOwner = lws.FieldOwner

// TakenError means that another object has the name of an object to create. It is an ErrStale:
// that object must be read.
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
	// found holds the UIDs of owners found alive in this reconcile, or is nil outside of one.
	found *sync.Map
}

// New returns an Actor that writes through writer and reads what writes rely on through live, which must not be a cache.
func New(writer client.Client, live client.Reader) *Actor {
	return &Actor{writer: writer, live: live}
}

// ForReconcile returns an Actor for one reconcile: it reads each owner live once, before the first write that
// needs it, and not after the reconcile removed its gate. It must not outlive the reconcile.
func (a *Actor) ForReconcile() *Actor {
	once := *a
	once.found = &sync.Map{}
	return &once
}

// Do carries out one action, and returns the version after annotations were written. The error is ErrStale when a
// precondition did not hold, ErrGone when there was nothing to delete or to change, and the API server's own otherwise.
func (a *Actor) Do(ctx context.Context, what action.Action) (version string, err error) {
	relied := what.About().Relies
	if _, isApply := what.(action.Apply); !isApply && len(relied) > 0 { // an apply reads the object to write as well
		err = a.standing(ctx, relied)
	}
	if err != nil {
		return version, err
	}
	switch what := what.(type) {
	case action.Create:
		err = a.create(ctx, what)
	case action.Apply:
		err = a.apply(ctx, what)
	case action.Scale:
		err = a.scale(ctx, what)
	case action.Relabel:
		err = a.relabel(ctx, what)
	case action.SetOwner:
		err = a.setOwners(ctx, what)
	case action.Annotate:
		return a.annotate(ctx, what)
	case action.Delete:
		err = a.remove(ctx, what)
	case action.WriteStatus:
		err = a.writeStatus(ctx, what)
	case action.SetFinalizers:
		err = a.setFinalizers(ctx, what)
	case action.Ungate:
		err = a.ungate(ctx, what)
	case action.SetCondition:
		err = a.setCondition(ctx, what)
	case pvc.Release:
		err = a.change(ctx, what.Target(), fields{"finalizers": listed(what.Finalizers())}, nil)
	case pvc.Lifting:
		err = a.change(ctx, what.Target(), fields{}, fields{"spec": fields{"schedulingGates": listed(what.Gates())}})
	default:
		err = fmt.Errorf("no such action: %T", what)
	}
	return version, err
}

// remove deletes what was judged. No read waits for the cache to show it: a cache that hides the object, or that saw
// another one take its name, never would. A second delete of the same incarnation does no harm.
func (a *Actor) remove(ctx context.Context, what action.Delete) error {
	if what.OwnerGone != nil {
		if err := a.gone(ctx, *what.OwnerGone); err != nil {
			return err
		}
	}
	exactly := client.Preconditions{UID: &what.Object.UID, ResourceVersion: &what.Object.ResourceVersion}
	if what.AnyVersion {
		exactly.ResourceVersion = nil
	}
	object := client.Object(metadataOf(what.Object))
	if what.Object.APIVersion != "" { // the scheme may lack the kind of what a typed delete returns
		untyped := &unstructured.Unstructured{}
		untyped.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
		untyped.SetNamespace(what.Object.Namespace)
		untyped.SetName(what.Object.Name)
		object = untyped
	}
	how := metav1.DeletePropagationBackground
	if what.Foreground {
		how = metav1.DeletePropagationForeground
	}
	err := a.writer.Delete(ctx, object, client.DisableReadYourWritesConsistency, exactly, client.PropagationPolicy(how))
	return orGone(err)
}

// orGone returns ErrGone for an object that does not exist.
func orGone(err error) error {
	if apierrors.IsNotFound(err) && !denied(err) {
		return ErrGone
	}
	return quiet(err)
}

// writeStatus replaces the fields of the status that this version knows. An update of the whole status would remove all
// others.
func (a *Actor) writeStatus(ctx context.Context, what action.WriteStatus) error {
	known := reflect.ValueOf(what.Status).Elem().FieldByName("Status")
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(known.Addr().Interface())
	if err != nil {
		return err
	}
	for field := range known.Type().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if _, has := status[name]; !has {
			status[name] = nil
		}
	}
	patch, err := json.Marshal(fields{
		"metadata": fields{"uid": what.Object.UID, "resourceVersion": what.Object.ResourceVersion}, "status": status,
	})
	if err != nil {
		return err
	}
	object := reflect.New(reflect.TypeOf(what.Status).Elem()).Interface().(client.Object)
	object.SetNamespace(what.Object.Namespace)
	object.SetName(what.Object.Name)
	return quiet(a.writer.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner)))
}

// create creates an object. No read waits for the cache to show objects of kinds that it may not have.
func (a *Actor) create(ctx context.Context, what action.Create) error {
	if err := a.alive(ctx, what.Owner); err != nil {
		return err
	}
	isWorkload := slices.Contains([]identity.Kind{identity.KindLeaderWorkerSet, identity.KindStatefulSet, identity.KindDeployment}, what.Kind)
	if isWorkload && what.Owner.Kind != identity.KindPod {
		return a.createApplied(ctx, what)
	}
	object := what.Object.DeepCopyObject().(client.Object)
	mayBeUnserved := what.Target().APIVersion != ""
	options := []client.CreateOption{client.FieldOwner(fieldOwner)}
	if what.Uncached || isUncached(what.Target()) {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	err := a.writer.Create(ctx, object, options...)
	switch {
	case err == nil || denied(err):
		return err
	case apierrors.IsAlreadyExists(err):
		return &TakenError{Name: what.Target()}
	case mayBeUnserved && (apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err)):
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return err
}

// neverLived is a resourceVersion that no stored object has. An apply at it, without a UID,
// creates the object if the name is free, and is refused otherwise.
const neverLived = "1"

// createApplied creates a set, or its StatefulSet or Deployment, by an apply that can only create. It is applied to for
// as long as it exists: fields that a POST leaves to its manager would first have to be turned into
// applied ones, by a read and a write more. If the name is taken, nothing is written.
func (a *Actor) createApplied(ctx context.Context, what action.Create) error {
	switch _, err := a.read(ctx, what.Target()); {
	case err == nil:
		return &TakenError{Name: what.Target()}
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("look for %s: %w", what.Target(), err)
	}
	fields, err := applied(what.Object, what.Target(), neverLived)
	if err != nil {
		return err
	}
	err = a.writer.Apply(ctx, fields, client.FieldOwner(fieldOwner), client.ForceOwnership)
	if (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)) && !denied(err) {
		return &TakenError{Name: what.Target()}
	}
	return err
}
