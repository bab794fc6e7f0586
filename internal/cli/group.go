package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/argument"
	"lockstep.dev/lockstep/internal/cli/cluster"
	"lockstep.dev/lockstep/internal/cli/group"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/node"
	"lockstep.dev/lockstep/internal/cli/operate"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// groupsOf returns the group that is named after the set, or all groups.
func groupsOf(found lws.Survey, names []string) ([]lws.Group, error) {
	if len(names) < 2 {
		return found.Groups, nil
	}
	g, err := group.Find(found, names[1])
	return []lws.Group{g}, err
}

// podsCommand returns a command about the pods of a set, of one group, or of one worker: so many names at least and at most.
func (o *options) podsCommand(name string, least, most int, of operate.Command) *cobra.Command {
	cmd := describe(name)
	of.Flags(cmd.Flags())
	cmd.ValidArgsFunction = o.completion(argument.GroupNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t := &operate.Target{IOStreams: o.raw, HasColours: o.showsColours()}
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			args, t.Command = args[:dash], args[dash:]
		}
		names, err := setNames(cmd, args, least, most)
		if err != nil {
			return err
		}
		session, err := o.Session(cmd.Context())
		if err != nil {
			return err
		}
		found, err := session.Survey(cmd.Context(), session.Key(names[0]))
		if err != nil {
			return err
		}
		groups, err := groupsOf(found, names)
		if err != nil {
			return err
		}
		if most > 2 && len(names) < 3 {
			names = append(names, workload.LeaderIndex)
		}
		for _, pod := range group.PodsOf(found, groups...) {
			if len(names) < 3 || pod.Labels[lwsv1.WorkerIndexLabelKey] == names[2] {
				t.Pods = append(t.Pods, pod)
			}
		}
		if len(t.Pods) == 0 {
			return fmt.Errorf("there is no such pod; kubectl lockstep status %s -n %s shows what a group waits for", names[0], session.Namespace)
		}
		t.Config = session.Config
		return session.Explain(of.Run(cmd.Context(), t), operate.Needs)
	}
	return cmd
}

func (o *options) eventsCommand() *cobra.Command {
	var watch bool
	cmd := describe("events")
	out := o.addOutput(cmd)
	addWatch(cmd, &watch)
	cmd.ValidArgsFunction = o.completion(argument.GroupNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names, err := setNames(cmd, args, 1, 2)
		if err != nil {
			return err
		}
		return o.detailed(cmd.Context(), names, out, watch, false, true, func(s lws.Survey, d lws.Details, groups []lws.Group) page.Report {
			return group.EventsOf(s, d, len(names) < 2, groups...)
		})
	}
	return cmd
}

// detailed reports on groups, with nodes and events if they are asked for.
func (o *options) detailed(ctx context.Context, names []string, out *output, watch, hasNodes, hasEvents bool, report func(lws.Survey, lws.Details, []lws.Group) page.Report) error {
	var d lws.Details
	return o.show(ctx, names[0], out, watch, func(s *cluster.Session, found lws.Survey) (page.Report, error) {
		groups, err := groupsOf(found, names)
		if err != nil {
			return nil, err
		}
		of := map[bool]string{true: s.Namespace}
		on := map[bool][]*corev1.Pod{true: group.PodsOf(found, groups...)}
		d = s.Details(ctx, d, on[hasNodes], of[hasEvents])
		return report(found, d, groups), nil
	})
}

func (o *options) nodeCommand() *cobra.Command {
	cmd := describe("node")
	out := o.addOutput(cmd)
	o.completeNames(cmd, many, argument.Nodes)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names, err := argument.Nodes.Names(args)
		if err != nil {
			return err
		}
		c, live, err := o.Client(cmd.Context())
		if err != nil {
			return err
		}
		opened := map[string]*cluster.Session{}
		drain, err := node.Read(cmd.Context(), live, names, func(set types.NamespacedName) (found lws.Survey, err error) {
			if opened[set.Namespace] == nil {
				session, err := c.Open(cmd.Context(), set.Namespace)
				if err != nil {
					return found, err
				}
				opened[set.Namespace] = session
			}
			return opened[set.Namespace].Set(cmd.Context(), set, c.Now())
		})
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("not allowed: %w; ask for a role that may %s", err, node.Right)
		}
		if err != nil {
			return err
		}
		return out.print(drain)
	}
	return cmd
}
