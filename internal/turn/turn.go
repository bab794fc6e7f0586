// Package turn shares the operator among namespaces: a work queue serves them in turn, and a pace bounds each.
//
// It knows the namespace of a request. It refuses to know what the request is for, and how urgent it is: of requests
// that wait, each namespace has one served before any namespace has a second.
package turn

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type request = reconcile.Request

const (
	// retrySoonest is later than the cache shows most writes.
	retrySoonest = 50 * time.Millisecond
	// RetryAtMost bounds how long an error that is over may go on to cost: a pod may wait, or a PVC be unheld.
	RetryAtMost = 30 * time.Second
)

// Options are those of a controller that serves namespaces in turn. A reconcile whose errors go on is retried ever more
// slowly, and delays no other. A replica that does not lead follows all events, so that it can take over at once.
func Options(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers, EnableWarmup: new(true), NewQueue: NewQueue,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[request](retrySoonest, RetryAtMost),
	}
}

// NewQueue returns the queue of a controller. It is meant for NewQueue of its options.
func NewQueue(controller string, limiter workqueue.TypedRateLimiter[request]) workqueue.TypedRateLimitingInterface[request] {
	ready := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[request]{Name: controller, Queue: &turns{waiting: map[string]workqueue.Queue[request]{}}})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[request]{Name: controller, Queue: ready})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[request]{Name: controller, DelayingQueue: delaying})
}

// turns implements workqueue.Queue.
type turns struct {
	// order has each namespace with requests once, the next one first.
	order []string
	// waiting has the requests of a namespace, the oldest first.
	waiting map[string]workqueue.Queue[request]
	count   int
}

func (t *turns) Touch(request) {}

func (t *turns) Len() int { return t.count }

func (t *turns) Push(r request) {
	if t.waiting[r.Namespace] == nil {
		t.waiting[r.Namespace] = workqueue.DefaultQueue[request]()
		t.order = append(t.order, r.Namespace)
	}
	t.waiting[r.Namespace].Push(r)
	t.count++
}

func (t *turns) Pop() request {
	namespace := t.order[0]
	t.order, t.count = t.order[1:], t.count-1
	own := t.waiting[namespace]
	next := own.Pop()
	if own.Len() > 0 {
		t.order = append(t.order, namespace)
	} else {
		delete(t.waiting, namespace)
	}
	return next
}
