package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// acquire makes this the only command at work on a directory, waiting up to
// patience for another to finish. The kernel gives the lock back when the
// holder ends, however it ends.
func acquire(ctx context.Context, l Layout, patience time.Duration) (release func(), err error) {
	file, err := os.OpenFile(l.lock(), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(patience)
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() { file.Close() }, nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", l.lock(), err)
		case time.Now().After(deadline):
			file.Close()
			return nil, fmt.Errorf("directory %q: another lockstep-local command is at work in it: wait for it to finish, or end it", l.Dir)
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
