package cli

import (
	"context"
	"errors"

	"lockstep.dev/lockstep/internal/cli/group"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
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
