package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/cli/page"
	clipvc "lockstep.dev/lockstep/internal/cli/pvc"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/pvc"
)

// question is the arguments of why.
type question struct {
	names      []string
	everywhere bool
	ifDeleted  bool
	out        *output
}

func (o *options) whyCommand() *cobra.Command {
	q := &question{}
	cmd := describe("why")
	cmd.Args = func(_ *cobra.Command, args []string) (err error) {
		q.names, err = claims.names(args)
		switch {
		case len(args) == 0:
			return errors.New("name a PVC: pvc/NAME, or pvc for all of the namespace")
		case err != nil:
			return err
		case q.everywhere && len(q.names) > 0:
			return errors.New("give either names or --all-namespaces")
		case q.ifDeleted && len(q.names) == 0:
			return errors.New("--if-deleted needs the name of a PVC: why pvc/NAME --if-deleted")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.why(cmd.Context(), q) }
	q.out = o.addOutput(cmd)
	o.completeNames(cmd, many, claims)
	cmd.Flags().BoolVarP(&q.everywhere, "all-namespaces", "A", false, "list the PVCs of all namespaces")
	cmd.Flags().BoolVar(&q.ifDeleted, "if-deleted", false, "try a DELETE as a dry run: would it be refused, and why")
	cmd.Flags().Bool("live", true, "")
	_ = cmd.Flags().MarkDeprecated("live", "why always reads live")
	return cmd
}

func (o *options) why(ctx context.Context, q *question) error {
	c, live, err := o.client(ctx)
	if err != nil {
		return err
	}
	if len(q.names) > 0 {
		return c.whyNamed(ctx, live, q)
	}
	if q.everywhere {
		c.namespace = ""
	}
	var all corev1.PersistentVolumeClaimList
	if err := live.List(ctx, &all, client.InNamespace(c.namespace)); err != nil {
		return c.explain(err, readPVCs)
	}
	reports, err := c.reports(ctx, &clipvc.Reader{Client: live, Brief: true, Now: c.at}, all.Items)
	if err != nil {
		return err
	}
	return q.out.print(render.Overview(reports))
}

// whyNamed reports on each PVC. A PVC that does not exist is an error after the reports on the others.
func (c *cluster) whyNamed(ctx context.Context, live client.Client, q *question) error {
	var found []corev1.PersistentVolumeClaim
	var missing error
	for _, name := range q.names {
		var claim corev1.PersistentVolumeClaim
		err := live.Get(ctx, c.key(name), &claim)
		switch {
		case apierrors.IsNotFound(err):
			missing = errors.Join(missing, noSuch("persistentvolumeclaim", c.key(name)))
		case err != nil:
			return c.explain(err, readPVCs)
		default:
			found = append(found, claim)
		}
	}
	reports, err := c.reports(ctx, &clipvc.Reader{Client: live, Now: c.at}, found)
	if err != nil {
		return err
	}
	var shown []page.Report
	for _, r := range reports {
		if q.ifDeleted {
			if r.Deletion, err = tryDelete(ctx, live, c.key(r.Name)); err != nil {
				return c.explain(err, "delete persistentvolumeclaims")
			}
		}
		shown = append(shown, r)
	}
	if len(reports) > 0 && len(q.names) > 1 && q.out.printer != nil {
		shown = []page.Report{render.Claims(reports)}
	}
	return errors.Join(q.out.print(shown...), missing)
}

// tryDelete returns the answer to a DELETE of a PVC as a dry run.
func tryDelete(ctx context.Context, live client.Client, key types.NamespacedName) (*render.Deletion, error) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err := live.Delete(ctx, claim, client.DryRunAll)
	switch {
	case err == nil:
		return &render.Deletion{Outcome: render.Accepted}, nil
	case apierrors.IsForbidden(err), apierrors.IsConflict(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return &render.Deletion{Outcome: render.Refused, Message: err.Error()}, nil
	}
	return nil, err
}

// reports explains PVCs, namespace by namespace.
func (c *cluster) reports(ctx context.Context, reader *clipvc.Reader, all []corev1.PersistentVolumeClaim) (reports []*render.ClaimWhy, err error) {
	byNamespace := map[string][]corev1.PersistentVolumeClaim{}
	for _, claim := range all {
		byNamespace[claim.Namespace] = append(byNamespace[claim.Namespace], claim)
	}
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		found, err := reader.Explain(ctx, namespace, byNamespace[namespace])
		if err != nil {
			return nil, c.explain(err, readPVCs)
		}
		for _, f := range found {
			reports = append(reports, render.Claim(f))
		}
	}
	return reports, nil
}

// release is one release of a PVC or a namespace.
type release struct {
	*cluster
	kind kind
	name string
	yes  bool
}

func (o *options) releaseCommand() *cobra.Command {
	r := &release{}
	cmd := describe("release")
	cmd.Args = func(_ *cobra.Command, args []string) error { return r.read(args) }
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		var live client.Client
		if r.cluster, live, err = o.client(cmd.Context()); err != nil {
			return err
		}
		return r.run(cmd.Context(), live)
	}
	o.completeNames(cmd, 1, claims, namespaces)
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
func (r *release) run(ctx context.Context, c client.Client) error {
	object, err := r.object(ctx, c)
	if err != nil {
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
	if err := r.show(ctx, &clipvc.Reader{Client: c, Now: r.at}, object); err != nil {
		return err
	}
	if !r.yes {
		return errors.New("nothing was released; to release it as shown, give --yes")
	}
	if err := clipvc.Release(ctx, c, object); apierrors.IsConflict(err) {
		return fmt.Errorf("nothing was released, it has changed since it was shown; check it and run the command again: %w", err)
	} else if err != nil {
		return r.explain(err, releasePVC)
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

// show prints what a release means.
func (r *release) show(ctx context.Context, reader *clipvc.Reader, object client.Object) error {
	claim, isPVC := object.(*corev1.PersistentVolumeClaim)
	if !isPVC {
		_, err := fmt.Fprint(r.ErrOut, render.ReleaseOfNamespace(object))
		return err
	}
	found, err := reader.Explain(ctx, claim.Namespace, []corev1.PersistentVolumeClaim{*claim})
	if err != nil {
		return r.explain(err, readPVCs)
	}
	_, err = fmt.Fprint(r.ErrOut, render.Release(render.Claim(found[0]), r.now()))
	return err
}
