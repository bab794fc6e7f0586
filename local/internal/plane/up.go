package plane

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is the control plane of one directory.
type Cluster struct {
	Layout
	// Executable holds the components, and becomes one of them when it is
	// called by its name.
	Executable string
	// Progress is told, line by line, what is happening.
	Progress io.Writer
}

func (c *Cluster) tell(format string, args ...any) {
	fmt.Fprintf(c.Progress, format+"\n", args...)
}

// cleanupTime bounds the work that is done after an interrupt.
const cleanupTime = 30 * time.Second

// Up brings a fresh cluster up and returns when everything in it is ready.
// What an earlier cluster left in the directory is removed. On any error,
// nothing is left running.
func (c *Cluster) Up(ctx context.Context, settings Settings) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	release, err := acquire(ctx, c.Layout, 0)
	if err != nil {
		return err
	}
	defer release()
	state, err := c.prepare(settings)
	if err != nil {
		return err
	}
	if err := c.bringUp(ctx, &state); err != nil {
		c.tell("ending what was started")
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		if down := c.takeDown(cleanup, &state); down != nil {
			return fmt.Errorf("%w\n(and then: %v)", err, down)
		}
		return err
	}
	return nil
}

// prepare refuses a directory in use and writes everything that the components
// read.
func (c *Cluster) prepare(settings Settings) (State, error) {
	old, marked, err := loadState(c.Layout)
	if err != nil {
		return State{}, err
	}
	if alive := old.alive(); len(alive) > 0 {
		return State{}, fmt.Errorf("directory %q is in use: a cluster runs in it (%s): give another --dir, or end it with: lockstep-local down --dir %s",
			c.Dir, list(alive), c.Dir)
	}
	ports, err := planPorts(portFree)
	if err != nil {
		return State{}, err
	}
	if err := c.clear(marked); err != nil {
		return State{}, err
	}
	state := State{Running: true, Settings: settings, Ports: ports}
	if err := state.save(c.Layout); err != nil {
		return State{}, err
	}
	return state, c.writeFiles(settings, ports)
}

func (c *Cluster) writeFiles(settings Settings, ports Ports) error {
	if err := c.create(); err != nil {
		return err
	}
	if err := writeCredentials(c.Layout, ports); err != nil {
		return err
	}
	return writeConfiguration(c.Layout, settings)
}

func (c *Cluster) bringUp(ctx context.Context, state *State) error {
	began := time.Now()
	run, ctx, err := newLaunch(ctx, c, state)
	if err != nil {
		return err
	}
	c.tell("control plane in %s, API server at https://%s", c.Dir, address(state.Ports.APIServer))
	if err := run.start(Etcd, APIServer); err != nil {
		return err
	}
	if err := run.await(ctx, Etcd, APIServer); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	if err := seedAccounts(ctx, client); err != nil {
		return run.explain(ctx, APIServer, err)
	}
	if err := run.start(ControllerManager, Scheduler, Kwok); err != nil {
		return err
	}
	if err := seed(ctx, client, state.Settings); err != nil {
		return run.explain(ctx, APIServer, err)
	}
	if err := run.await(ctx, ControllerManager, Scheduler, Kwok); err != nil {
		return err
	}
	if err := run.awaitContent(ctx, client); err != nil {
		return err
	}
	c.tell("%d nodes ready; up after %s", state.Settings.Nodes, seconds(time.Since(began)))
	return nil
}

// client is the administrator's, without a limit of its own.
func (c *Cluster) client() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.UserAgent = userAgent
	return kubernetes.NewForConfig(config)
}
