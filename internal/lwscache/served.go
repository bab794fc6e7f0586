package lwscache

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
)

const (
	// askAgainAfter is how long an answer that a kind is not served is believed.
	askAgainAfter = 5 * time.Second
	// fillWithin is how long after a watch began a look waits for it to be told of
	// all objects. Nobody is to wait longer for a list that fails.
	fillWithin = time.Second
)

// Served keeps what a gang scheduler knows groups by in memory, for as long as the
// API server serves it. It is asked for at the first look at a gang: without one,
// nothing is read and nothing is watched. When the kind goes, the watch ends with
// it; every later look may find it back.
type Served struct {
	client dynamic.Interface
	// life ends with the process.
	life context.Context

	mu    sync.Mutex
	kinds map[string]*servedKind

	heard  []func(*unstructured.Unstructured)
	turned []func()
}

// servedKind is what is known of one scheduler's kind. watching is nil while it is
// not served, and missing says why.
type servedKind struct {
	// asking holds a token while somebody asks the API server for the kind. Who else
	// wants to know waits for the answer, and nobody who only listens does.
	asking chan struct{}

	watching *watching
	missing  string
	asked    time.Time
}

// watching is one watch of a kind, from when it was found served until it is not.
type watching struct {
	cache.SharedIndexInformer
	// filling ends when nobody waits any more for the watch to be told of all objects.
	filling context.Context
	// end ends the watch.
	end context.CancelFunc
}

// NewServed returns a Served that reads through client until life ends.
func NewServed(life context.Context, client dynamic.Interface) *Served {
	return &Served{client: client, life: life, kinds: map[string]*servedKind{}}
}

// Follow calls heard with every object that comes, changes or goes, and turned
// whenever a kind is found to be served or not to be any more. It must be called
// before the first look.
func (s *Served) Follow(heard func(*unstructured.Unstructured), turned func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard, s.turned = append(s.heard, heard), append(s.turned, turned)
}

// Get implements GangObjects.
func (s *Served) Get(ctx context.Context, scheduler gang.Scheduler, key types.NamespacedName) (*unstructured.Unstructured, string, error) {
	w, missing, err := s.watch(ctx, scheduler)
	if err != nil || missing != "" {
		return nil, missing, err
	}
	if !w.filled(ctx) {
		return s.ask(ctx, scheduler, key)
	}
	found, exists, err := w.GetStore().GetByKey(key.String())
	if err != nil || !exists {
		return nil, "", err
	}
	object, _ := found.(*unstructured.Unstructured)
	return object, "", nil
}

// ask asks the API server for an object, as long as memory does not hold all.
func (s *Served) ask(ctx context.Context, scheduler gang.Scheduler, key types.NamespacedName) (*unstructured.Unstructured, string, error) {
	object, err := s.client.Resource(scheduler.Resource()).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch why := whyMissing(scheduler, err); {
	case err == nil:
		return object, "", nil
	case why != "":
		return nil, why, nil
	case apierrors.IsNotFound(err):
		return nil, "", nil
	}
	return nil, "", fmt.Errorf("read %s %q: %w", scheduler.Kind().Kind, key, err)
}

// filled tells whether a watch has been told of all objects. While it is young,
// that is waited for.
func (w *watching) filled(ctx context.Context) bool {
	if w.HasSynced() {
		return true
	}
	waiting, done := context.WithCancel(ctx)
	defer done()
	defer context.AfterFunc(w.filling, done)()
	return cache.WaitForCacheSync(waiting.Done(), w.HasSynced)
}

// watch returns the watch of a scheduler's kind, or why there is none.
func (s *Served) watch(ctx context.Context, scheduler gang.Scheduler) (*watching, string, error) {
	kind := s.kind(scheduler)
	if w, missing := s.known(kind); w != nil || missing != "" {
		return w, missing, nil
	}
	select {
	case kind.asking <- struct{}{}:
		defer func() { <-kind.asking }()
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
	if w, missing := s.known(kind); w != nil || missing != "" {
		return w, missing, nil // as was answered meanwhile
	}
	_, err := s.client.Resource(scheduler.Resource()).List(ctx, metav1.ListOptions{Limit: 1, LabelSelector: lwsv1.SetNameLabelKey})
	why := whyMissing(scheduler, err)
	switch {
	case why != "":
		s.mu.Lock()
		defer s.mu.Unlock()
		kind.missing, kind.asked = why, time.Now()
		return nil, why, nil
	case err != nil:
		return nil, "", fmt.Errorf("list %s: %w", scheduler.Resource().GroupResource(), err)
	}
	return s.found(kind, scheduler)
}

// kind is what is known of a scheduler's kind, if only that nothing is.
func (s *Served) kind(scheduler gang.Scheduler) *servedKind {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := s.kinds[scheduler.Name()]
	if kind == nil {
		kind = &servedKind{asking: make(chan struct{}, 1)}
		s.kinds[scheduler.Name()] = kind
	}
	return kind
}

// known returns the watch of a kind, or why there is none, or nothing when that is
// to be asked for.
func (s *Served) known(kind *servedKind) (*watching, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case kind.watching != nil:
		return kind.watching, ""
	case kind.missing != "" && time.Since(kind.asked) < askAgainAfter:
		return nil, kind.missing
	}
	return nil, ""
}

// found begins to watch a kind that is served.
func (s *Served) found(kind *servedKind, scheduler gang.Scheduler) (*watching, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, err := s.begin(scheduler)
	if err != nil {
		return nil, "", err
	}
	kind.watching = w
	if kind.missing != "" {
		kind.missing = ""
		s.tellTurned()
	}
	return w, "", nil
}

// begin begins a watch of a kind.
func (s *Served) begin(scheduler gang.Scheduler) (*watching, error) {
	life, end := context.WithCancel(s.life)
	source := cache.ToListWatcherWithWatchListSemantics(ofSets(s.client, scheduler.Resource()), s.client)
	informer := cache.NewSharedIndexInformerWithOptions(source, &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{})
	filling, giveUp := context.WithTimeout(life, fillWithin)
	w := &watching{SharedIndexInformer: informer, filling: filling, end: func() { giveUp(); end() }}
	if err := informer.SetTransform(bare); err != nil {
		return nil, err
	}
	if err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if why := whyMissing(scheduler, err); why != "" {
			s.lose(scheduler, w, why)
			return
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}); err != nil {
		return nil, err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    s.hear,
		UpdateFunc: func(_, is any) { s.hear(is) },
		DeleteFunc: func(was any) {
			if last, ok := was.(cache.DeletedFinalStateUnknown); ok {
				was = last.Obj
			}
			s.hear(was)
		},
	})
	go informer.RunWithContext(life)
	return w, err
}

// ofSets lists and watches the objects of a resource that bear a set's label.
func ofSets(client dynamic.Interface, resource schema.GroupVersionResource) *cache.ListWatch {
	all := client.Resource(resource)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = lwsv1.SetNameLabelKey
			return all.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = lwsv1.SetNameLabelKey
			return all.Watch(ctx, options)
		},
	}
}

// lose ends a watch of a kind that is not served any more.
func (s *Served) lose(scheduler gang.Scheduler, w *watching, why string) {
	w.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := s.kinds[scheduler.Name()]
	if kind.watching != w {
		return // lost already
	}
	kind.watching, kind.missing, kind.asked = nil, why, time.Now()
	s.tellTurned()
}

func (s *Served) tellTurned() {
	for _, tell := range s.turned {
		go tell()
	}
}

func (s *Served) hear(object any) {
	found, ok := object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	s.mu.Lock()
	heard := s.heard
	s.mu.Unlock()
	for _, tell := range heard {
		tell(found)
	}
}

// bare drops what no decision reads.
func bare(object any) (any, error) {
	found, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	unstructured.RemoveNestedField(found.Object, "metadata", "managedFields")
	unstructured.RemoveNestedField(found.Object, "status")
	return found, nil
}
