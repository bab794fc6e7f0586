package cli

import (
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
)

func (o *options) rolloutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Follow, undo, restart, pause and resume rollouts, as kubectl rollout does",
		Long: `Follow, undo, restart, pause and resume the rollouts of LeaderWorkerSets, as kubectl rollout does
for Deployments. Name a set as NAME, lws/NAME or leaderworkerset/NAME. status, history and diff only read.
The others change the set in one write.`,
		Example: `  kubectl lockstep rollout status llama
  kubectl lockstep rollout history llama
  kubectl lockstep rollout diff llama
  kubectl lockstep rollout undo llama --to-revision=3
  kubectl lockstep rollout restart llama
  kubectl lockstep rollout pause llama`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(o.rolloutStatusCommand(), o.rolloutHistoryCommand(), o.rolloutDiffCommand(),
		o.rolloutUndoCommand(), o.rolloutRestartCommand(), o.rolloutPauseCommand(), o.rolloutResumeCommand())
	return cmd
}

// many is no limit on names.
const many = math.MaxInt

// setNames returns the sets that the arguments name: at least one, and no more than most.
func setNames(cmd *cobra.Command, args []string, most int) ([]string, error) {
	names, err := sets.names(args)
	if err == nil && (len(names) == 0 || len(names) > most) {
		err = fmt.Errorf("expected: %s; list LeaderWorkerSets with: kubectl get leaderworkersets", cmd.UseLine())
	}
	return names, err
}

// notNegative refuses the negative value of a flag.
func notNegative[T ~int64](flag string, value T) error {
	if value < 0 {
		return fmt.Errorf("%s %v: it must not be negative", flag, value)
	}
	return nil
}

// each runs do for each named object, and goes on to the others when one fails.
func (c *cluster) each(names []string, do func(types.NamespacedName) error) error {
	var all []error
	for _, name := range names {
		all = append(all, do(c.key(name)))
	}
	return errors.Join(all...)
}
