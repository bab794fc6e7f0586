package operator

import (
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"lockstep.dev/lockstep/internal/lease"
)

// lease returns the lock that replicas compete for, or nil without leader election. The
// library's own lock would have another user agent. A request times out early enough for
// another try before the renew deadline.
func (o *Options) lease() (resourcelock.Interface, error) {
	if !o.elects() {
		return nil, nil
	}
	election := o.Config.LeaderElection
	config := rest.CopyConfig(o.restConfig())
	config.Timeout = max(election.RenewDeadline.Duration/2, time.Second)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name this replica: %w", err)
	}
	return resourcelock.New(election.ResourceLock, o.Namespace, election.ResourceName,
		client.CoreV1(), client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: lease.Identity(host)})
}
