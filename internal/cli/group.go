package cli

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/group"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// detailed reports on the group that the second name names, or on all groups as a tree: with their nodes, and events.
func (o *options) detailed(ctx context.Context, names []string, tree bool, out *output, watch bool) error {
	if tree && (len(names) > 1 || out.printer != nil) {
		return errors.New("--tree shows all groups of a set, as text: leave out GROUP and --output")
	}
	var d lws.Details
	return o.show(ctx, names[0], out, watch, func(s *session, found lws.Survey) (page.Report, error) {
		if tree {
			d = s.Details(ctx, d, group.PodsOf(found, found.Groups...), "")
			return &group.Tree{Survey: found, Details: d}, nil
		}
		g, err := group.Find(found, names[1])
		if err != nil {
			return nil, err
		}
		d = s.Details(ctx, d, group.PodsOf(found, g), s.namespace)
		return group.New(found, g, d), nil
	})
}

// groupNames suggests the names of sets, and then those of the set's groups.
func groupNames(ctx context.Context, c *cluster, live client.Client, args []string, typed string) []string {
	found := sets.fit(args, typed, sets.list(ctx, live, c.namespace), 1)
	names, _ := sets.names(args)
	if len(found) > 0 || len(names) != 1 {
		return found
	}
	leaders := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	_ = live.List(ctx, leaders, client.InNamespace(c.namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: names[0], lwsv1.WorkerIndexLabelKey: "0"})
	for i := range leaders.Items {
		found = append(found, workload.Of(&leaders.Items[i]).Name())
	}
	return found
}
