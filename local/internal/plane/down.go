package plane

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"
)

// lockPatience is how long a command waits for another on the same directory.
const lockPatience = 20 * time.Second

// Down ends the cluster and everything that belongs to it, and says whether
// there was one. Logs stay until the next up; the data does not.
func (c *Cluster) Down(ctx context.Context) (was bool, err error) {
	if _, err := os.Stat(c.state()); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	release, err := acquire(ctx, c.Layout, lockPatience)
	if err != nil {
		return false, err
	}
	defer release()
	state, found, err := loadState(c.Layout)
	if err != nil || !found {
		return false, err
	}
	was = state.Running
	return was, c.takeDown(ctx, &state)
}

// takeDown kills everything at once: the data goes with the cluster, so there
// is nothing to finish.
func (c *Cluster) takeDown(ctx context.Context, state *State) error {
	var wait sync.WaitGroup
	problems := make([]error, len(Components))
	for i, component := range Components {
		wait.Go(func() { problems[i] = state.Processes[component].Kill(ctx) })
	}
	wait.Wait()
	if err := errors.Join(problems...); err != nil {
		return err
	}
	for _, path := range []string{c.Kubeconfig(), c.etcdData(), c.inner("pki"), c.inner("config")} {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	state.Running, state.Processes, state.Killed = false, nil, nil
	return state.save(c.Layout)
}
