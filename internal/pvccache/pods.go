package pvccache

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"lockstep.dev/lockstep/internal/pvc"
)

// Pods keeps of every pod in the cluster what concerns claims, found by the names
// of the claims. It is written to by one watch, event by event: what it has reached
// is told by one resource version.
type Pods struct {
	mu         sync.RWMutex
	namespaces map[string]*podSpace
	reached    string
	followers  []func(before, after *PodUses)
	synced     chan struct{}
	contact    contact
}

// podSpace is the pods of one namespace.
type podSpace struct {
	byName map[string]*PodUses
	// byClaim finds pods by the claims they name, each once; under "", those that may
	// use any. Nearly all claims have one pod.
	byClaim map[string][]*PodUses
	// byUID tells which pods exist.
	byUID map[types.UID]*PodUses
}

// NewPods returns an empty Pods, to be filled by Run.
func NewPods() *Pods {
	return &Pods{namespaces: map[string]*podSpace{}, synced: make(chan struct{})}
}

// PodsOfClaims is a client for pods that reads protobuf.
func PodsOfClaims(config *rest.Config) (corev1client.PodsGetter, error) {
	c := rest.CopyConfig(config)
	c.ContentType = runtime.ContentTypeProtobuf
	return corev1client.NewForConfig(c)
}

// Sink is where a watch of pods writes to.
func (p *Pods) Sink() cache.ReflectorStore { return (*podStore)(p) }

// Run keeps it filled until ctx ends.
func (p *Pods) Run(ctx context.Context, pods corev1client.PodInterface) {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, o)
		},
	}
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(p.contact.over(source), pods), &corev1.Pod{}, p.Sink(),
		cache.ReflectorOptions{Name: "pods of claims"}).RunWithContext(ctx)
}

// Synced tells whether it has been filled once.
func (p *Pods) Synced() bool {
	select {
	case <-p.synced:
		return true
	default:
		return false
	}
}

// IsLost tells whether it cannot be kept filled now: there may be others than it shows.
func (p *Pods) IsLost() bool { return p.contact.lost() }

// AwaitSync waits until it has been filled once.
func (p *Pods) AwaitSync(ctx context.Context) error {
	select {
	case <-p.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pods are not synced yet: %w", ctx.Err())
	}
}

// Follow calls heard with every change: before is nil for a pod that comes, after
// for one that goes. Two pods of one name are two calls. It is called by the watch
// itself and must not wait.
func (p *Pods) Follow(heard func(before, after *PodUses)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.followers = append(p.followers, heard)
}

// Each calls see with every pod of a namespace.
func (p *Pods) Each(namespace string, see func(*PodUses)) {
	p.mu.RLock()
	var all []*PodUses
	if space := p.namespaces[namespace]; space != nil {
		all = slices.Collect(maps.Values(space.byName))
	}
	p.mu.RUnlock()
	for _, pod := range all {
		see(pod)
	}
}

// Count is how many pods a namespace has.
func (p *Pods) Count(namespace string) int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if space := p.namespaces[namespace]; space != nil {
		return len(space.byName)
	}
	return 0
}

// Large tells whether it is worth something not to list the pods of a namespace.
func (p *Pods) Large(namespace string) bool { return p.Count(namespace) > cheapList }

// Has tells whether a pod of a namespace is there.
func (p *Pods) Has(namespace string, uid types.UID) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	space := p.namespaces[namespace]
	return space != nil && space.byUID[uid] != nil
}

// Index is the pods of a namespace that may use one of the claims.
func (p *Pods) Index(namespace string, claims ...string) *pvc.Index {
	index := pvc.NewIndex()
	p.using(namespace, claims, nil, index.See)
	return index
}

// using hands over the pods that may use one of the claims, and those with the UIDs.
func (p *Pods) using(namespace string, claims []string, uids []types.UID, see func(*corev1.Pod)) {
	for pod := range p.found(namespace, claims, uids) {
		see(pod.Pod())
	}
}

func (p *Pods) found(namespace string, claims []string, uids []types.UID) map[*PodUses]struct{} {
	found := map[*PodUses]struct{}{}
	p.mu.RLock()
	defer p.mu.RUnlock()
	space := p.namespaces[namespace]
	if space == nil {
		return nil
	}
	for _, claim := range append([]string{""}, claims...) {
		for _, pod := range space.byClaim[claim] {
			found[pod] = struct{}{}
		}
	}
	for _, uid := range uids {
		if pod := space.byUID[uid]; pod != nil {
			found[pod] = struct{}{}
		}
	}
	return found
}

// reaches tells whether everything up to a resource version has been seen, or is
// within the time given.
func (p *Pods) reaches(ctx context.Context, version string, within time.Duration) bool {
	deadline := time.After(within)
	for {
		if p.hasReached(version) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-deadline:
			return p.hasReached(version)
		case <-time.After(reachedAskEvery):
		}
	}
}

const reachedAskEvery = 10 * time.Millisecond

// version is how far it has come.
func (p *Pods) version() string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.reached
}

func (p *Pods) hasReached(version string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	order, err := resourceversion.CompareResourceVersion(p.reached, version)
	return err == nil && order >= 0 && p.Synced()
}
