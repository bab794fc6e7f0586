package cli

import (
	"context"

	"lockstep.dev/lockstep/internal/cli/fleet"
	"lockstep.dev/lockstep/internal/cli/page"
)

// fleet prints all sets, or with watch every change of them.
func (o *options) fleet(ctx context.Context, out *output, watch bool, asked fleet.Question) error {
	c, err := o.reach(ctx)
	if err != nil {
		return err
	}
	if asked.Namespace = c.namespace; asked.Everywhere {
		c.namespace = ""
	}
	session, err := c.open(ctx, c.namespace)
	if err != nil {
		return err
	}
	return out.show(ctx, session.Session, watch, "", func() (page.Report, error) {
		found, err := session.Fleet(ctx, asked, o.now())
		return found, c.explain(err, readSets)
	})
}
