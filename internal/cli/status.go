package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/render"
)

func (o *options) statusCommand() *cobra.Command {
	var watch bool
	var out *output
	cmd := &cobra.Command{
		Use:   "status NAME",
		Short: "Show the state of a LeaderWorkerSet and its groups, and what they wait for",
		Long: `Show the conditions of a LeaderWorkerSet, and for each group its ready pods, revision, nodes, age,
container restarts and what it waits for. Terminating pods and those of a previous incarnation are
listed apart, and not counted.

It needs get, list and watch on leaderworkersets, statefulsets, controllerrevisions, pods and services
in the set's namespace.`,
		Example: `  kubectl lockstep status llama
  kubectl lockstep status llama -n inference --watch
  kubectl lockstep status llama -o json
  kubectl lockstep status llama -o jsonpath='{.groups[*].nodes}'`,
		Args:              onlyOneSet,
		ValidArgsFunction: o.completeOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.begin(); err != nil {
				return err
			}
			name, err := oneSet(cmd, args)
			if err != nil {
				return err
			}
			return o.status(cmd.Context(), name, out, watch)
		},
	}
	out = newOutput(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show every change, in place on a terminal")
	return cmd
}

func (o *options) status(ctx context.Context, name string, out *output, watch bool) error {
	return o.about(ctx, name, out, watch, func(s lws.Survey) reporter { return render.Status(s) })
}

// about shows a report on one set.
func (o *options) about(ctx context.Context, name string, out *output, watch bool, make func(lws.Survey) reporter) error {
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	session, err := o.open(ctx, namespace)
	if err != nil {
		return err
	}
	seen := false
	return o.show(ctx, session, out, watch, func(ctx context.Context, now time.Time) (string, string, error) {
		found, err := session.Set(ctx, types.NamespacedName{Namespace: namespace, Name: name}, now)
		switch {
		case apierrors.IsNotFound(err) && seen:
			return out.gone(namespace, name)
		case apierrors.IsNotFound(err):
			return "", "", noSuch("leaderworkerset", types.NamespacedName{Namespace: namespace, Name: name})
		case err != nil:
			return "", "", explain(err, "", namespace)
		}
		seen = true
		return out.print(make(found), now)
	})
}

// gone is shown after a set was deleted. Programs get nothing: a missing set has no status.
func (o *output) gone(namespace, name string) (text, key string, err error) {
	if o.printer != nil {
		return "", "gone", nil
	}
	text = fmt.Sprintf("leaderworkerset %s in namespace %s is gone; waiting for a new one\n", name, namespace)
	return text, text, nil
}
