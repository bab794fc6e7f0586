package cli

import (
	"context"
	"errors"
	"fmt"
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

// question is what is asked about claims.
type question struct {
	names      []string
	everywhere bool
	ifDeleted  bool
	live       bool
	out        *output
}

func (o *options) whyCommand() *cobra.Command {
	q := &question{}
	cmd := &cobra.Command{
		Use:   "why pvc/NAME... | pvc",
		Short: "Say why a PersistentVolumeClaim is in use or does not go away, and what would free it",
		Long: `Say why a PersistentVolumeClaim is in use or does not go away: who uses it, with the field that
proves it, and whether that truly holds it; whose its finalizers are; what keeps pods from
leaving; the fewest deeds that free it; and what becomes of the data then.

Without a name, list the claims of the namespace that are in use or on their way out.

It only reads, and needs nothing of Lockstep in the cluster. It reads persistentvolumeclaims,
pods and workloads of the namespace, and nodes, persistentvolumes and volumeattachments. What
you may not read is told as such: it is never taken for absent. A cache may say that a claim is
used, never that it is not: if nobody is found, everything is read once more, live.

With --if-deleted the API server is asked to try a DELETE without carrying it out.

For programs, -o json prints a ClaimWhy of cli.lockstep.dev/v1, or a ClaimWhyList for several
claims. Fields are added to them, and never renamed or taken away. A state is one of Free, Held,
Cooling, Draining, Doomed (on its way out, and a workload still wants it) and Unknown.`,
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
				return errors.New("say about what: pvc/NAME, or pvc for all claims of the namespace")
			case err != nil:
				return err
			case q.everywhere && len(q.names) > 0:
				return errors.New("give either names or --all-namespaces")
			case q.ifDeleted && len(q.names) == 0:
				return errors.New("--if-deleted needs the name of a claim: why pvc/NAME --if-deleted")
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
	cmd.Flags().BoolVarP(&q.everywhere, "all-namespaces", "A", false, "list the claims of all namespaces")
	cmd.Flags().BoolVar(&q.ifDeleted, "if-deleted", false, "have the API server try a DELETE and keep nothing of it: would it be refused, and by what")
	cmd.Flags().BoolVar(&q.live, "live", false, "read the newest there is, not what the API server has in its cache")
	return cmd
}

func (o *options) why(ctx context.Context, q *question) error {
	namespace, config, asker, err := o.openClaims(ctx)
	if err != nil {
		return err
	}
	asker.Live = q.live
	if len(q.names) == 0 {
		return o.whyAll(ctx, asker, namespace, config.Host, q)
	}
	return o.whyNamed(ctx, asker, namespace, config, q)
}

// whyNamed reports on each claim in full. One that is not there does not keep the
// others from being told of.
func (o *options) whyNamed(ctx context.Context, asker *inquiry.Inquirer, namespace string, config *rest.Config, q *question) error {
	var claims []corev1.PersistentVolumeClaim
	var missing []error
	for _, name := range q.names {
		claim, err := asker.Claim(ctx, types.NamespacedName{Namespace: namespace, Name: name})
		if apierrors.IsNotFound(err) {
			missing = append(missing, noSuch("persistentvolumeclaim", types.NamespacedName{Namespace: namespace, Name: name}))
			continue
		}
		if err != nil {
			return explainClaim(err, config.Host, namespace)
		}
		claims = append(claims, *claim)
	}
	found, err := asker.Explain(ctx, namespace, claims)
	if err != nil {
		return explainClaim(err, config.Host, namespace)
	}
	missing = append(missing, gone(claims, found)...)
	reports, err := o.reports(ctx, config, found, q)
	if err != nil {
		return explainClaim(err, config.Host, namespace)
	}
	if err := o.printClaims(reports, q); err != nil {
		return err
	}
	return errors.Join(missing...)
}

// gone are claims that went between the first look and the last.
func gone(claims []corev1.PersistentVolumeClaim, found []*inquiry.Found) []error {
	var errs []error
	for _, claim := range claims {
		if !slices.ContainsFunc(found, func(f *inquiry.Found) bool { return f.Claim.Name == claim.Name }) {
			errs = append(errs, fmt.Errorf("pvc/%s in namespace %s is gone: it went while it was looked at", claim.Name, claim.Namespace))
		}
	}
	return errs
}

func (o *options) reports(ctx context.Context, config *rest.Config, found []*inquiry.Found, q *question) ([]*render.ClaimWhy, error) {
	var reports []*render.ClaimWhy
	for _, f := range found {
		var attempt *inquiry.Attempt
		if q.ifDeleted {
			prober, err := inquiry.OpenProber(config)
			if err != nil {
				return nil, err
			}
			tried, err := prober.Delete(ctx, types.NamespacedName{Namespace: f.Claim.Namespace, Name: f.Claim.Name})
			if err != nil {
				return nil, err
			}
			attempt = &tried
			f.Learn(tried)
		}
		reports = append(reports, render.Claim(f, attempt))
	}
	return reports, nil
}

// printClaims prints one report as such, several one after the other for people
// and as a list for programs.
func (o *options) printClaims(reports []*render.ClaimWhy, q *question) error {
	if len(reports) == 0 {
		return nil
	}
	if len(q.names) > 1 && q.out.printer != nil {
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

// whyAll gives a line to each claim that is not free. It always reads live: most
// claims of a namespace may be free, and no cache can say so.
func (o *options) whyAll(ctx context.Context, asker *inquiry.Inquirer, namespace, host string, q *question) error {
	within := namespace
	if q.everywhere {
		within = ""
	}
	asker.Live, asker.Brief = true, true
	claims, err := asker.Claims(ctx, within)
	if err != nil {
		return explainClaim(err, host, within)
	}
	byNamespace := map[string][]corev1.PersistentVolumeClaim{}
	var spaces []string
	for _, claim := range claims {
		if byNamespace[claim.Namespace] == nil {
			spaces = append(spaces, claim.Namespace)
		}
		byNamespace[claim.Namespace] = append(byNamespace[claim.Namespace], claim)
	}
	slices.Sort(spaces)
	var reports []*render.ClaimWhy
	for _, space := range spaces {
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
