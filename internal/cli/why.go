package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"lockstep.dev/lockstep/internal/cli/inquiry"
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

With --if-deleted the API server tries a DELETE as a dry run.

For programs, -o json prints a ClaimWhy of cli.lockstep.dev/v1, or a ClaimWhyList for several
PVCs. Fields are added, and never renamed. A state is one of Free, Held, Cooling, Draining,
Doomed (being deleted, and a workload still wants it) and Unknown.`,
		Example: `  kubectl lockstep why pvc/data-llama-0
  kubectl lockstep why pvc data-llama-0 data-llama-1 -n inference
  kubectl lockstep why pvc/data-llama-0 --if-deleted
  kubectl lockstep why pvc -A
  kubectl lockstep why pvc/data-llama-0 -o json`,
		ValidArgsFunction: o.completeClaims,
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := q.out.begin(); err != nil {
				return err
			}
			return o.why(cmd.Context(), q)
		},
	}
	q.out = newOutput(cmd)
	cmd.Flags().BoolVarP(&q.everywhere, "all-namespaces", "A", false, "list the PVCs of all namespaces")
	cmd.Flags().BoolVar(&q.ifDeleted, "if-deleted", false, "try a DELETE as a dry run: would it be refused, and by what")
	cmd.Flags().Bool("live", true, "")
	_ = cmd.Flags().MarkDeprecated("live", "why always reads live")
	return cmd
}

func (o *options) why(ctx context.Context, q *question) error {
	namespace, config, asker, err := o.openClaims(ctx)
	if err != nil {
		return err
	}
	if len(q.names) == 0 {
		return o.whyAll(ctx, asker, namespace, config.Host, q)
	}
	return o.whyNamed(ctx, asker, namespace, config, q)
}

// whyNamed reports on each PVC. A PVC that does not exist is an error after the reports on
// the others.
func (o *options) whyNamed(ctx context.Context, asker *inquiry.Inquirer, namespace string, config *rest.Config, q *question) error {
	var found []corev1.PersistentVolumeClaim
	var missing []error
	for _, name := range q.names {
		claim, err := asker.Claim(ctx, types.NamespacedName{Namespace: namespace, Name: name})
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, noSuch("persistentvolumeclaim", types.NamespacedName{Namespace: namespace, Name: name}))
		case err != nil:
			return explainClaim(err, config.Host, namespace)
		default:
			found = append(found, *claim)
		}
	}
	explained, err := asker.Explain(ctx, namespace, found)
	if err != nil {
		return explainClaim(err, config.Host, namespace)
	}
	var reports []*render.ClaimWhy
	for _, f := range explained {
		var attempt *inquiry.Attempt
		if q.ifDeleted {
			tried, err := inquiry.Try(ctx, config, types.NamespacedName{Namespace: namespace, Name: f.Claim.Name})
			if err != nil {
				return explainClaim(err, config.Host, namespace)
			}
			f.Learn(tried)
			attempt = &tried
		}
		reports = append(reports, render.Claim(f, attempt))
	}
	return errors.Join(o.printClaims(reports, q), errors.Join(missing...))
}

// printClaims prints several reports one after the other, and as a list for programs.
func (o *options) printClaims(reports []*render.ClaimWhy, q *question) error {
	if len(reports) > 0 && len(q.names) > 1 && q.out.printer != nil {
		return o.printOnce(render.Claims(reports), q.out)
	}
	for i, r := range reports {
		if i > 0 {
			fmt.Fprint(o.Out, q.out.between())
		}
		if err := o.printOnce(r, q.out); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) printOnce(r reporter, out *output) error {
	text, _, err := out.print(r, time.Now())
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(o.Out, text)
	return err
}

// whyAll prints a line for each PVC that is not free.
func (o *options) whyAll(ctx context.Context, asker *inquiry.Inquirer, namespace, host string, q *question) error {
	within := namespace
	if q.everywhere {
		within = ""
	}
	asker.Brief = true
	all, err := asker.Claims(ctx, within)
	if err != nil {
		return explainClaim(err, host, within)
	}
	byNamespace := map[string][]corev1.PersistentVolumeClaim{}
	for _, claim := range all {
		byNamespace[claim.Namespace] = append(byNamespace[claim.Namespace], claim)
	}
	var reports []*render.ClaimWhy
	for _, space := range slices.Sorted(maps.Keys(byNamespace)) {
		found, err := asker.Explain(ctx, space, byNamespace[space])
		if err != nil {
			return explainClaim(err, host, space)
		}
		for _, f := range found {
			reports = append(reports, render.Claim(f, nil))
		}
	}
	return o.printOnce(render.Overview(reports, q.everywhere), q.out)
}
