package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/cli/pvc"
	"lockstep.dev/lockstep/internal/cli/render"
)

// release is one release of a PVC or a namespace.
type release struct {
	*cluster
	kind kind
	name string
	yes  bool
}

func (o *options) releaseCommand() *cobra.Command {
	r := &release{}
	cmd := &cobra.Command{
		Use:   "release pvc/NAME | namespace/NAME",
		Short: "Let a PersistentVolumeClaim be deleted while it is in use",
		Long: `Let a PersistentVolumeClaim be deleted although it is in use, or a namespace although PVCs in it
are.

It shows the holders and what becomes of the data. With --yes, it then writes the annotation
protection.lockstep.dev/release with the UID of the PVC: a later PVC of the same name is
not released. This works while no operator runs; an operator removes the token after an hour,
unless it is configured otherwise. Nothing is deleted.

It takes the verb "release" on claims.protection.lockstep.dev, and patch on the PVC.`,
		Example: `  kubectl lockstep release pvc/data-llama-0
  kubectl lockstep release pvc/data-llama-0 --yes
  kubectl lockstep release namespace/inference --yes`,
		Args: func(_ *cobra.Command, args []string) error { return r.read(args) },
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if r.cluster, err = o.reach(cmd.Context()); err != nil {
				return err
			}
			return r.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "release it; without, only show what that means")
	return cmd
}

// releasable is the kind that the first argument names.
func releasable(args []string) kind {
	if len(args) > 0 {
		if word, _, _ := strings.Cut(args[0], "/"); namespaces.known(word) {
			return namespaces
		}
	}
	return claims
}

// read reads the one name: each release is confirmed by itself.
func (r *release) read(args []string) error {
	r.kind = releasable(args)
	names, err := r.kind.names(args)
	switch {
	case err != nil:
		return err
	case len(names) != 1:
		return errors.New("give one PVC, pvc/NAME, or one namespace, namespace/NAME: each release is confirmed by itself")
	}
	r.name = names[0]
	return nil
}

// run reads the object, shows what a release does, asks, and writes.
func (r *release) run(ctx context.Context) error {
	c, err := r.client()
	if err != nil {
		return err
	}
	object, err := r.object(ctx, c)
	if err != nil {
		return err
	}
	switch pvc.StandingOf(object) {
	case pvc.Leaving:
		return fmt.Errorf("%s is being deleted already: there is nothing to release; what keeps it: %s", r.what(), why(object))
	case pvc.Free:
		return fmt.Errorf("%s is not held: nothing refuses its deletion, and there is nothing to release", r.what())
	case pvc.Released:
		_, err := fmt.Fprintf(r.Out, "%s is released already; what else keeps it: %s\n", r.what(), why(object))
		return err
	}
	if err := r.show(ctx, pvc.New(c), object); err != nil {
		return err
	}
	if !r.yes {
		return errors.New("nothing was released; to release it as shown, give --yes")
	}
	if err := pvc.Release(ctx, c, object); err != nil {
		return r.refused(err, object)
	}
	next := "to delete it, while the release lasts: kubectl delete " + r.kind.words[0] + " " + r.name
	if object.GetDeletionTimestamp() != nil {
		next = "its finalizers may be removed now; to check: " + why(object)
	} else if object.GetNamespace() != "" {
		next += " -n " + object.GetNamespace()
	}
	_, err = fmt.Fprintf(r.Out, "%s released; %s\n", r.what(), next)
	return err
}

func (r *release) object(ctx context.Context, reader client.Reader) (client.Object, error) {
	if r.kind.singular == namespaces.singular {
		object := &corev1.Namespace{}
		return object, r.explain(reader.Get(ctx, client.ObjectKey{Name: r.name}, object), releasePVC)
	}
	object := &corev1.PersistentVolumeClaim{}
	err := reader.Get(ctx, r.key(r.name), object)
	if apierrors.IsNotFound(err) {
		return nil, noSuch("persistentvolumeclaim", r.key(r.name))
	}
	return object, r.explain(err, releasePVC)
}

func (r *release) what() string { return r.kind.words[0] + "/" + r.name }

// why is the command that says what keeps an object.
func why(object client.Object) string {
	if object.GetNamespace() == "" {
		return "kubectl lockstep why pvc -n " + object.GetName()
	}
	return "kubectl lockstep why pvc/" + object.GetName() + " -n " + object.GetNamespace()
}

func (r *release) lacking(object client.Object) error {
	where := cmp.Or(object.GetNamespace(), object.GetName())
	return fmt.Errorf("you may not release %s: that takes the verb %q on %s in namespace %q; ask for a role with it",
		r.what(), pvc.Verb, pvc.Resource+"."+pvc.Group, where)
}

// show prints what a release means.
func (r *release) show(ctx context.Context, reader *pvc.Reader, object client.Object) error {
	claim, isPVC := object.(*corev1.PersistentVolumeClaim)
	if !isPVC {
		_, err := fmt.Fprint(r.ErrOut, render.ReleaseOfNamespace(object))
		return err
	}
	found, err := reader.Explain(ctx, claim.Namespace, []corev1.PersistentVolumeClaim{*claim})
	if err != nil {
		return r.explain(err, readPVCs)
	}
	_, err = fmt.Fprint(r.ErrOut, render.Release(render.Claim(found[0]), time.Now()))
	return err
}

// refused adds to the API server's answer to a write what to do.
func (r *release) refused(err error, object client.Object) error {
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "needs permission to release"):
		return r.lacking(object)
	case errors.Is(err, pvc.ErrChanged), apierrors.IsConflict(err):
		return fmt.Errorf("nothing was released: %w", err)
	}
	return r.explain(err, releasePVC)
}
