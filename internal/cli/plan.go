package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/manifest"
	"lockstep.dev/lockstep/internal/cli/report"
	"lockstep.dev/lockstep/internal/cli/survey"
)

func (o *options) planCommand() *cobra.Command {
	var watch bool
	var file string
	var out *output
	cmd := &cobra.Command{
		Use:   "plan NAME | -f FILE",
		Short: "Show what the operator would do now, and why; nothing is written",
		Long: `Show what the operator would do now, and why: every write with its reason and its
preconditions, and everything it waits for, for the set and each of its groups. The plan
comes from the operator's own decision. Nothing is written.

With -f, show what would happen on the spot if the file were applied, as kubectl apply does it:
what a set has that the file does not name stays, unless the apply before named it. The sets
in the file are defaulted and judged as the API server would, and need not exist.`,
		Example: `  kubectl lockstep plan llama
  kubectl lockstep plan llama -o json
  kubectl lockstep plan -f llama.yaml
  kustomize build . | kubectl lockstep plan -f -`,
		ValidArgsFunction: o.completeOne,
		Args: func(_ *cobra.Command, args []string) error {
			names, err := sets.names(args)
			if err == nil && ((len(names) == 1) == (file != "") || len(names) > 1) {
				err = errors.New("give either the name of one LeaderWorkerSet or a file: plan NAME, or plan -f FILE")
			}
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.begin(); err != nil {
				return err
			}
			if file != "" {
				return o.planFile(cmd.Context(), file, out, watch)
			}
			name, err := oneSet(cmd, args)
			if err != nil {
				return err
			}
			return o.about(cmd.Context(), name, out, watch, func(s survey.Survey) reporter { return report.Plan(s) })
		},
	}
	out = newOutput(cmd)
	cmd.Flags().StringVarP(&file, "filename", "f", "", "`file` with LeaderWorkerSets, in YAML or JSON; - is standard input")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again with every change, in place on a terminal")
	return cmd
}

// planFile shows what would happen if the sets of a file were applied.
func (o *options) planFile(ctx context.Context, file string, out *output, watch bool) error {
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	sets, skipped, err := manifest.Read(ctx, file, o.In, namespace)
	if err != nil {
		return err
	}
	for _, what := range skipped {
		fmt.Fprintf(o.ErrOut, "left out: %s\n", what)
	}
	sessions, all, err := o.openAll(ctx, sets)
	if err != nil {
		return err
	}
	return o.show(ctx, all, out, watch, func(ctx context.Context, now time.Time) (string, string, error) {
		var plans []*report.SetPlan
		for _, set := range sets {
			plan, err := planOf(ctx, sessions[set.Set.Namespace], set, now)
			if err != nil {
				return "", "", err
			}
			plan.File = file
			plans = append(plans, plan)
		}
		if len(plans) == 1 {
			return out.print(plans[0], now)
		}
		return out.print(report.Plans(plans), now)
	})
}

// openAll begins to read every namespace that a file speaks of.
func (o *options) openAll(ctx context.Context, sets []manifest.Set) (map[string]*survey.Session, []*survey.Session, error) {
	sessions := map[string]*survey.Session{}
	var all []*survey.Session
	for _, set := range sets {
		namespace := set.Set.Namespace
		if sessions[namespace] != nil {
			continue
		}
		session, err := o.open(ctx, namespace)
		if err != nil {
			return nil, nil, err
		}
		sessions[namespace] = session
		all = append(all, session)
	}
	return sessions, all, nil
}

// planOf is the plan for one set of a file, over the living one if there is one.
func planOf(ctx context.Context, session *survey.Session, file manifest.Set, now time.Time) (*report.SetPlan, error) {
	live := &lwsv1.LeaderWorkerSet{}
	err := session.Reader.Get(ctx, client.ObjectKeyFromObject(file.Set), live)
	if apierrors.IsNotFound(err) {
		live = nil
	} else if err != nil {
		return nil, err
	}
	set, warnings, err := file.Admitted(ctx, live, now)
	if err != nil {
		return nil, err
	}
	found, err := session.As(ctx, set, now)
	if err != nil {
		return nil, explain(err, "", set.Namespace)
	}
	plan := report.Plan(found)
	plan.Warnings = warnings
	return plan, nil
}
