package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/cli/argument"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/node"
	"lockstep.dev/lockstep/internal/cli/operate"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// askGroups is what requests must be allowed to do.
const askGroups = "get leaderworkersets, and list and patch pods"

// groupArgs reads the name of a set, and what follows: as many texts as there may be, of which the last ones may be empty.
func groupArgs(cmd *cobra.Command, args []string, least, most int) (name string, rest []string, err error) {
	name, rest, err = argument.Sets.First(args)
	if err != nil || len(rest) < least || len(rest) > most {
		return "", nil, fmt.Errorf("expected: %s; kubectl lockstep status NAME lists the groups of a set", cmd.UseLine())
	}
	return name, append(slices.Clip(rest), make([]string, most-len(rest))...), nil // what follows two dashes stays
}

// explainGroup explains an error about a set and its pods. A log that is not there is no missing set.
func (c *cluster) explainGroup(err error, set types.NamespacedName, needs string) error {
	status := apierrors.APIStatus(nil)
	if apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details.Kind == argument.Sets.Words[2] {
		return noSuch("leaderworkerset", set)
	}
	return c.explain(err, needs)
}

// requestCommand returns a command that asks for a group by an annotation of its leader.
func (o *options) requestCommand(name string, request lws.Request) *cobra.Command {
	cmd := describe(name)
	a := o.addAmendment(cmd)
	cmd.ValidArgsFunction = o.completion(argument.GroupNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		set, rest, err := groupArgs(cmd, args, 1, 1)
		if err != nil {
			return err
		}
		c, editor, err := a.editor(cmd.Context())
		if err != nil {
			return err
		}
		leader, err := editor.Ask(cmd.Context(), c.key(set), rest[0], request)
		if err != nil {
			return c.explainGroup(err, c.key(set), askGroups)
		}
		return a.print(fmt.Sprintf("asks to %s group %s", name, rest[0]), leader)
	}
	return cmd
}

// groupCommand returns a command about the pods of a set: least to most arguments name a group, and a worker.
func (o *options) groupCommand(name string, least, most int, of operate.Command) *cobra.Command {
	cmd := describe(name)
	of.Flags(cmd.Flags())
	cmd.ValidArgsFunction = o.completion(argument.GroupNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t := &operate.Target{
			In: o.In, Raw: o.stdout, Out: o.forPrograms(), ErrOut: o.ErrOut, Print: (&output{options: o}).print, HasColours: o.showsColours(),
		}
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			args, t.Command = args[:dash], args[dash:]
		}
		set, rest, err := groupArgs(cmd, args, least, most)
		if err != nil {
			return err
		}
		c, live, err := o.client(cmd.Context())
		if err != nil {
			return err
		}
		t.Config, t.Live, t.Set, t.Name = c.config, live, c.key(set), rest[0]
		if most > 1 {
			t.Worker = cmp.Or(rest[1], workload.LeaderIndex)
		}
		return c.explainGroup(of.Run(cmd.Context(), t), t.Set, of.Needs())
	}
	return cmd
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
		c, live, err := o.client(cmd.Context())
		if err != nil {
			return err
		}
		drain, err := node.Read(cmd.Context(), live, names, c.surveys(cmd.Context()))
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

// surveys returns what reads sets of any namespace: each namespace once.
func (c *cluster) surveys(ctx context.Context) func(types.NamespacedName) (lws.Survey, error) {
	opened := map[string]*session{}
	return func(set types.NamespacedName) (lws.Survey, error) {
		if opened[set.Namespace] == nil {
			s, err := c.open(ctx, set.Namespace)
			if err != nil {
				return lws.Survey{}, err
			}
			opened[set.Namespace] = s
		}
		return opened[set.Namespace].Set(ctx, set, c.now())
	}
}
