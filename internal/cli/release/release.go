// Package release lets a PersistentVolumeClaim, or all PersistentVolumeClaims of a namespace, be deleted while in use. It
// shows what that means, asks, and writes one annotation.
package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/cli/argument"
	clipvc "lockstep.dev/lockstep/internal/cli/pvc"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/pvc"
)

// Release is one release of a PVC or a namespace.
type Release struct {
	Client client.Client
	// Kind is argument.Claims or argument.Namespaces.
	Kind            argument.Kind
	Namespace, Name string
	// Yes is set once the user has seen what it means.
	Yes         bool
	Out, ErrOut io.Writer
	// Now is the moment of a replayed report, or zero.
	Now time.Time
}

// Read reads the one name from arguments: each release is confirmed by itself.
func (r *Release) Read(args []string) error {
	r.Kind = argument.Claims
	if len(args) > 0 {
		if word, _, _ := strings.Cut(args[0], "/"); argument.Namespaces.Knows(word) {
			r.Kind = argument.Namespaces
		}
	}
	names, err := r.Kind.Names(args)
	switch {
	case err != nil:
		return err
	case len(names) != 1:
		return errors.New("give one PVC, pvc/NAME, or one namespace, namespace/NAME: each release is confirmed by itself")
	}
	r.Name = names[0]
	return nil
}

// Run reads the object, shows what a release does, asks, and writes. The error is NotFound if there is no such object.
func (r *Release) Run(ctx context.Context) error {
	key, object := client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, client.Object(&corev1.PersistentVolumeClaim{})
	if r.Kind.Singular == argument.Namespaces.Singular {
		key.Namespace, object = "", &corev1.Namespace{}
	}
	if err := r.Client.Get(ctx, key, object); err != nil {
		return err
	}
	held := clipvc.Held(object)
	switch {
	case object.GetDeletionTimestamp() != nil && !held:
		return fmt.Errorf("%s is being deleted already: there is nothing to release; what keeps it: %s", r.what(), why(object))
	case pvc.Released(object):
		_, err := fmt.Fprintf(r.Out, "%s is released already; what else keeps it: %s\n", r.what(), why(object))
		return err
	case !held:
		return fmt.Errorf("%s is not held: nothing refuses its deletion, and there is nothing to release", r.what())
	}
	if err := r.show(ctx, object); err != nil {
		return err
	}
	if !r.Yes {
		return errors.New("nothing was released; to release it as shown, give --yes")
	}
	if err := clipvc.Release(ctx, r.Client, object); apierrors.IsConflict(err) {
		return fmt.Errorf("nothing was released, it has changed since it was shown; check it and run the command again: %w", err)
	} else if err != nil {
		return err
	}
	next := "to delete it, while the release lasts: kubectl delete " + r.Kind.Words[0] + " " + r.Name
	if object.GetDeletionTimestamp() != nil {
		next = "its finalizers may be removed now; to check: " + why(object)
	} else if object.GetNamespace() != "" {
		next += " -n " + object.GetNamespace()
	}
	_, err := fmt.Fprintf(r.Out, "%s released; %s\n", r.what(), next)
	return err
}

func (r *Release) what() string { return r.Kind.Words[0] + "/" + r.Name }

// why is the command that says what keeps an object.
func why(object client.Object) string {
	if object.GetNamespace() == "" {
		return "kubectl lockstep why pvc -n " + object.GetName()
	}
	return "kubectl lockstep why pvc/" + object.GetName() + " -n " + object.GetNamespace()
}

// show prints what a release means.
func (r *Release) show(ctx context.Context, object client.Object) error {
	claim, isPVC := object.(*corev1.PersistentVolumeClaim)
	if !isPVC {
		_, err := fmt.Fprint(r.ErrOut, render.ReleaseOfNamespace(object))
		return err
	}
	found, err := (&clipvc.Reader{Client: r.Client, Now: r.Now}).Explain(ctx, claim.Namespace, []corev1.PersistentVolumeClaim{*claim})
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(r.ErrOut, render.Release(render.Claim(found[0]), found[0].Now))
	return err
}
