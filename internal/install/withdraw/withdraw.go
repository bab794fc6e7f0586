package withdraw

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

const (
	// glance is the pause between two passes.
	glance = 200 * time.Millisecond
	// page is how many objects are read at a time.
	page = 500
)

// Withdrawal takes protection off one cluster.
type Withdrawal struct {
	// Client reads live and writes.
	Client client.Client
	pvc.Undress
	// DryRun judges, and writes nothing.
	DryRun bool
	// Patience bounds every wait.
	Patience time.Duration
}

// Connect returns a client for a withdrawal. It is not held to a rate: nothing
// else is being done meanwhile.
func Connect(config *rest.Config) (client.Client, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
}

// Report counts what was undressed. Conditions are claims that said by the operator's
// word whether they are unused.
type Report struct{ Claims, Volumes, Namespaces, Pods, Conditions int }

// Objects is how many bore finalizers, words or gates.
func (r Report) Objects() int { return r.Claims + r.Volumes + r.Namespaces + r.Pods }

// Everything undresses claims, volumes, namespaces and pods, and then the status of
// claims, until a look finds none that bears anything of ours. Claims that were asked to
// go meanwhile go by the protocol, or are named in an error.
func (w Withdrawal) Everything(ctx context.Context) (r Report, err error) {
	if r.Claims, err = w.undress(ctx, w.claims()); err != nil {
		return r, err
	}
	if r.Volumes, err = w.undress(ctx, w.volumes()); err != nil {
		return r, err
	}
	if r.Namespaces, err = w.undress(ctx, w.namespaces()); err != nil {
		return r, err
	}
	if r.Pods, err = w.undress(ctx, w.gates()); err != nil {
		return r, err
	}
	r.Conditions, err = w.undress(ctx, w.conditions())
	return r, err
}

// undress makes passes until one finds nothing to take and nothing to wait for.
// What is written to meanwhile is looked at anew; so is what a policy still guards
// that the API server has not forgotten yet.
func (w Withdrawal) undress(ctx context.Context, s subject) (int, error) {
	p := pass{Withdrawal: w, subject: s, bare: map[string]bool{}}
	err := wait.PollUntilContextTimeout(ctx, glance, w.Patience, true, p.once)
	if wait.Interrupted(err) && p.hindered != nil {
		err = p.hindered
	}
	return len(p.bare), err
}
