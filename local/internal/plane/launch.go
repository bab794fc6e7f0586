package plane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"lockstep.dev/lockstep/local/internal/process"
)

// pollEvery is the pause between two questions to a component that starts.
const pollEvery = 50 * time.Millisecond

// launch starts components of one cluster and watches over them until they are
// ready. The end of any of them ends its context, with the failure as cause.
type launch struct {
	cluster *Cluster
	state   *State
	probe   *prober
	cancel  context.CancelCauseFunc
}

// newLaunch returns the context under which everything about the launch must
// be awaited.
func newLaunch(ctx context.Context, c *Cluster, state *State) (*launch, context.Context, error) {
	probe, err := newProber(c.Layout, state.Ports)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	return &launch{cluster: c, state: state, probe: probe, cancel: cancel}, ctx, nil
}

// start starts components, and saves the identity of each before the next step can fail.
func (r *launch) start(components ...Component) error {
	for _, component := range components {
		child, err := process.Start(r.command(component), r.cluster.Log(component))
		if err != nil {
			return failure(r.cluster.Layout, component, fmt.Sprintf("could not be started: %v", err))
		}
		r.state.started(component, child.Identity)
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

// command gives the component an environment of almost nothing: etcd takes any
// ETCD_* variable for a flag, and kwok reads a configuration from the home
// directory.
func (r *launch) command(component Component) *exec.Cmd {
	l := r.cluster.Layout
	return &exec.Cmd{
		Path: r.cluster.Executable,
		Args: Arguments(component, r.state.Settings, r.state.Ports, l),
		Env:  []string{"HOME=" + l.inner(), "TMPDIR=" + os.TempDir(), "PATH=" + os.Getenv("PATH")},
		Dir:  l.inner(),
	}
}

// await returns when each of the components says that it is well.
func (r *launch) await(ctx context.Context, components ...Component) error {
	for _, component := range components {
		began := time.Now()
		err := until(ctx, func(ctx context.Context) error { return r.probe.probe(ctx, component) })
		if err != nil {
			return r.explain(ctx, component, err)
		}
		r.cluster.tell("%s ready after %s", component, seconds(time.Since(began)))
	}
	return nil
}

// awaitContent returns when pods can be created and find room.
func (r *launch) awaitContent(ctx context.Context, client kubernetes.Interface) error {
	nodes := r.state.Settings.Nodes
	if err := r.awaitNodes(ctx, client, nodes); err != nil {
		return err
	}
	if err := until(ctx, func(ctx context.Context) error { return accountReady(ctx, client) }); err != nil {
		return r.explain(ctx, ControllerManager, err)
	}
	return nil
}

// awaitNodes returns when so many nodes take pods, and kwok stands for all that
// are its own.
func (r *launch) awaitNodes(ctx context.Context, client kubernetes.Interface, count int) error {
	err := until(ctx, func(ctx context.Context) error {
		if err := nodesReady(ctx, client, count); err != nil {
			return err
		}
		return leasesHeld(ctx, client)
	})
	if err != nil {
		return r.explain(ctx, Kwok, err)
	}
	return nil
}

// explain turns the end of a wait into what the user should know: a component
// that ended, an interrupt, or what was still missing when time ran out.
func (r *launch) explain(ctx context.Context, component Component, missing error) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
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

func seconds(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
