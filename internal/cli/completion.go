package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lwscache"
)

// completeWithin bounds how long a request of a completion keeps a shell.
const completeWithin = time.Second

// suggest returns what may stand after the arguments of a command line. An error suggests nothing.
type suggest func(ctx context.Context, c *cluster, live client.Client, args []string, typed string) []string

// completion returns a completion of the shell from the cluster.
func (o *options) completion(find suggest) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (found []string, _ cobra.ShellCompDirective) {
		*o.flags.Timeout = completeWithin.String() // discovery knows no context
		ctx, done := context.WithTimeout(cmd.Context(), completeWithin)
		defer done()
		if c, live, err := o.client(ctx); err == nil {
			found = find(ctx, c, live, args, typed)
		}
		isOther := func(one string) bool { return !strings.HasPrefix(one, typed) }
		return slices.DeleteFunc(found, isOther), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNames completes the arguments of a command: names of kinds, no more than most.
func (o *options) completeNames(cmd *cobra.Command, most int, kinds ...kind) {
	cmd.ValidArgsFunction = o.completion(func(ctx context.Context, c *cluster, live client.Client, args []string, typed string) (all []string) {
		for _, k := range kinds {
			all = append(all, k.fit(args, typed, k.list(ctx, live, c.namespace), most)...)
		}
		return all
	})
}

// completeFlag completes the values of a flag.
func (o *options) completeFlag(cmd *cobra.Command, flag string, find suggest) {
	if err := cmd.RegisterFlagCompletionFunc(flag, o.completion(find)); err != nil {
		panic(err) // the flag does not exist
	}
}

// fit returns names as arguments, in the form that is typed.
func (k kind) fit(args []string, typed string, names []string, most int) (all []string) {
	said := len(args) > 0 && k.known(args[0])
	given, err := k.names(args)
	if err != nil || len(given) >= most && (!said || len(args) != 1) {
		return nil
	}
	prefix := ""
	if word, _, slashed := strings.Cut(typed, "/"); slashed && k.known(word) {
		prefix = word + "/"
	} else if !k.bare && !said {
		prefix = k.words[0] + "/"
	}
	for _, name := range names {
		if !slices.Contains(given, name) {
			all = append(all, prefix+name)
		}
	}
	return all
}

// list reads the names of objects; those of namespaces everywhere.
func (k kind) list(ctx context.Context, live client.Client, namespace string) (names []string) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(k.gvk)
	_ = live.List(ctx, list, client.InNamespace(namespace))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// revisionNumbers suggests the revisions of the set that is named, with their keys.
func revisionNumbers(ctx context.Context, c *cluster, live client.Client, args []string, _ string) (numbers []string) {
	set := &lwsv1.LeaderWorkerSet{}
	names, _ := sets.names(args)
	if len(names) == 0 || live.Get(ctx, c.key(names[0]), set) != nil {
		return nil
	}
	revisions, _ := lwscache.Revisions(ctx, live, set)
	for _, r := range revisions {
		numbers = append(numbers, fmt.Sprintf("%d\t%s", r.Revision, r.Labels[lwsv1.RevisionKey]))
	}
	return numbers
}
