package cli

import (
	"context"
	"fmt"
	"time"

	"lockstep.dev/lockstep/internal/cli/screen"
	"lockstep.dev/lockstep/internal/cli/survey"
)

const (
	// gather is how long changes are gathered before they are shown.
	gather = 150 * time.Millisecond
	// beat is how often ages on a terminal are brought up to date.
	beat = time.Second
)

// shown returns what is to be shown now.
type shown func(ctx context.Context, now time.Time) (text, key string, err error)

// show shows it once, or again with every change until ctx ends.
func (o *options) show(ctx context.Context, sessions []*survey.Session, out *output, watch bool, look shown) error {
	page := screen.New(o.Out, out.between())
	changed, lost := changes(ctx, sessions)
	for {
		text, key, err := look(ctx, time.Now())
		if err != nil {
			return ended(ctx, err)
		}
		if !watch {
			_, err := fmt.Fprint(o.Out, text)
			return err
		}
		text = o.warn(sessions, page.InPlace(), text)
		if err := page.Show(text, key); err != nil {
			return err
		}
		if err := await(ctx, changed, lost, page.InPlace()); err != nil {
			return ended(ctx, err)
		}
	}
}

// await returns when there may be something new to show.
func await(ctx context.Context, changed <-chan struct{}, lost <-chan error, beats bool) error {
	var tick <-chan time.Time
	if beats {
		timer := time.NewTimer(beat)
		defer timer.Stop()
		tick = timer.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-lost:
		return err
	case <-tick:
		return nil
	case <-changed:
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(gather):
		return nil
	}
}

// ended makes the end of watching, which the user asked for, no error.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// changes joins what sessions tell of. That one has ended is told as often as somebody
// asks: of several sets, each is waited for in its turn.
func changes(ctx context.Context, sessions []*survey.Session) (<-chan struct{}, <-chan error) {
	changed, lost := make(chan struct{}, 1), make(chan error)
	for _, session := range sessions {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-session.Ended():
					tellOf(ctx, session.Err(), lost)
					return
				case <-session.Changed:
				}
				select {
				case changed <- struct{}{}:
				default: // told already
				}
			}
		}()
	}
	return changed, lost
}

func tellOf(ctx context.Context, end error, lost chan<- error) {
	for {
		select {
		case <-ctx.Done():
			return
		case lost <- end:
		}
	}
}

// warn tells of an API server that does not answer: below what is shown in place,
// and elsewhere beside it, where programs do not read.
func (o *options) warn(sessions []*survey.Session, inPlace bool, text string) string {
	note := troubles(sessions)
	if note == "" {
		return text
	}
	if inPlace {
		return text + "\n" + note + "\n"
	}
	fmt.Fprintln(o.ErrOut, note)
	return text
}

func troubles(sessions []*survey.Session) string {
	for _, session := range sessions {
		if err := session.Trouble(); err != nil {
			return fmt.Sprintf("what is shown may be old, trying again: %v", err)
		}
	}
	return ""
}
