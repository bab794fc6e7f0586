package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/cli/argument"
	"lockstep.dev/lockstep/internal/cli/consequence"
	"lockstep.dev/lockstep/internal/cli/fleet"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/cli/render"
)

func (o *options) statusCommand() *cobra.Command {
	var watch, tree bool
	var asked fleet.Question
	cmd := describe("status")
	out := o.addOutput(cmd, fleet.Formats...)
	addWatch(cmd, &watch)
	asked.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&tree, "tree", false, "show the set, its groups, their pods and nodes as a tree")
	cmd.ValidArgsFunction = o.completion(argument.GroupNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asked.Format = *out.format.OutputFormat
		if _, err := asked.Selector(len(args) > 0); err != nil {
			return err
		}
		if len(args) == 0 && !tree {
			return o.fleet(cmd.Context(), out, watch, asked)
		}
		names, err := setNames(cmd, args, 2)
		if err == nil && (tree || len(names) > 1) {
			return o.detailed(cmd.Context(), names, tree, out, watch)
		}
		return o.about(cmd, args, out, watch, func(s lws.Survey) page.Report { return render.Status(s) })
	}
	return cmd
}

func addWatch(cmd *cobra.Command, watch *bool) {
	cmd.Flags().BoolVarP(watch, "watch", "w", false, "show every change, in place on a terminal")
}

// about prints a report on one set, or with watch every change of it.
func (o *options) about(cmd *cobra.Command, args []string, out *output, watch bool, report func(lws.Survey) page.Report) error {
	names, err := setNames(cmd, args, 1)
	if err != nil {
		return err
	}
	return o.show(cmd.Context(), names[0], out, watch, func(_ *session, s lws.Survey) (page.Report, error) { return report(s), nil })
}

// show prints a report that may read more than the survey of the set.
func (o *options) show(ctx context.Context, name string, out *output, watch bool, report func(*session, lws.Survey) (page.Report, error)) error {
	session, err := o.session(ctx)
	if err != nil {
		return err
	}
	key, seen := session.key(name), false
	gone := fmt.Sprintf("leaderworkerset %s in namespace %s is gone; waiting for a new one\n", key.Name, key.Namespace)
	return out.show(ctx, session.Session, watch, gone, func() (page.Report, error) {
		found, err := session.Set(ctx, key, o.now())
		switch {
		case apierrors.IsNotFound(err) && seen:
			return nil, nil
		case apierrors.IsNotFound(err):
			return nil, noSuch("leaderworkerset", key)
		case err != nil:
			return nil, session.explain(err, readSets)
		}
		seen = true
		return report(session, found)
	})
}

func (o *options) planCommand() *cobra.Command {
	var watch bool
	var of planned
	cmd := describe("plan")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		names, err := argument.Sets.Names(args)
		switch {
		case err != nil:
			return err
		case (len(names) == 1) == (of.file != ""), len(names) > 1:
			return errors.New("give either the name of one LeaderWorkerSet or a file: plan NAME, or plan -f FILE")
		case watch && of.file != "":
			return errors.New("--watch shows a set of the cluster, not a file: plan NAME --watch")
		case (of.writes || of.values) && of.file == "":
			return errors.New("--writes and --show-values are for a file: plan -f FILE")
		}
		return nil
	}
	out := o.addOutput(cmd)
	cmd.Flags().StringVarP(&of.file, "filename", "f", "", "`file` with LeaderWorkerSets, in YAML or JSON; - is standard input")
	cmd.Flags().BoolVar(&of.writes, "writes", false, "with -f, show what the operator would write now as well")
	cmd.Flags().BoolVar(&of.values, "show-values", false, "with -f, show changed values of env, and what names Secrets")
	addWatch(cmd, &watch)
	o.completeNames(cmd, 1, argument.Sets)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if of.file != "" {
			return o.planFile(cmd.Context(), of, out)
		}
		return o.about(cmd, args, out, watch, func(s lws.Survey) page.Report { return render.Plan(s) })
	}
	return cmd
}

// planned is a file whose plan is shown, and how.
type planned struct {
	file           string
	writes, values bool
}

// planFile shows what would happen if the sets of a file were applied.
func (o *options) planFile(ctx context.Context, of planned, out *output) error {
	manifests, skipped, err := lws.ReadManifest(of.file, o.In)
	if err != nil {
		return err
	}
	for _, what := range skipped {
		fmt.Fprintf(o.ErrOut, "left out: %s\n", what)
	}
	c, err := o.reach(ctx)
	if err != nil {
		return err
	}
	list := &render.SetPlanList{TypeMeta: page.Kind("SetPlanList")}
	for _, manifest := range manifests {
		if manifest.GetNamespace() == "" {
			manifest.SetNamespace(c.namespace)
		}
		plan, err := c.planOf(ctx, manifest, of)
		if err != nil {
			return fmt.Errorf("%s: %w", of.file, err)
		}
		list.Items = append(list.Items, *plan)
	}
	if len(list.Items) == 1 {
		return out.print(&list.Items[0])
	}
	return out.print(list)
}

// planOf returns the plan for one set as the API server would store it, and what that does.
func (c *cluster) planOf(ctx context.Context, manifest *unstructured.Unstructured, of planned) (*render.SetPlan, error) {
	session, err := c.open(ctx, manifest.GetNamespace())
	if err != nil {
		return nil, err
	}
	set, warnings, err := lws.Apply(ctx, c.config, manifest)
	if err != nil {
		return nil, c.explain(err, writeSets)
	}
	stored, err := session.Set(ctx, client.ObjectKeyFromObject(set), c.now())
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, c.explain(err, readSets)
	}
	found, err := session.As(ctx, set, c.now())
	if err != nil {
		return nil, c.explain(err, readSets)
	}
	does := consequence.OfSet(stored, found, of.values)
	if does.Peak != nil {
		nodes, pods, err := session.Room(ctx)
		does.Fit(nodes.Items, pods.Items, err)
	}
	plan := render.Plan(found)
	plan.File, plan.Warnings, plan.Consequences, plan.HidesWrites = of.file, warnings, does, !of.writes
	return plan, nil
}
