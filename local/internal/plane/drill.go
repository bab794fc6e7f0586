package plane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// stopPatience is how long a component may take to end in good order.
const stopPatience = 5 * time.Second

// Kill ends one component without warning. It stays dead until it is
// restarted.
func (c *Cluster) Kill(ctx context.Context, component Component) error {
	return c.withRunning(ctx, func(state *State) error {
		if !state.Processes[component].Alive() {
			return fmt.Errorf("%s does not run: start it with: lockstep-local restart %s --dir %s", component, component, c.Dir)
		}
		if err := state.Processes[component].Kill(ctx); err != nil {
			return err
		}
		delete(state.Processes, component)
		return state.save(c.Layout)
	})
}

// Restart ends one component, if it runs, and starts it again with the settings
// that change returns. It returns when the component is ready.
func (c *Cluster) Restart(ctx context.Context, component Component, change func(Settings) (Settings, error)) error {
	return c.withRunning(ctx, func(state *State) error {
		settings, err := change(state.Settings)
		if err != nil {
			return err
		}
		state.Settings = settings
		if err := writeConfiguration(c.Layout, settings); err != nil {
			return err
		}
		if err := state.Processes[component].Stop(ctx, stopPatience); err != nil {
			return err
		}
		return c.startAgain(ctx, component, state)
	})
}

// withRunning runs work as the only command on a cluster that is up.
func (c *Cluster) withRunning(ctx context.Context, work func(*State) error) error {
	release, err := acquire(ctx, c.Layout, lockPatience)
	if errors.Is(err, fs.ErrNotExist) {
		return errNoCluster(c.Layout) // nor its directory
	}
	if err != nil {
		return err
	}
	defer release()
	state, _, err := loadState(c.Layout)
	if err != nil {
		return err
	}
	if !state.Running {
		return errNoCluster(c.Layout)
	}
	return work(&state)
}

func (c *Cluster) startAgain(ctx context.Context, component Component, state *State) error {
	run, ctx, err := newLaunch(ctx, c, state)
	if err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	if component == Kwok {
		if err := freeLeases(ctx, client); err != nil {
			return fmt.Errorf("free the node leases of the former kwok: %w", err)
		}
	}
	if err := run.start(component); err != nil {
		return err
	}
	if err := run.await(ctx, component); err != nil {
		return err
	}
	switch {
	case component == Etcd && state.Processes[APIServer].Alive():
		return run.await(ctx, APIServer)
	case component == APIServer && state.Processes[Kwok].Alive():
		return c.renewNodes(ctx, state)
	case component == Kwok:
		if err := run.awaitNodes(ctx, client, 0); err != nil {
			return err
		}
		return replay(ctx, client)
	}
	return nil
}

// renewNodes starts kwok anew once the API server is back. A step that the API
// server's death cut off halfway is not tried again by kwok, which no kubelet
// would do: its pod would stay terminating for ever.
func (c *Cluster) renewNodes(ctx context.Context, state *State) error {
	if err := state.Processes[Kwok].Stop(ctx, stopPatience); err != nil {
		return err
	}
	return c.startAgain(ctx, Kwok, state)
}
