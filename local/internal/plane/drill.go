package plane

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
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
		state.killed(component)
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
		if err := checkFooting(component, state); err != nil {
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
	_, found, err := loadState(c.Layout)
	if err != nil {
		return err
	}
	if !found {
		return errNoCluster(c.Layout) // without creating its directory for the lock
	}
	release, err := acquire(ctx, c.Layout, lockPatience)
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

// footing is what each component cannot become ready without.
var footing = map[Component]Component{
	APIServer: Etcd, ControllerManager: APIServer, Scheduler: APIServer, Kwok: APIServer,
}

func checkFooting(component Component, state *State) error {
	needed, ok := footing[component]
	if !ok || state.Processes[needed].Alive() {
		return nil
	}
	return fmt.Errorf("%s needs %s, which does not run: restart that first", component, needed)
}

func (c *Cluster) startAgain(ctx context.Context, component Component, state *State) error {
	run, ctx, err := newLaunch(ctx, c, state)
	if err != nil {
		return err
	}
	if component == Kwok {
		if err := c.freeLeases(ctx); err != nil {
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
	case component == Kwok:
		return c.awaitLeases(ctx, run)
	}
	return nil
}

// freeLeases lets a new kwok take its nodes at once. It would wait for its
// predecessor's leases to run out otherwise, for 40 s, and look dead meanwhile.
func (c *Cluster) freeLeases(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	nodes, err := simulatedNodes(ctx, client)
	if err != nil {
		return err
	}
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	for _, name := range nodes {
		if err := leases.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (c *Cluster) awaitLeases(ctx context.Context, run *launch) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	err = until(ctx, func(ctx context.Context) error { return leasesHeld(ctx, client) })
	if err != nil {
		return run.explain(ctx, Kwok, err)
	}
	return nil
}

func leasesHeld(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := simulatedNodes(ctx, client)
	if err != nil {
		return err
	}
	leases, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	held := map[string]bool{}
	for _, lease := range leases.Items {
		held[lease.Name] = true
	}
	for _, name := range nodes {
		if !held[name] {
			return fmt.Errorf("nobody holds the lease of node %q", name)
		}
	}
	return nil
}
