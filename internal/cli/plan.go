package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/render"
)

func (o *options) planCommand() *cobra.Command {
	var watch bool
	var file string
	var out *output
	cmd := &cobra.Command{
		Use:   "plan NAME | -f FILE",
		Short: "Show what the operator would do now, and why; nothing is written",
		Long: `Show what the operator would do now, for the set and each group: every write with its reason and
preconditions, and every wait. The plan is the operator's own decision. Nothing is written.

With -f, show the plan as if kubectl apply -f applied the file now. The API server defaults and
validates the sets in a dry run; this needs the permission to create or patch them. The sets need not exist.`,
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
				if watch {
					return errors.New("--watch shows a set of the cluster, not a file: plan NAME --watch")
				}
				return o.planFile(cmd.Context(), file, out)
			}
			name, err := oneSet(cmd, args)
			if err != nil {
				return err
			}
			return o.about(cmd.Context(), name, out, watch, func(s lws.Survey) reporter { return render.Plan(s) })
		},
	}
	out = newOutput(cmd)
	cmd.Flags().StringVarP(&file, "filename", "f", "", "`file` with LeaderWorkerSets, in YAML or JSON; - is standard input")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show every change, in place on a terminal")
	return cmd
}

// planFile shows what would happen if the sets of a file were applied.
func (o *options) planFile(ctx context.Context, file string, out *output) error {
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	sets, skipped, err := lws.ReadManifest(file, o.In, namespace)
	if err != nil {
		return err
	}
	for _, what := range skipped {
		fmt.Fprintf(o.ErrOut, "left out: %s\n", what)
	}
	config, err := o.config()
	if err != nil {
		return err
	}
	server, err := lws.NewDryRunner(config)
	if err != nil {
		return explain(err, config.Host, namespace)
	}
	now := time.Now()
	sessions := map[string]*lws.Session{}
	plans := make([]*render.SetPlan, 0, len(sets))
	for _, set := range sets {
		session := sessions[set.GetNamespace()]
		if session == nil {
			if session, err = o.open(ctx, set.GetNamespace()); err != nil {
				return err
			}
			sessions[set.GetNamespace()] = session
		}
		plan, err := planOf(ctx, server, session, set, now)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		plan.File = file
		plans = append(plans, plan)
	}
	var shown reporter = render.Plans(plans)
	if len(plans) == 1 {
		shown = plans[0]
	}
	text, _, err := out.print(shown, now)
	if err == nil {
		_, err = fmt.Fprint(o.Out, text)
	}
	return err
}

// planOf returns the plan for one set as the API server would store it.
func planOf(ctx context.Context, server *lws.DryRunner, session *lws.Session, file *unstructured.Unstructured, now time.Time) (*render.SetPlan, error) {
	set, warnings, err := server.Apply(ctx, file)
	if err != nil {
		return nil, explainWrite(err, "", types.NamespacedName{Namespace: file.GetNamespace()})
	}
	found, err := session.As(ctx, set, now)
	if err != nil {
		return nil, explain(err, "", set.Namespace)
	}
	plan := render.Plan(found)
	plan.Warnings = warnings
	return plan, nil
}
