package lwscache

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// GangObjects holds PodGroups in memory.
type GangObjects interface {
	// Store returns the PodGroups, or nil while memory may lack some. isAbsent reports whether the
	// API server is known not to serve them.
	Store() (store cache.Store, isAbsent bool)
}

// WithGangs makes the observer read PodGroups from memory. Without, each
// read asks the API server. It returns the observer.
func (o *Observer) WithGangs(gangs GangObjects) *Observer {
	o.gangs = gangs
	return o
}

// PodGroups watches PodGroups while the API server serves them.
type PodGroups struct {
	kind    *kinds.Kind
	changed func(*unstructured.Unstructured)
}

// NewPodGroups returns PodGroups that a Starter is to run. changed is called with every object
// that comes, changes or goes, and turned when the kind comes or goes.
func NewPodGroups(starter *kinds.Starter, changed func(*unstructured.Unstructured), turned func()) *PodGroups {
	p := &PodGroups{changed: changed}
	p.kind = &kinds.Kind{GroupVersionKind: gang.Kind, Selector: lwsv1.SetNameLabelKey, Setup: p.setup, Turned: func([]any) { turned() }}
	starter.Add(p.kind)
	return p
}

// Store implements GangObjects.
func (p *PodGroups) Store() (store cache.Store, isAbsent bool) {
	if informer := p.kind.Watched(); informer != nil && informer.HasSynced() {
		return informer.GetStore(), false
	}
	return nil, p.kind.IsAbsent()
}

func (p *PodGroups) setup(informer cache.SharedIndexInformer) error {
	if err := informer.SetTransform(withoutStatus); err != nil {
		return err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    p.report,
		UpdateFunc: func(_, is any) { p.report(is) },
		DeleteFunc: p.report,
	})
	return err
}

func (p *PodGroups) report(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if found, ok := object.(*unstructured.Unstructured); ok {
		p.changed(found)
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

// fillGang reads the PodGroup of a group that is placed as a gang. Any other group costs nothing.
func (r *reading) fillGang(ctx context.Context, g *lws.Group) error {
	if g.Leader == nil || !gang.IsTied(g.Leader) {
		return nil
	}
	key := types.NamespacedName{Namespace: g.Leader.Namespace, Name: gang.NameOf(g.Leader)}
	found, missing, err := r.gangObject(ctx, key)
	if apierrors.IsForbidden(err) && r.wholeSet {
		return nil // the rest of the set can be read
	}
	if err != nil || found == nil {
		g.GangMissing = missing
		return err
	}
	if !workload.BearsName(found, r.set.Name) {
		r.memory.Taken(identity.RefOf(identity.KindPodGroup, found)) // the set reads it live, too
	}
	g.Gang, err = sorted(ctx, r, []*unstructured.Unstructured{found}, leaderUID(g), func(object *unstructured.Unstructured) bool { return workload.IsGang(object, g.Leader) })
	return err
}

// gangObject reads an object of a kind that the API server need not serve. What memory lacks is
// read live: an object may be new, or lack our labels. A set reads live only names that are taken.
func (r *reading) gangObject(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, string, error) {
	if r.gangs == nil {
		return r.gangLive(ctx, key)
	}
	store, isAbsent := r.gangs.Store()
	if isAbsent {
		return nil, notServed, nil
	}
	if store == nil {
		return r.gangLive(ctx, key)
	}
	if object, exists, err := store.GetByKey(key.String()); err != nil || exists {
		found, _ := object.(*unstructured.Unstructured)
		return found, "", err
	}
	n := nameOf(identity.KindPodGroup, key)
	if r.wholeSet && !r.memory.isTaken(n) {
		return nil, "", nil
	}
	found, missing, err := r.gangLive(ctx, key)
	if found == nil && err == nil {
		r.memory.setFree(n)
	}
	return found, missing, err
}

// gangLive reads an object live.
func (r *reading) gangLive(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, string, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gang.Kind)
	err := r.live.Get(ctx, key, object)
	switch {
	case err == nil:
		return object, "", nil
	case apierrors.IsForbidden(err) && r.gangs == nil:
		return nil, "", err // the operator may have the permission that a user lacks
	case apierrors.IsForbidden(err):
		return nil, fmt.Sprintf("%s of %s cannot be read: permission is missing; groups of this set are not placed as gangs", gang.Resource.GroupResource(), gang.Volcano), nil
	case unserved(err):
		return nil, notServed, nil
	case apierrors.IsNotFound(err):
		return nil, "", nil
	}
	return nil, "", fmt.Errorf("read %s %q: %w", gang.Kind.Kind, key, err)
}

// fillNewGang reads what the operator needs to create or compare the group's object.
func (r *reading) fillNewGang(ctx context.Context, w *lws.GroupSnapshot) error {
	if w.Leader == nil || !gang.IsTied(w.Leader) {
		return nil
	}
	return r.knowRevision(ctx, w, w.Leader.Labels[lwsv1.RevisionKey])
}

// fillGangMissing reads why the gang scheduler of a set or of its groups is missing, if it is.
func (r *reading) fillGangMissing(ctx context.Context, w *lws.SetSnapshot) error {
	for i := range w.Groups {
		if w.Groups[i].GangMissing != "" {
			w.GangMissing = w.Groups[i].GangMissing
			return nil
		}
	}
	if !gang.IsWanted(w.Set, false) {
		return nil
	}
	_, missing, err := r.gangObject(ctx, client.ObjectKeyFromObject(w.Set))
	if apierrors.IsForbidden(err) {
		return nil
	}
	w.GangMissing = missing
	return err
}

var notServed = fmt.Sprintf("the API server does not serve %s: install %s, or take it away from this set; groups are not placed as gangs",
	gang.Resource.GroupResource(), gang.Volcano)
