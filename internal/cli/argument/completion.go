package argument

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/lwscache"
)

// completer is the program that kubectl runs for completions.
const completer = "kubectl_complete-lockstep"

// Args returns the arguments of the command. kubectl asks for completions under another program name.
func Args(argv []string) []string {
	if filepath.Base(argv[0]) == completer {
		return append([]string{cobra.ShellCompRequestCmd}, argv[1:]...)
	}
	return argv[1:]
}

// CompleteWithin bounds how long a request of a completion keeps a shell.
const CompleteWithin = time.Second

// Cluster is where completions look for names.
type Cluster struct {
	client.Reader
	Namespace string
}

// Suggest returns what may stand after the arguments of a command line. An error suggests nothing.
type Suggest func(ctx context.Context, c Cluster, args []string, typed string) []string

// Completion returns a completion of the shell from the cluster.
func Completion(reach func(context.Context) (Cluster, error), find Suggest) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (found []string, _ cobra.ShellCompDirective) {
		ctx, done := context.WithTimeout(cmd.Context(), CompleteWithin)
		defer done()
		if c, err := reach(ctx); err == nil {
			found = find(ctx, c, args, typed)
		}
		isOther := func(one string) bool { return !strings.HasPrefix(one, typed) }
		return slices.DeleteFunc(found, isOther), cobra.ShellCompDirectiveNoFileComp
	}
}

// NamesOf suggests names of kinds, no more than most.
func NamesOf(most int, kinds ...Kind) Suggest {
	return func(ctx context.Context, c Cluster, args []string, typed string) (all []string) {
		for _, k := range kinds {
			all = append(all, k.Fit(args, typed, k.List(ctx, c, c.Namespace), most)...)
		}
		return all
	}
}

// GroupNames suggests the names of sets, and then those of the set's groups.
func GroupNames(ctx context.Context, c Cluster, args []string, typed string) []string {
	found := Sets.Fit(args, typed, Sets.List(ctx, c, c.Namespace), 1)
	names, _ := Sets.Names(args)
	if len(found) > 0 || len(names) != 1 {
		return found
	}
	leaders := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	_ = c.List(ctx, leaders, client.InNamespace(c.Namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: names[0], lwsv1.WorkerIndexLabelKey: workload.LeaderIndex})
	for i := range leaders.Items {
		found = append(found, workload.Of(&leaders.Items[i]).Name())
	}
	return found
}

// SetNames suggests what GroupNames does, and DisaggregatedSets.
func SetNames(ctx context.Context, c Cluster, args []string, typed string) []string {
	return append(GroupNames(ctx, c, args, typed), NamesOf(1, DisaggregatedSets)(ctx, c, args, typed)...)
}

// RevisionNumbers suggests the revisions of the set that is named, with their keys.
func RevisionNumbers(ctx context.Context, c Cluster, args []string, _ string) (numbers []string) {
	set := &lwsv1.LeaderWorkerSet{}
	names, _ := Sets.Names(args)
	if len(names) == 0 || c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: names[0]}, set) != nil {
		return nil
	}
	revisions, _ := lwscache.Revisions(ctx, c, set)
	for _, r := range revisions {
		numbers = append(numbers, fmt.Sprintf("%d\t%s", r.Revision, r.Labels[lwsv1.RevisionKey]))
	}
	return numbers
}
