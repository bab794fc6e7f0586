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
	"lockstep.dev/lockstep/internal/cli/lws"
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
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(o.rolloutStatusCommand(), o.rolloutHistoryCommand(), o.rolloutDiffCommand(),
		o.rolloutUndoCommand(), o.rolloutRestartCommand(), o.rolloutPauseCommand(), o.rolloutResumeCommand())
	return cmd
}

// unknownVerb returns the error that there is no such command below one.
func unknownVerb(cmd *cobra.Command, verb string) error {
	meant := "; see"
	cmd.SuggestionsMinimumDistance = 2
	if close := cmd.SuggestionsFor(verb); len(close) > 0 {
		meant = "; did you mean " + close[0] + "? see"
	}
	return fmt.Errorf("unknown command %q%s: %s --help", verb, meant, cmd.CommandPath())
}

// chosen are the sets of a command: those named, or those selected by labels.
type chosen struct {
	names    []string
	selector string
}

func (c *chosen) flag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&c.selector, "selector", "l", "", "`labels` of the sets, in place of names: -l key1=value1,key2=value2")
}

// args reads the names.
func (c *chosen) args(cmd *cobra.Command, args []string) error {
	names, err := sets.names(args)
	switch {
	case err != nil:
		return err
	case len(names) == 0 && c.selector == "":
		return fmt.Errorf("give the name of a LeaderWorkerSet: %s NAME; list them with: kubectl get leaderworkersets", cmd.CommandPath())
	case len(names) > 0 && c.selector != "":
		return errors.New("give either names or --selector")
	}
	c.names = names
	return nil
}

// find returns the named sets, or those with the labels.
func (c *chosen) find(ctx context.Context, reader client.Reader, namespace string) ([]types.NamespacedName, error) {
	var keys []types.NamespacedName
	for _, name := range c.names {
		keys = append(keys, types.NamespacedName{Namespace: namespace, Name: name})
	}
	if c.selector == "" {
		return keys, nil
	}
	selector, err := labels.Parse(c.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSetList"))
	if err := reader.List(ctx, list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("no leaderworkerset in namespace %q has the labels %s", namespace, c.selector)
	}
	for i := range list.Items {
		keys = append(keys, types.NamespacedName{Namespace: namespace, Name: list.Items[i].Name})
	}
	return keys, nil
}

// openSets starts to read the namespace, and finds the sets.
func (o *options) openSets(ctx context.Context, which chosen) (*lws.Session, []types.NamespacedName, error) {
	namespace, err := o.namespace()
	if err != nil {
		return nil, nil, err
	}
	session, err := o.open(ctx, namespace)
	if err != nil {
		return nil, nil, err
	}
	keys, err := which.find(ctx, session.Live, namespace)
	return session, keys, explain(err, "", namespace)
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

// onlyOneSet refuses arguments that name no set or several.
func onlyOneSet(cmd *cobra.Command, args []string) error {
	_, err := oneSet(cmd, args)
	return err
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
		if err := do(key); err != nil {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// completeSeveral offers sets that the arguments do not name yet.
func (o *options) completeSeveral(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	namespace, err := o.namespace()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names, directive := o.names(cmd.Context(), lwsv1.GroupVersion.WithResource("leaderworkersets"), namespace)
	return sets.offers(names, args, typed), directive
}

// completeOne offers sets until one is named.
func (o *options) completeOne(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 || len(args) == 1 && !sets.known(args[0]) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.completeSeveral(cmd, nil, typed)
}
