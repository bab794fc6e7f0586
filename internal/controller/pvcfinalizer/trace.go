package pvcfinalizer

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
)

// remembered bounds how many pods are known to have completed: as many as Kubernetes is
// made for. They are asked for in turn, and of more than are remembered each would be
// forgotten before it is asked for again: their claims would wait for ever.
const remembered = 150_000

// tracing answers for claims that chose to be judged by more than pods.
func (p *pass) tracing(ctx context.Context) pvc.Tracing {
	if p.tracer == nil {
		return pvc.Tracing{}
	}
	return pvc.Tracing{Completed: p.completedFor, Read: p.tracer.For(ctx)}
}

// completedFor is for how long a pod has been known to have completed, by the clock
// here: that of its node may be wrong. Who comes new waits from the start.
func (c *Controller) completedFor(pod types.UID) time.Duration {
	now := c.now()
	if since, known := c.completed.Get(pod); known {
		if at, ok := since.(time.Time); ok {
			return now.Sub(at)
		}
	}
	c.completed.Add(pod, now)
	return 0
}
