package cli

import (
	"context"
	"fmt"
	"time"

	"lockstep.dev/lockstep/internal/cli/screen"
	"lockstep.dev/lockstep/internal/cli/survey"
)

// beat is how often ages on a terminal are brought up to date.
const beat = time.Second

// view returns the text to show now, and a key that changes with its content.
type view func(ctx context.Context, now time.Time) (text, key string, err error)

// show prints a view once, or again with every change until ctx ends.
func (o *options) show(ctx context.Context, session *survey.Session, out *output, watch bool, see view) error {
	page := screen.New(o.Out, out.between())
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
		if note := stale(session); page.InPlace() {
			text, period = text+note, beat
		} else {
			fmt.Fprint(o.ErrOut, note)
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

// stale says that the API server does not answer, or is empty.
func stale(session *survey.Session) string {
	if err := session.Trouble(); err != nil {
		return fmt.Sprintf("what is shown may be old, trying again: %v\n", err)
	}
	return ""
}
