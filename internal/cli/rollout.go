package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
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

// chosen are the sets of a command: those named, or those selected by labels.
type chosen struct {
	names    []string
	selector string
}

// choose adds the names and --selector to a command.
func (o *options) choose(cmd *cobra.Command) *chosen {
	c := &chosen{}
	cmd.Flags().StringVarP(&c.selector, "selector", "l", "", "`labels` of the sets, in place of names: -l key1=value1,key2=value2")
	cmd.ValidArgsFunction = o.complete(sets)
	cmd.Args = func(cmd *cobra.Command, args []string) (err error) {
		c.names, err = sets.names(args)
		switch {
		case err != nil:
			return err
		case len(args) == 0 && c.selector == "":
			return fmt.Errorf("give the name of a LeaderWorkerSet: %s NAME; list them with: kubectl get leaderworkersets", cmd.CommandPath())
		case len(args) > 0 && c.selector != "":
			return errors.New("give either names or --selector")
		}
		return nil
	}
	return c
}

// find returns the named sets, or those with the labels.
func (c *cluster) find(ctx context.Context, which *chosen, reader client.Reader) (keys []types.NamespacedName, err error) {
	for _, name := range which.names {
		keys = append(keys, c.key(name))
	}
	if which.selector == "" {
		return keys, nil
	}
	selector, err := labels.Parse(which.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSetList"))
	if err := reader.List(ctx, list, client.InNamespace(c.namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, c.explain(err, readSets)
	}
	for i := range list.Items {
		keys = append(keys, c.key(list.Items[i].Name))
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("no leaderworkerset in namespace %q has the labels %s", c.namespace, which.selector)
	}
	return keys, nil
}

// openSets starts to read the namespace, and finds the sets.
func (o *options) openSets(ctx context.Context, which *chosen) (*session, []types.NamespacedName, error) {
	session, err := o.session(ctx)
	if err != nil {
		return nil, nil, err
	}
	keys, err := session.find(ctx, which, session.Live)
	return session, keys, err
}

// oneSet returns the one set that the arguments name.
func oneSet(cmd *cobra.Command, args []string) (string, error) {
	names, err := sets.names(args)
	if err != nil {
		return "", err
	}
	if len(names) != 1 {
		return "", fmt.Errorf("give the name of one LeaderWorkerSet: %s NAME; list them with: kubectl get leaderworkersets", cmd.CommandPath())
	}
	return names[0], nil
}

// notNegative refuses the negative value of a flag.
func notNegative[T ~int64](flag string, value T) error {
	if value < 0 {
		return fmt.Errorf("%s %v: it must not be negative", flag, value)
	}
	return nil
}

// each runs do for each set, and goes on to the others when one fails.
func each(keys []types.NamespacedName, do func(types.NamespacedName) error) error {
	var all []error
	for _, key := range keys {
		all = append(all, do(key))
	}
	return errors.Join(all...)
}
