package cli

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/cli/argument"
	"lockstep.dev/lockstep/internal/cli/cluster"
	"lockstep.dev/lockstep/internal/cli/page"
	clipvc "lockstep.dev/lockstep/internal/cli/pvc"
	"lockstep.dev/lockstep/internal/cli/release"
	"lockstep.dev/lockstep/internal/cli/render"
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
		q.names, err = argument.Claims.Names(args)
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
	o.completeNames(cmd, many, argument.Claims)
	cmd.Flags().BoolVarP(&q.everywhere, "all-namespaces", "A", false, "list the PVCs of all namespaces")
	cmd.Flags().BoolVar(&q.ifDeleted, "if-deleted", false, "try a DELETE as a dry run: would it be refused, and why")
	cmd.Flags().Bool("live", true, "")
	_ = cmd.Flags().MarkDeprecated("live", "why always reads live")
	return cmd
}

func (o *options) why(ctx context.Context, q *question) error {
	c, live, err := o.Client(ctx)
	if err != nil {
		return err
	}
	if len(q.names) > 0 {
		return o.whyNamed(ctx, c, live, q)
	}
	if q.everywhere {
		c.Namespace = ""
	}
	var all corev1.PersistentVolumeClaimList
	if err := live.List(ctx, &all, client.InNamespace(c.Namespace)); err != nil {
		return c.Explain(err, cluster.ReadPVCs)
	}
	reports, err := explained(ctx, c, &clipvc.Reader{Client: live, Brief: true, Now: c.At}, all.Items)
	if err != nil {
		return err
	}
	return q.out.print(render.Overview(reports))
}

// whyNamed reports on each PVC. A PVC that does not exist is an error after the reports on the others.
func (o *options) whyNamed(ctx context.Context, c *cluster.Cluster, live client.Client, q *question) error {
	var found []corev1.PersistentVolumeClaim
	var missing error
	for _, name := range q.names {
		var claim corev1.PersistentVolumeClaim
		err := live.Get(ctx, c.Key(name), &claim)
		switch {
		case apierrors.IsNotFound(err):
			missing = errors.Join(missing, cluster.NoSuch("persistentvolumeclaim", c.Key(name)))
		case err != nil:
			return c.Explain(err, cluster.ReadPVCs)
		default:
			found = append(found, claim)
		}
	}
	reports, err := explained(ctx, c, &clipvc.Reader{Client: live, Now: c.At}, found)
	if err != nil {
		return err
	}
	var shown []page.Report
	for _, r := range reports {
		if q.ifDeleted {
			if r.Deletion, err = tryDelete(ctx, live, c.Key(r.Name)); err != nil {
				return c.Explain(err, "delete persistentvolumeclaims")
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

// explained explains PVCs, namespace by namespace.
func explained(ctx context.Context, c *cluster.Cluster, reader *clipvc.Reader, all []corev1.PersistentVolumeClaim) (reports []*render.ClaimWhy, err error) {
	byNamespace := map[string][]corev1.PersistentVolumeClaim{}
	for _, claim := range all {
		byNamespace[claim.Namespace] = append(byNamespace[claim.Namespace], claim)
	}
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		found, err := reader.Explain(ctx, namespace, byNamespace[namespace])
		if err != nil {
			return nil, c.Explain(err, cluster.ReadPVCs)
		}
		for _, f := range found {
			reports = append(reports, render.Claim(f))
		}
	}
	return reports, nil
}

func (o *options) releaseCommand() *cobra.Command {
	r := &release.Release{}
	cmd := describe("release")
	cmd.Args = func(_ *cobra.Command, args []string) error { return r.Read(args) }
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, live, err := o.Client(cmd.Context())
		if err != nil {
			return err
		}
		r.Client, r.Namespace, r.Now, r.Out, r.ErrOut = live, c.Namespace, c.At, o.Out, o.ErrOut
		err = r.Run(cmd.Context())
		if apierrors.IsNotFound(err) && r.Kind.Singular == argument.Claims.Singular {
			return cluster.NoSuch("persistentvolumeclaim", c.Key(r.Name))
		}
		return c.Explain(err, cluster.ReleasePVC)
	}
	o.completeNames(cmd, 1, argument.Claims, argument.Namespaces)
	cmd.Flags().BoolVarP(&r.Yes, "yes", "y", false, "release it; without, only show what that means")
	return cmd
}
