package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lwscache"
)

// completeWithin bounds how long a completion keeps a shell. An error completes nothing.
const completeWithin = 2 * time.Second

// suggest returns what may stand in a command line after its arguments, read from the cluster.
type suggest func(ctx context.Context, c *cluster, live client.Client, args []string, typed string) ([]string, error)

// completion returns a completion of the shell that begins with what is typed.
func (o *options) completion(find suggest) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		ctx, done := context.WithTimeout(cmd.Context(), completeWithin)
		defer done()
		answer := make(chan []string, 1)
		go func() { // discovery, and plugins that log in, know no context
			var found []string
			if c, live, err := o.client(ctx); err == nil {
				found, _ = find(ctx, c, live, args, typed)
			}
			answer <- slices.DeleteFunc(found, func(one string) bool { return !strings.HasPrefix(one, typed) })
		}()
		select {
		case found := <-answer:
			return found, cobra.ShellCompDirectiveNoFileComp
		case <-ctx.Done():
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

// completeNames completes the arguments of a command: names of kinds, no more than most.
func (o *options) completeNames(cmd *cobra.Command, most int, kinds ...kind) {
	cmd.ValidArgsFunction = o.completion(func(ctx context.Context, c *cluster, live client.Client, args []string, typed string) (all []string, err error) {
		for _, k := range kinds {
			names, failed := namesOf(ctx, live, k.list.DeepCopyObject().(client.ObjectList), client.InNamespace(c.namespace))
			all, err = append(all, k.fit(args, typed, names, most)...), errors.Join(err, failed)
		}
		return all, err
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
	if err != nil || len(given) >= most && !(said && len(args) == 1) {
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

// namesOf reads the names of a list.
func namesOf(ctx context.Context, live client.Reader, list client.ObjectList, options ...client.ListOption) (names []string, err error) {
	if err := live.List(ctx, list, options...); err != nil {
		return nil, err
	}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		names = append(names, o.(client.Object).GetName())
		return nil
	})
	return names, err
}

// namespaceNames suggests namespaces.
func namespaceNames(ctx context.Context, _ *cluster, live client.Client, _ []string, _ string) ([]string, error) {
	return namesOf(ctx, live, &corev1.NamespaceList{})
}

// revisionNumbers suggests the revisions of the set that is named, with their keys.
func revisionNumbers(ctx context.Context, c *cluster, live client.Client, args []string, _ string) (numbers []string, err error) {
	names, err := sets.names(args)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	set := &lwsv1.LeaderWorkerSet{}
	if err := live.Get(ctx, c.key(names[0]), set); err != nil {
		return nil, err
	}
	revisions, err := lwscache.Revisions(ctx, live, set)
	for _, r := range revisions {
		numbers = append(numbers, fmt.Sprintf("%d\t%s %s", r.Revision, r.Labels[lwsv1.RevisionKey], r.Annotations[revision.ChangeCauseAnnotationKey]))
	}
	return numbers, err
}
