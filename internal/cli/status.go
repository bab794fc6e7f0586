package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/render"
)

func (o *options) statusCommand() *cobra.Command {
	var watch bool
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
	}
	out := addOutput(cmd)
	addWatch(cmd, &watch)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return o.about(cmd, args, out, watch, func(s lws.Survey) render.Report { return render.Status(s) })
	}
	return cmd
}

func addWatch(cmd *cobra.Command, watch *bool) {
	cmd.Flags().BoolVarP(watch, "watch", "w", false, "show every change, in place on a terminal")
}

// about prints a report on one set, or with watch every change of it.
func (o *options) about(cmd *cobra.Command, args []string, out *output, watch bool, report func(lws.Survey) render.Report) error {
	names, err := setNames(cmd, args, 1)
	if err != nil {
		return err
	}
	session, err := o.session(cmd.Context())
	if err != nil {
		return err
	}
	key := session.key(names[0])
	if watch {
		seen, gone := false, fmt.Sprintf("leaderworkerset %s in namespace %s is gone; waiting for a new one\n", key.Name, key.Namespace)
		return out.watch(cmd.Context(), o.Out, session.Session, gone, func() (render.Report, error) {
			found, err := session.Set(cmd.Context(), key, time.Now())
			switch {
			case apierrors.IsNotFound(err) && seen:
				return nil, nil
			case apierrors.IsNotFound(err):
				return nil, noSuch("leaderworkerset", key)
			case err != nil:
				return nil, session.explain(err, readSets)
			}
			seen = true
			return report(found), nil
		})
	}
	found, err := session.survey(cmd.Context(), key)
	if err != nil {
		return err
	}
	return out.print(o.Out, report(found))
}
