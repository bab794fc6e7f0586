package cli

import (
	"context"
	"fmt"
	"time"

	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/render"
)

// beat is how often ages on a terminal are brought up to date.
const beat = time.Second

// view returns the text to show now, and a key that changes with its content.
type view func(ctx context.Context, now time.Time) (text, key string, err error)

// show prints a view once, or again with every change until ctx ends.
func (o *options) show(ctx context.Context, session *lws.Session, out *output, watch bool, see view) error {
	page := render.NewScreen(o.Out, out.between())
	for {
		text, key, err := see(ctx, time.Now())
		if err != nil {
			return ended(ctx, err)
		}
		if !watch {
			_, err := fmt.Fprint(o.Out, text)
			return err
		}
		period := time.Duration(0)
		if page.InPlace() {
			period = beat
		}
		if err := page.Show(text, key); err != nil {
			return err
		}
		if err := session.Await(period); err != nil {
			return ended(ctx, err)
		}
	}
}

// ended returns no error if the user ended the command.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
