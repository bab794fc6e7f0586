package pvchold

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// keys is where a controller hears from: what it is told goes to its queue. Nothing
// is looked at before everything has been read once; then all of it is.
type keys struct {
	synced func(context.Context) error
	// all are the keys of everything there is.
	all func(context.Context) []types.NamespacedName

	mu    sync.Mutex
	queue queue
}

var _ source.SyncingSource = &keys{}

func newKeys(synced func(context.Context) error, all func(context.Context) []types.NamespacedName) *keys {
	return &keys{synced: synced, all: all}
}

// Start implements source.Source.
func (k *keys) Start(_ context.Context, q queue) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue = q
	return nil
}

// WaitForSync implements source.SyncingSource.
func (k *keys) WaitForSync(ctx context.Context) error {
	if err := k.synced(ctx); err != nil {
		return err
	}
	for _, key := range k.all(ctx) {
		k.add(key, 0)
	}
	return nil
}

func (k *keys) add(key types.NamespacedName, after time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.queue != nil {
		k.queue.AddAfter(ctrl.Request{NamespacedName: key}, after)
	}
}

// in adds keys after a while, in which their events are gathered.
func (k *keys) in(after time.Duration) func(types.NamespacedName) {
	return func(key types.NamespacedName) { k.add(key, after) }
}

// named is in for what has no namespace.
func (k *keys) named(after time.Duration) func(string) {
	return func(name string) { k.add(types.NamespacedName{Name: name}, after) }
}
