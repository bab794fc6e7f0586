package lwscache

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// GangObjects holds in memory the objects of gang schedulers.
type GangObjects interface {
	// Store returns the objects of a scheduler, or nil while memory may lack some. isAbsent
	// reports whether the API server is known not to serve them.
	Store(gang.Scheduler) (store cache.Store, isAbsent bool)
}

// WithGangs has the observer read the objects of gang schedulers from memory. Without, each
// read asks the API server. It returns the observer.
func (o *Observer) WithGangs(gangs GangObjects) *Observer {
	o.gangs = gangs
	return o
}

// PodGroups watches the objects of gang schedulers while the API server serves them.
type PodGroups struct {
	starter *kinds.Starter
	kinds   map[string]*kinds.Kind

	heard  []func(*unstructured.Unstructured)
	turned []func()
}

// NewPodGroups returns PodGroups that watch once they run.
func NewPodGroups(clients kinds.Clients) *PodGroups {
	p := &PodGroups{kinds: map[string]*kinds.Kind{}}
	var all []*kinds.Kind
	for _, scheduler := range gang.Schedulers() {
		kind := &kinds.Kind{
			GroupVersionKind: scheduler.Kind(), Selector: lwsv1.SetNameLabelKey, Informer: p.informer,
			Turned: func([]any) { p.tellTurned() },
		}
		p.kinds[scheduler.Name()] = kind
		all = append(all, kind)
	}
	p.starter = kinds.New(clients, all...)
	return p
}

// Follow calls heard with every object that comes, changes or goes, and turned when a kind
// comes or goes. It must be called before Run.
func (p *PodGroups) Follow(heard func(*unstructured.Unstructured), turned func()) {
	p.heard, p.turned = append(p.heard, heard), append(p.turned, turned)
}

// Run watches until ctx ends.
func (p *PodGroups) Run(ctx context.Context) error { return p.starter.Run(ctx) }

// Store implements GangObjects.
func (p *PodGroups) Store(s gang.Scheduler) (store cache.Store, isAbsent bool) {
	kind := p.kinds[s.Name()]
	if informer := kind.Watched(); informer != nil && informer.HasSynced() {
		return informer.GetStore(), false
	}
	return nil, kind.IsAbsent()
}

func (p *PodGroups) informer(lw cache.ListerWatcher) (cache.SharedIndexInformer, error) {
	informer := cache.NewSharedIndexInformer(lw, &unstructured.Unstructured{}, 0, cache.Indexers{})
	if err := informer.SetTransform(withoutStatus); err != nil {
		return nil, err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    p.hear,
		UpdateFunc: func(_, is any) { p.hear(is) },
		DeleteFunc: p.hear,
	})
	return informer, err
}

func (p *PodGroups) hear(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	found, ok := object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	for _, tell := range p.heard {
		tell(found)
	}
}

func (p *PodGroups) tellTurned() {
	for _, tell := range p.turned {
		tell()
	}
}

// withoutStatus drops what no decision reads.
func withoutStatus(object any) (any, error) {
	if found, ok := object.(*unstructured.Unstructured); ok {
		unstructured.RemoveNestedField(found.Object, "metadata", "managedFields")
		unstructured.RemoveNestedField(found.Object, "status")
	}
	return object, nil
}

// fillGang reads the object that the leader's gang scheduler knows the group by. A group without
// a gang scheduler costs nothing.
func (o *Observer) fillGang(ctx context.Context, j *judge, g *lws.Group) error {
	if g.Leader == nil {
		return nil
	}
	scheduler := gang.Of(g.Leader)
	if scheduler == nil {
		return nil
	}
	found, missing, err := o.gangObject(ctx, scheduler, types.NamespacedName{Namespace: g.Leader.Namespace, Name: gang.NameOf(g.Leader)})
	if apierrors.IsForbidden(err) && o.set.Name != "" {
		return nil // the rest of the set can be read
	}
	if err != nil || found == nil {
		g.GangMissing = missing
		return err
	}
	return j.sortGang(ctx, g, found)
}

func (j *judge) sortGang(ctx context.Context, g *lws.Group, found *unstructured.Unstructured) error {
	claimant := leaderUID(g)
	objects := []*unstructured.Unstructured{found}
	if err := learn(ctx, j, objects, claimant); err != nil {
		return err
	}
	g.Gang = claim(j.lives, objects, claimant, func(object *unstructured.Unstructured) bool { return workload.IsGang(object, g.Leader) })
	return nil
}

// gangObject reads an object of a kind that the API server need not serve.
func (o *Observer) gangObject(ctx context.Context, s gang.Scheduler, key types.NamespacedName) (*unstructured.Unstructured, string, error) {
	if o.gangs == nil {
		return o.gangLive(ctx, s, key)
	}
	store, isAbsent := o.gangs.Store(s)
	switch {
	case isAbsent:
		return nil, notServed(s), nil
	case store == nil:
		return o.gangLive(ctx, s, key)
	}
	if object, exists, err := store.GetByKey(key.String()); err != nil || exists {
		found, _ := object.(*unstructured.Unstructured)
		return found, "", err
	}
	found, _, err := ifTaken[*unstructured.Unstructured](ctx, o, name{kind: identity.Kind(s.Kind().Kind), namespace: key.Namespace, name: key.Name})
	return found, "", err
}

// gangLive reads an object live.
func (o *Observer) gangLive(ctx context.Context, s gang.Scheduler, key types.NamespacedName) (*unstructured.Unstructured, string, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(s.Kind())
	err := o.live.Get(ctx, key, object)
	switch why := whyMissing(s, err); {
	case err == nil:
		return object, "", nil
	case o.gangs == nil && apierrors.IsForbidden(err):
		return nil, "", err // the operator may have the permission that a user lacks
	case why != "":
		return nil, why, nil
	case apierrors.IsNotFound(err):
		return nil, "", nil
	}
	return nil, "", fmt.Errorf("read %s %q: %w", s.Kind().Kind, key, err)
}

// confirmGang reads an object live before the operator creates it. One that was just created
// may not be in memory yet, and one without our labels never is: the set reads it by its name.
func (o *Observer) confirmGang(ctx context.Context, j *judge, g *lws.Group) error {
	if g.Leader == nil || o.gangs == nil || g.GangMissing != "" || !g.Gang.Empty() {
		return nil
	}
	scheduler := gang.Of(g.Leader)
	if scheduler == nil {
		return nil
	}
	found, missing, err := o.gangLive(ctx, scheduler, types.NamespacedName{Namespace: g.Leader.Namespace, Name: gang.NameOf(g.Leader)})
	if err != nil || found == nil {
		g.GangMissing = missing
		return err
	}
	if !workload.BearsName(found, g.Leader.Labels[lwsv1.SetNameLabelKey]) {
		o.memory.Taken(identity.RefOf(identity.KindPodGroup, found))
	}
	return j.sortGang(ctx, g, found)
}

// fillNewGang reads what the operator needs to create or compare the group's object.
func (o *Observer) fillNewGang(ctx context.Context, j *judge, w *lws.GroupSnapshot) error {
	if err := o.confirmGang(ctx, j, &w.Group); err != nil {
		return err
	}
	if w.Leader == nil || gang.Of(w.Leader) == nil {
		return nil
	}
	return o.knowRevision(ctx, j, w, w.Leader.Labels[lwsv1.RevisionKey])
}

// foreign returns an object of a foreign kind with its metadata alone.
func foreign(kind identity.Kind, meta metav1.ObjectMeta) *unstructured.Unstructured {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&metav1.PartialObjectMetadata{ObjectMeta: meta})
	if err != nil {
		fields = map[string]any{} // metadata always converts
	}
	object := &unstructured.Unstructured{Object: fields}
	object.SetAPIVersion(apiVersions[kind])
	object.SetKind(string(kind))
	return object
}

// gangMissing returns why the gang scheduler of a set or of its groups is missing, or nothing.
func (o *Observer) gangMissing(ctx context.Context, set *lwsv1.LeaderWorkerSet, groups []lws.Group) (string, error) {
	for i := range groups {
		if groups[i].GangMissing != "" {
			return groups[i].GangMissing, nil
		}
	}
	wanted := gang.Wanted(set, nil)
	if wanted == nil {
		return "", nil
	}
	_, missing, err := o.gangObject(ctx, wanted, types.NamespacedName{Namespace: set.Namespace, Name: set.Name})
	if apierrors.IsForbidden(err) {
		return "", nil
	}
	return missing, err
}

// whyMissing returns why a scheduler's objects cannot be read, or nothing for other errors.
func whyMissing(s gang.Scheduler, err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%s of %s cannot be read: permission is missing; groups of this set are not placed as gangs", s.Resource().GroupResource(), s.Name())
	case unserved(err):
		return notServed(s)
	}
	return ""
}

func notServed(s gang.Scheduler) string {
	return fmt.Sprintf("the API server does not serve %s: install %s, or take it away from this set; groups are not placed as gangs", s.Resource().GroupResource(), s.Name())
}

// unserved reports whether the API server does not serve a kind. For a missing object of a
// served kind, the answer has no such cause.
func unserved(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsMethodNotSupported(err) ||
		(apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse))
}
