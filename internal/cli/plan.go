package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

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

With -f, show what would happen if kubectl apply -f applied the file now. The API server fills in
defaults and validates the sets by a dry run, which stores nothing; it needs the permission to
create or patch them. The sets need not exist.`,
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
	sets, skipped, err := manifest.Read(file, o.In, namespace)
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
	config, err := o.config()
	if err != nil {
		return err
	}
	server, err := manifest.NewDryRunner(config, survey.Scheme())
	if err != nil {
		return explain(err, config.Host, namespace)
	}
	return o.show(ctx, all, out, watch, func(ctx context.Context, now time.Time) (string, string, error) {
		var plans []*report.SetPlan
		for _, set := range sets {
			plan, err := planOf(ctx, server, sessions[set.Namespace()], set, now)
			if err != nil {
				return "", "", fmt.Errorf("%s: %w", file, err)
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
		namespace := set.Namespace()
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

// planOf returns the plan for one set as the API server would store it.
func planOf(ctx context.Context, server *manifest.DryRunner, session *survey.Session, file manifest.Set, now time.Time) (*report.SetPlan, error) {
	set, warnings, err := server.Apply(ctx, file)
	if err != nil {
		return nil, explainWrite(err, "", types.NamespacedName{Namespace: file.Namespace()})
	}
	found, err := session.As(ctx, set, now)
	if err != nil {
		return nil, explain(err, "", set.Namespace)
	}
	plan := report.Plan(found)
	plan.Warnings = warnings
	return plan, nil
}
