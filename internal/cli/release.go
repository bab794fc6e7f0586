package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/pvc"
	"lockstep.dev/lockstep/internal/cli/render"
)

// release is one release of a PVC or a namespace.
type release struct {
	*cluster
	kind   kind
	name   string
	yes    bool
	delete bool
	dryRun lws.DryRun
}

func (o *options) releaseCommand() *cobra.Command {
	r := &release{}
	cmd := &cobra.Command{
		Use:   "release pvc/NAME | namespace/NAME",
		Short: "Let a PersistentVolumeClaim be deleted while it is in use",
		Long: `Let a PersistentVolumeClaim be deleted although it is in use, or a namespace although PVCs in it
are.

It shows the holders and what becomes of the data, asks for confirmation, and writes the
annotation protection.lockstep.dev/release with the UID of the PVC: a later PVC of the same name is
not released. This works while no operator runs; an operator removes the token after an hour,
unless it is configured otherwise. Nothing is deleted unless --delete is given.

It takes the verb "release" on claims.protection.lockstep.dev, and patch (with --delete also
delete) on the PVC.`,
		Example: `  kubectl lockstep release pvc/data-llama-0
  kubectl lockstep release pvc/data-llama-0 --delete
  kubectl lockstep release pvc/data-llama-0 --dry-run=server
  kubectl lockstep release namespace/inference --yes`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return o.complete(releasable(append(args, typed)))(cmd, args, typed)
		},
		Args: func(_ *cobra.Command, args []string) error { return r.read(args) },
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if r.cluster, err = o.reach(cmd.Context()); err != nil {
				return err
			}
			return r.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "do not ask for confirmation; needed without a terminal")
	cmd.Flags().BoolVar(&r.delete, "delete", false, "delete the PVC as well, by its UID")
	addDryRun(cmd, &r.dryRun)
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
	case r.delete && r.kind.singular == namespaces.singular:
		return errors.New("--delete is for PVCs; delete the namespace yourself, once it is released")
	}
	r.name = names[0]
	return nil
}

// run reads the object, shows what a release does, asks, and writes.
func (r *release) run(ctx context.Context) error {
	releaser, err := pvc.OpenReleaser(r.config)
	if err != nil {
		return err
	}
	releaser.DryRun = r.dryRun == lws.DryRunServer
	object, err := r.object(ctx, releaser)
	if err != nil {
		return err
	}
	standing := pvc.StandingOf(object)
	if done, err := r.needless(standing, object); done || err != nil {
		return err
	}
	if standing == pvc.Held || standing == pvc.HeldBack {
		may, err := releaser.May(ctx, object)
		switch {
		case err != nil:
			return r.explain(err, releasePVC)
		case !may:
			return r.lacking(object)
		}
	}
	if err := r.show(ctx, object, standing); err != nil {
		return err
	}
	if err := r.consent(ctx); err != nil {
		return err
	}
	return r.write(ctx, releaser, object, standing)
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

// needless reports on an object that needs no release.
func (r *release) needless(standing pvc.Standing, object client.Object) (done bool, err error) {
	switch {
	case standing == pvc.Leaving:
		return true, fmt.Errorf("%s is being deleted already: there is nothing to release; what keeps it: %s", r.what(), why(object))
	case standing == pvc.Free && !r.delete:
		return true, fmt.Errorf("%s is not held: nothing refuses its deletion, and there is nothing to release", r.what())
	case standing == pvc.Released && !r.delete:
		_, err := fmt.Fprintf(r.Out, "%s is released already; what else keeps it: %s\n", r.what(), why(object))
		return true, err
	}
	return false, nil
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
	where := object.GetNamespace()
	if where == "" {
		where = object.GetName()
	}
	return fmt.Errorf("you may not release %[1]s: that takes the verb %[2]q on %[3]s in namespace %[4]q. Ask for a role with it:\n"+
		"  kubectl create role release-claims -n %[4]s --verb=%[2]s --resource=%[3]s\n"+
		"  kubectl create rolebinding release-claims -n %[4]s --role=release-claims --user=YOU",
		r.what(), pvc.Verb, pvc.Resource+"."+pvc.Group, where)
}

// show prints what the user confirms.
func (r *release) show(ctx context.Context, object client.Object, standing pvc.Standing) error {
	claim, isPVC := object.(*corev1.PersistentVolumeClaim)
	if !isPVC {
		_, err := fmt.Fprint(r.ErrOut, render.ReleaseOfNamespace(object))
		return err
	}
	reader, err := pvc.Open(r.config)
	if err != nil {
		return err
	}
	found, err := reader.Explain(ctx, claim.Namespace, []corev1.PersistentVolumeClaim{*claim})
	if err != nil {
		return r.explain(err, readPVCs)
	}
	text := render.Release(render.Claim(found[0]), time.Now(), r.delete, standing == pvc.Held || standing == pvc.HeldBack)
	_, err = fmt.Fprint(r.ErrOut, text)
	return err
}

// consent asks the user to type the name.
func (r *release) consent(ctx context.Context) error {
	if r.yes || r.dryRun != lws.DryRunNone {
		return nil
	}
	if !isTerminal(r.In) {
		return errors.New("nothing was released: there is no terminal to confirm it on; to confirm, give --yes")
	}
	fmt.Fprintf(r.ErrOut, "\nType %s to go on: ", r.name)
	typed := make(chan string, 1)
	go func() { // an interrupt ends the context, not the read
		line, _ := bufio.NewReader(r.In).ReadString('\n')
		typed <- line
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(r.ErrOut)
		return errors.New("nothing was released: interrupted")
	case line := <-typed:
		if strings.TrimSpace(line) != r.name {
			return errors.New("nothing was released: the name was not typed")
		}
		return nil
	}
}

func (r *release) write(ctx context.Context, releaser *pvc.Releaser, object client.Object, standing pvc.Standing) error {
	if r.dryRun != lws.DryRunClient {
		if err := releaser.Release(ctx, object); err != nil {
			return r.refused(err, object)
		}
	}
	claim, isPVC := object.(*corev1.PersistentVolumeClaim)
	switch {
	case !isPVC:
		return r.said("released", "to delete it, while the release lasts: kubectl delete namespace "+r.name)
	case standing == pvc.HeldBack:
		return r.said("released", "its finalizers may be removed now; to check: "+why(object))
	case !r.delete:
		return r.said("released", "to delete it, while the release lasts: kubectl delete pvc "+r.name+" -n "+r.namespace)
	case r.dryRun == lws.DryRunServer && standing == pvc.Held:
		return r.said("released", "the DELETE cannot be tried before the token is written")
	case r.dryRun == lws.DryRunClient:
		return r.said("deleted", "")
	}
	err := releaser.Delete(ctx, claim)
	if errors.Is(err, pvc.ErrChanged) || apierrors.IsConflict(err) {
		return fmt.Errorf("nothing was deleted: %w", err)
	}
	if err != nil {
		return fmt.Errorf("%s was not deleted: %w; is it released, and what keeps it: %s", r.what(), err, why(object))
	}
	return r.said("deleted", "to check: "+why(object))
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

// said reports what was done.
func (r *release) said(done, next string) error {
	if r.dryRun != lws.DryRunNone {
		done += " (" + string(r.dryRun) + " dry run)"
	}
	if next != "" {
		next = "; " + next
	}
	_, err := fmt.Fprintf(r.Out, "%s %s%s\n", r.what(), done, next)
	return err
}
