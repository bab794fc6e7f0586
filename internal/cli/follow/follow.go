// Package follow follows the rollouts of sets of any kind until they are done.
//
// It knows when to print, and when to give up. It refuses to know how far a rollout is: each kind of set says so.
package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/cli/cluster"
)

// Standing is how far the rollout of a set has come.
type Standing struct {
	UID        types.UID
	IsDeleting bool
	// Number is that of the revision that is rolled out, or 0 while it is unknown.
	Number int64
	// IsDone and IsFailed end the rollout, unless what was read IsStale: the user's change is newer.
	IsDone, IsFailed, IsStale bool
	// Message is one line: what the rollout waits for, or why it ended.
	Message string
}

// Rollouts are those of a kind of set.
type Rollouts struct {
	// Noun is the kind in errors.
	Noun  string
	Key   func(name string) types.NamespacedName
	Read  func(types.NamespacedName) (Standing, error)
	Await func() error
}

// Question is how rollouts are followed.
type Question struct {
	Watch    bool
	Timeout  time.Duration
	Revision int64
}

// AddFlags adds flags for all but the revision.
func (q *Question) AddFlags(to *pflag.FlagSet) {
	to.BoolVarP(&q.Watch, "watch", "w", true, "follow the rollout until it is done")
	to.DurationVar(&q.Timeout, "timeout", 0, "how long to wait; zero means for ever")
}

// Follow prints how far the rollouts of named sets are, one after the other, until each is done.
func (q *Question) Follow(ctx context.Context, out io.Writer, names []string, open func(context.Context) (*Rollouts, error)) error {
	if q.Timeout > 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeoutCause(ctx, q.Timeout, fmt.Errorf("timed out after %s", q.Timeout))
		defer done()
	}
	rollouts, err := open(ctx)
	if err != nil {
		return gaveUp(ctx, err, "reading the sets")
	}
	var all []error
	for _, name := range names {
		all = append(all, q.follow(ctx, out, rollouts, rollouts.Key(name)))
	}
	return errors.Join(all...)
}

// follow prints how far one set's rollout is until it is done.
func (q *Question) follow(ctx context.Context, out io.Writer, from *Rollouts, key types.NamespacedName) error {
	var uid types.UID
	last := fmt.Sprintf("reading %s %q", from.Noun, key.Name)
	for {
		r, err := from.Read(key)
		switch {
		case apierrors.IsNotFound(err) && uid == "":
			return cluster.NoSuch(from.Noun, key)
		case apierrors.IsNotFound(err), err == nil && uid != "" && r.UID != uid:
			return fmt.Errorf("%s %q was deleted", from.Noun, key.Name)
		case err != nil:
			return gaveUp(ctx, err, last)
		case r.IsDeleting:
			return fmt.Errorf("%s %q is being deleted", from.Noun, key.Name)
		}
		uid = r.UID
		if q.Revision != 0 && r.Number != 0 && r.Number != q.Revision {
			return fmt.Errorf("%s %q: desired revision (%d) is different from the running revision (%d)", from.Noun, key.Name, q.Revision, r.Number)
		}
		if !r.IsDone {
			r.Message = fmt.Sprintf("%s %q: %s", from.Noun, key.Name, r.Message)
		}
		if !r.IsStale && r.IsFailed {
			return errors.New(r.Message)
		}
		if !r.IsStale && r.Message != last {
			fmt.Fprintln(out, r.Message)
			last = r.Message
		}
		if !r.IsStale && (r.IsDone || !q.Watch) {
			return nil
		}
		if err := from.Await(); err != nil {
			return gaveUp(ctx, err, last)
		}
	}
}

// gaveUp returns what the command still waited for, if its time is up.
func gaveUp(ctx context.Context, err error, message string) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return err
	case errors.Is(cause, context.Canceled):
		return fmt.Errorf("interrupted while %s", message)
	default:
		return fmt.Errorf("%w, still %s", cause, message)
	}
}
