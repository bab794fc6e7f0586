package plane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"lockstep.dev/lockstep/local/internal/process"
)

// Cluster is the control plane of one directory.
type Cluster struct {
	Layout
	// Executable holds the components, and becomes one of them when it is called by its name.
	Executable string
	// Progress is told, line by line, what is happening.
	Progress io.Writer
}

func (c *Cluster) tell(format string, args ...any) {
	fmt.Fprintf(c.Progress, format+"\n", args...)
}

// cleanupTime bounds the work that is done after an interrupt.
const cleanupTime = 30 * time.Second

// Up brings a fresh cluster up and returns when everything in it is ready. What an earlier cluster left in the
// directory is removed. On any error, nothing is left running.
func (c *Cluster) Up(ctx context.Context, settings Settings) error {
	return c.up(ctx, settings, c.bringUp)
}

// up prepares the directory and has the cluster in it brought up.
func (c *Cluster) up(ctx context.Context, settings Settings, bringUp func(context.Context, *State) error) error {
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
	if err := bringUp(ctx, &state); err != nil {
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

// prepare refuses a directory in use and writes everything that the components read.
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
	state := State{Running: true, Settings: settings, Ports: ports, Processes: map[Component]process.Identity{}}
	if err := state.save(c.Layout); err != nil {
		return State{}, err
	}
	if err := c.create(); err != nil {
		return State{}, err
	}
	if err := writeCredentials(c.Layout, ports); err != nil {
		return State{}, err
	}
	return state, writeConfiguration(c.Layout, settings)
}

func (c *Cluster) bringUp(ctx context.Context, state *State) error {
	began := time.Now()
	run, ctx, err := newLaunch(ctx, c, state)
	if err != nil {
		return err
	}
	c.tell("control plane in %s, API server at https://%s", c.Dir, address(state.Ports.APIServer))
	if err := run.bring(ctx, Etcd, APIServer); err != nil {
		return err
	}
	if err := seedAccounts(ctx, run.client); err != nil {
		return run.explain(ctx, APIServer, err)
	}
	if err := run.start(ControllerManager, Scheduler, Kwok); err != nil {
		return err
	}
	if err := seed(ctx, run.client, state.Settings, state.Ports); err != nil {
		return run.explain(ctx, APIServer, err)
	}
	if err := run.await(ctx, ControllerManager, Scheduler, Kwok); err != nil {
		return err
	}
	if err := run.awaitContent(ctx); err != nil {
		return err
	}
	c.tell("%d nodes ready; up after %s", state.Settings.Nodes, time.Since(began).Round(100*time.Millisecond))
	return nil
}

// pollEvery is the pause between two questions to a component that starts.
const pollEvery = 50 * time.Millisecond

// launch starts components of one cluster and watches over them until they are
// ready. The end of any of them ends its context, with the failure as cause.
type launch struct {
	cluster *Cluster
	state   *State
	probe   *prober
	client  kubernetes.Interface
	cancel  context.CancelCauseFunc
}

// newLaunch returns the context under which everything about the launch must be awaited.
func newLaunch(ctx context.Context, c *Cluster, state *State) (*launch, context.Context, error) {
	probe, err := newProber(c.Layout, state.Ports)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	return &launch{cluster: c, state: state, probe: probe, client: probe.objects, cancel: cancel}, ctx, nil
}

// start starts components, and saves the identity of each before the next step can fail. The environment has almost
// nothing: etcd takes any ETCD_* variable for a flag, and kwok reads a configuration from the home directory.
func (r *launch) start(components ...Component) error {
	home := r.cluster.inner()
	for _, component := range components {
		child, err := process.Start(&exec.Cmd{
			Path: r.cluster.Executable, Dir: home,
			Args: Arguments(component, r.state.Settings, r.state.Ports, r.cluster.Layout),
			Env:  []string{"HOME=" + home, "TMPDIR=" + os.TempDir(), "PATH=" + os.Getenv("PATH")},
		}, r.cluster.Log(component))
		if err != nil {
			return failure(r.cluster.Layout, component, fmt.Sprintf("could not be started: %v", err))
		}
		r.state.Processes[component] = child.Identity
		if err := r.state.save(r.cluster.Layout); err != nil {
			return err
		}
		go func() {
			<-child.Ended
			r.cancel(failure(r.cluster.Layout, component, fmt.Sprintf("ended while it was to become ready (%s)", child.Outcome())))
		}()
	}
	return nil
}

// await returns when each of the components says that it is well.
func (r *launch) await(ctx context.Context, components ...Component) error {
	for _, component := range components {
		began := time.Now()
		err := until(ctx, func(ctx context.Context) error { return r.probe.probe(ctx, component) })
		if err != nil {
			return r.explain(ctx, component, err)
		}
		r.cluster.tell("%s ready after %s", component, time.Since(began).Round(100*time.Millisecond))
	}
	return nil
}

// bring starts components, and returns when they are ready.
func (r *launch) bring(ctx context.Context, components ...Component) error {
	if err := r.start(components...); err != nil {
		return err
	}
	return r.await(ctx, components...)
}

// awaitContent returns when pods can be created and find room.
func (r *launch) awaitContent(ctx context.Context) error {
	if err := r.awaitNodes(ctx, r.state.Settings.Nodes); err != nil {
		return err
	}
	return r.explain(ctx, ControllerManager, until(ctx, func(ctx context.Context) error {
		_, err := r.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	}))
}

// awaitNodes returns when so many nodes take pods, and kwok stands for all that are its own.
func (r *launch) awaitNodes(ctx context.Context, count int) error {
	return r.explain(ctx, Kwok, until(ctx, func(ctx context.Context) error {
		nodes, err := countNodes(ctx, r.client)
		switch {
		case err != nil:
			return err
		case nodes.Ready < count:
			return fmt.Errorf("%d of %d nodes are ready", nodes.Ready, count)
		}
		return leasesHeld(ctx, r.client)
	}))
}

// explain turns the end of a wait into what the user should know: a component
// that ended, an interrupt, or what was still missing when time ran out.
func (r *launch) explain(ctx context.Context, component Component, missing error) error {
	switch cause := context.Cause(ctx); {
	case missing == nil, cause == nil:
		return missing
	case cause != context.DeadlineExceeded:
		return cause
	}
	return failure(r.cluster.Layout, component, fmt.Sprintf("is not ready in time: %v", missing))
}

// until repeats ask until it returns nil or ctx ends, and then returns what ask
// said last. An answer that was cut short by the end of ctx says nothing.
func until(ctx context.Context, ask func(context.Context) error) error {
	var last error
	_ = wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		err := ask(ctx)
		if err == nil || ctx.Err() == nil || last == nil {
			last = err
		}
		return err == nil, nil
	})
	return last
}

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

// takeDown kills everything at once: the data goes with the cluster, so there is nothing to finish.
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
	state.Running, state.Processes = false, nil
	return state.save(c.Layout)
}

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
	if err := state.Processes[component].Stop(ctx, stopPatience); err != nil {
		return err
	}
	run, ctx, err := newLaunch(ctx, c, state)
	if err != nil {
		return err
	}
	if component == Kwok {
		if err := freeLeases(ctx, run.client); err != nil {
			return fmt.Errorf("free the node leases of the former kwok: %w", err)
		}
	}
	if err := run.bring(ctx, component); err != nil {
		return err
	}
	switch {
	case component == Etcd && state.Processes[APIServer].Alive():
		return run.await(ctx, APIServer)
	case component == APIServer && state.Processes[Kwok].Alive():
		// kwok does not try a step again that the API server's death cut off halfway, as a kubelet would.
		return c.startAgain(ctx, Kwok, state)
	case component == Kwok:
		if err := run.awaitNodes(ctx, 0); err != nil {
			return err
		}
		return replay(ctx, run.client)
	}
	return nil
}
