package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/argument"
	"lockstep.dev/lockstep/internal/cli/cluster"
	"lockstep.dev/lockstep/internal/cli/consequence"
	"lockstep.dev/lockstep/internal/cli/disaggregated"
	"lockstep.dev/lockstep/internal/cli/fleet"
	"lockstep.dev/lockstep/internal/cli/group"
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
	cmd.ValidArgsFunction = o.completion(argument.SetNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asked.Format = *out.format.OutputFormat
		if _, err := asked.Selector(len(args) > 0); err != nil {
			return err
		}
		if len(args) == 0 && !tree {
			return o.fleet(cmd.Context(), out, watch, asked)
		}
		noun, names, err := setsOf(cmd, args, 1, 2)
		switch {
		case err != nil:
			return err
		case tree && (len(names) > 1 || out.printer != nil || noun == disaggregated.Noun):
			return errors.New("--tree shows all groups of a LeaderWorkerSet, as text: leave out GROUP and --output")
		case noun == disaggregated.Noun:
			return o.showSet(cmd.Context(), noun, names[0], out, watch, disaggregated.Read(cmd.Context(), disaggregated.Status))
		case tree || len(names) > 1:
			return o.detailed(cmd.Context(), names, out, watch, true, !tree, func(s lws.Survey, d lws.Details, groups []lws.Group) page.Report {
				if tree {
					return &group.Tree{Survey: s, Details: d}
				}
				return group.New(s, groups[0], d)
			})
		}
		return o.show(cmd.Context(), names[0], out, watch, func(_ *cluster.Session, s lws.Survey) (page.Report, error) { return render.Status(s), nil })
	}
	return cmd
}

// fleet prints all sets, or with watch every change of them.
func (o *options) fleet(ctx context.Context, out *output, watch bool, asked fleet.Question) error {
	c, err := o.Reach(ctx)
	if err != nil {
		return err
	}
	if asked.Namespace = c.Namespace; asked.Everywhere {
		c.Namespace = ""
	}
	session, err := c.Open(ctx, c.Namespace)
	if err != nil {
		return err
	}
	all := disaggregated.NewFleet(ctx, session)
	return out.show(ctx, session.Session, watch, "", func() (page.Report, error) {
		found, err := all.Read(ctx, asked)
		return found, c.Explain(err, cluster.ReadSets)
	})
}

func addWatch(cmd *cobra.Command, watch *bool) {
	cmd.Flags().BoolVarP(watch, "watch", "w", false, "show every change, in place on a terminal")
}

// show prints a report on one LeaderWorkerSet, or with watch every change of it. A report may read more than the survey.
func (o *options) show(ctx context.Context, name string, out *output, watch bool, report func(*cluster.Session, lws.Survey) (page.Report, error)) error {
	return o.showSet(ctx, "leaderworkerset", name, out, watch, func(s *cluster.Session, key types.NamespacedName) (page.Report, error) {
		found, err := s.Set(ctx, key, o.Now())
		if err != nil {
			return nil, err
		}
		return report(s, found)
	})
}

func (o *options) showSet(ctx context.Context, noun, name string, out *output, watch bool, report disaggregated.Reader) error {
	session, err := o.Session(ctx)
	if err != nil {
		return err
	}
	key, seen := session.Key(name), false
	gone := fmt.Sprintf("%s %s in namespace %s is gone; waiting for a new one\n", noun, key.Name, key.Namespace)
	return out.show(ctx, session.Session, watch, gone, func() (page.Report, error) {
		r, err := report(session, key)
		switch {
		case apierrors.IsNotFound(err) && seen:
			return nil, nil
		case apierrors.IsNotFound(err):
			return nil, cluster.NoSuch(noun, key)
		}
		seen = true
		return r, session.Explain(err, cluster.ReadSets)
	})
}

func (o *options) planCommand() *cobra.Command {
	var watch bool
	var of planned
	cmd := describe("plan")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		_, names, err := setsOf(cmd, args, 0, many)
		switch {
		case err != nil:
			return err
		case (len(names) == 1) == (of.file != ""), len(names) > 1:
			return errors.New("give either the name of one set or a file: plan NAME, or plan -f FILE")
		case watch && of.file != "":
			return errors.New("--watch shows a set of the cluster, not a file: plan NAME --watch")
		case (of.writes || of.values) && of.file == "":
			return errors.New("--writes and --show-values are for a file: plan -f FILE")
		}
		return nil
	}
	out := o.addOutput(cmd)
	cmd.Flags().StringVarP(&of.file, "filename", "f", "", "`file` with sets, in YAML or JSON; - is standard input")
	cmd.Flags().BoolVar(&of.writes, "writes", false, "with -f, show what the operator would write now as well")
	cmd.Flags().BoolVar(&of.values, "show-values", false, "with -f, show changed values of env, and what names Secrets")
	addWatch(cmd, &watch)
	o.completeNames(cmd, 1, argument.Sets, argument.DisaggregatedSets)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if of.file != "" {
			return o.planFile(cmd.Context(), of, out)
		}
		noun, names, _ := setsOf(cmd, args, 1, many)
		if noun == disaggregated.Noun {
			return o.showSet(cmd.Context(), noun, names[0], out, watch, disaggregated.Read(cmd.Context(), disaggregated.Plan))
		}
		return o.show(cmd.Context(), names[0], out, watch, func(_ *cluster.Session, s lws.Survey) (page.Report, error) { return render.Plan(s), nil })
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
	c, err := o.Reach(ctx)
	if err != nil {
		return err
	}
	list := &render.SetPlanList{TypeMeta: page.Kind("SetPlanList")}
	for _, manifest := range manifests {
		if manifest.GetNamespace() == "" {
			manifest.SetNamespace(c.Namespace)
		}
		plan, err := page.Report(nil), error(nil)
		if argument.DisaggregatedSets.Knows(manifest.GetKind()) {
			plan, err = disaggregated.PlanFile(ctx, c, manifest, of.file)
		} else {
			plan, err = o.planOf(ctx, c, manifest, of)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", of.file, err)
		}
		list.Items = append(list.Items, plan)
	}
	if len(list.Items) == 1 {
		return out.print(list.Items[0])
	}
	return out.print(list)
}

// planOf returns the plan for one set as the API server would store it, and what that does.
func (o *options) planOf(ctx context.Context, c *cluster.Cluster, manifest *unstructured.Unstructured, of planned) (*render.SetPlan, error) {
	session, err := c.Open(ctx, manifest.GetNamespace())
	if err != nil {
		return nil, err
	}
	set, warnings, err := lws.Apply[lwsv1.LeaderWorkerSet](ctx, c.Config, manifest)
	if err != nil {
		return nil, c.Explain(err, cluster.WriteSets)
	}
	stored, err := session.Set(ctx, client.ObjectKeyFromObject(set), c.Now())
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, c.Explain(err, cluster.ReadSets)
	}
	found, err := session.As(ctx, set, c.Now())
	if err != nil {
		return nil, c.Explain(err, cluster.ReadSets)
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
