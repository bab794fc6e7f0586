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

	"lockstep.dev/lockstep/internal/cli/pvc"
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
	cmd := &cobra.Command{
		Use:   "why pvc/NAME... | pvc",
		Short: "Say why a PersistentVolumeClaim is in use or is not removed, and what frees it",
		Long: `Say why a PersistentVolumeClaim is in use or is not removed: its holders, with the field that
proves each; the owner of each finalizer; the next step for each holder; and what becomes of the
data.

Without a name, list the PVCs of the namespace that are in use or being deleted.

It only reads, live, and needs no Lockstep in the cluster. It reads persistentvolumeclaims, pods
and workloads of the namespace, and nodes and persistentvolumes. What you may not read is listed
as such, and never taken for absent.

With --if-deleted the API server also says what it would answer to a DELETE, by a dry run.

For programs, -o json prints a ClaimWhy of cli.lockstep.dev/v1, or a ClaimWhyList for several
PVCs. Fields are added, and never renamed. A state is one of Free, Held, Cooling, Draining,
Doomed (being deleted, and a workload still wants it) and Unknown.`,
		Example: `  kubectl lockstep why pvc/data-llama-0
  kubectl lockstep why pvc data-llama-0 data-llama-1 -n inference
  kubectl lockstep why pvc/data-llama-0 --if-deleted
  kubectl lockstep why pvc -A
  kubectl lockstep why pvc/data-llama-0 -o json`,
		Args: func(_ *cobra.Command, args []string) (err error) {
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
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.why(cmd.Context(), q) },
	}
	q.out = addOutput(cmd)
	cmd.Flags().BoolVarP(&q.everywhere, "all-namespaces", "A", false, "list the PVCs of all namespaces")
	cmd.Flags().BoolVar(&q.ifDeleted, "if-deleted", false, "try a DELETE as a dry run: would it be refused, and why")
	cmd.Flags().Bool("live", true, "")
	_ = cmd.Flags().MarkDeprecated("live", "why always reads live")
	return cmd
}

func (o *options) why(ctx context.Context, q *question) error {
	c, err := o.reach(ctx)
	if err != nil {
		return err
	}
	live, err := c.client()
	if err != nil {
		return err
	}
	reader := pvc.New(live)
	if len(q.names) > 0 {
		return c.whyNamed(ctx, live, reader, q)
	}
	if q.everywhere {
		c.namespace = ""
	}
	reader.Brief = true
	all, err := reader.PVCs(ctx, c.namespace)
	if err != nil {
		return c.explain(err, readPVCs)
	}
	reports, err := c.reports(ctx, reader, all)
	if err != nil {
		return err
	}
	return q.out.print(o.Out, render.Overview(reports))
}

// whyNamed reports on each PVC. A PVC that does not exist is an error after the reports on the others.
func (c *cluster) whyNamed(ctx context.Context, live client.Client, reader *pvc.Reader, q *question) error {
	var found []corev1.PersistentVolumeClaim
	var missing error
	for _, name := range q.names {
		claim, err := reader.PVC(ctx, c.key(name))
		switch {
		case apierrors.IsNotFound(err):
			missing = errors.Join(missing, noSuch("persistentvolumeclaim", c.key(name)))
		case err != nil:
			return c.explain(err, readPVCs)
		default:
			found = append(found, *claim)
		}
	}
	reports, err := c.reports(ctx, reader, found)
	if err != nil {
		return err
	}
	var shown []render.Report
	for _, r := range reports {
		if q.ifDeleted {
			if r.Deletion, err = tryDelete(ctx, live, c.key(r.Name)); err != nil {
				return c.explain(err, "delete persistentvolumeclaims")
			}
		}
		shown = append(shown, r)
	}
	if len(reports) > 0 && len(q.names) > 1 && q.out.printer != nil {
		shown = []render.Report{render.Claims(reports)}
	}
	return errors.Join(q.out.print(c.Out, shown...), missing)
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
func (c *cluster) reports(ctx context.Context, reader *pvc.Reader, all []corev1.PersistentVolumeClaim) (reports []*render.ClaimWhy, err error) {
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
