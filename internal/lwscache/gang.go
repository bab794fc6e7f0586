package lwscache

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// GangObjects holds objects of one kind that a gang scheduler reads in memory.
type GangObjects interface {
	// Store returns the objects, or nil while memory may lack some. isAbsent reports whether the
	// API server is known not to serve them.
	Store() (store cache.Indexer, isAbsent bool)
}

// Watched watches one kind of a gang scheduler while the API server serves it.
type Watched struct {
	kind    *kinds.Kind
	isExact bool
	changed func(*unstructured.Unstructured)
}

// NewPodGroups returns Volcano's PodGroups, which a Starter is to run. changed is called with every object
// that comes, changes or goes, and turned when the kind comes or goes.
func NewPodGroups(starter *kinds.Starter, changed func(*unstructured.Unstructured), turned func()) *Watched {
	return newWatched(starter, &Watched{changed: changed}, gang.Kind, turned)
}

// NewNative is the same of a kind of Kubernetes' own scheduler, at that version alone.
func NewNative(starter *kinds.Starter, kind schema.GroupVersionKind, changed func(*unstructured.Unstructured), turned func()) *Watched {
	return newWatched(starter, &Watched{changed: changed, isExact: true}, kind, turned)
}

func newWatched(starter *kinds.Starter, w *Watched, kind schema.GroupVersionKind, turned func()) *Watched {
	w.kind = &kinds.Kind{GroupVersionKind: kind, Selector: lwsv1.SetNameLabelKey, Setup: w.setup, Turned: func([]any) { turned() }}
	starter.Add(w.kind)
	return w
}

// Store implements GangObjects.
func (w *Watched) Store() (store cache.Indexer, isAbsent bool) {
	informer := w.kind.Watched()
	if informer != nil && w.isExact && w.kind.Resource().Version != w.kind.Version {
		return nil, true
	}
	if informer != nil && informer.HasSynced() {
		return informer.GetIndexer(), false
	}
	return nil, w.kind.IsAbsent()
}

func (w *Watched) setup(informer cache.SharedIndexInformer) error {
	if err := informer.AddIndexers(cache.Indexers{indexSet: setLabel}); err != nil {
		return err
	}
	if err := informer.SetTransform(withoutStatus); err != nil {
		return err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    w.report,
		UpdateFunc: func(_, is any) { w.report(is) },
		DeleteFunc: w.report,
	})
	return err
}

func (w *Watched) report(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if found, ok := object.(*unstructured.Unstructured); ok {
		w.changed(found)
	}
}

// indexSet finds objects by the label of their set.
const indexSet = "set"

func setLabel(object any) ([]string, error) {
	found, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	return []string{found.GetNamespace() + "/" + found.GetLabels()[lwsv1.SetNameLabelKey]}, nil
}

// withoutStatus drops what no decision reads.
func withoutStatus(object any) (any, error) {
	if found, ok := object.(*unstructured.Unstructured); ok {
		unstructured.RemoveNestedField(found.Object, "metadata", "managedFields")
		unstructured.RemoveNestedField(found.Object, "status")
	}
	return object, nil
}

// gangKind is a kind that a gang scheduler reads.
type gangKind struct {
	schema.GroupVersionKind
	is identity.Kind
	// objects are those in memory, or nil.
	objects GangObjects
	// unserved and forbidden say what is missing.
	unserved, forbidden string
}

func (o *Observer) volcano() gangKind {
	return gangKind{
		GroupVersionKind: gang.Kind, is: identity.KindPodGroup, objects: o.Gangs, unserved: notServed,
		forbidden: fmt.Sprintf("%s of %s cannot be read: permission is missing; groups of this set are not placed as gangs", gang.Resource.GroupResource(), gang.Volcano),
	}
}

func (o *Observer) workloadKind() gangKind {
	return native(gang.WorkloadKind, identity.KindWorkload, o.Workloads)
}

func (o *Observer) podGroupKind() gangKind {
	return native(gang.NativePodGroupKind, identity.KindPodGroup, o.PodGroups)
}

func native(kind schema.GroupVersionKind, is identity.Kind, objects GangObjects) gangKind {
	return gangKind{
		GroupVersionKind: kind, is: is, objects: objects,
		unserved:  fmt.Sprintf("the API server does not serve %s %s: serve it, with the feature gate GenericWorkload; a new set gets no pods until then", kind.GroupVersion(), kind.Kind),
		forbidden: fmt.Sprintf("%s %s cannot be read: permission is missing; a new set gets no pods until then", kind.GroupVersion(), kind.Kind),
	}
}

// fillGang reads the PodGroups of a group that is placed as a gang. Any other group costs nothing.
func (r *reading) fillGang(ctx context.Context, g *lws.Group) error {
	if r.isNative() {
		return r.fillPodGroups(ctx, g)
	}
	if g.Leader == nil || !gang.IsTied(g.Leader) {
		return nil
	}
	key := types.NamespacedName{Namespace: g.Leader.Namespace, Name: gang.NameOf(g.Leader)}
	found, missing, err := r.gangObject(ctx, r.volcano(), key)
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

// isNative reports whether Kubernetes' own scheduler places the set.
func (r *reading) isNative() bool {
	return r.Scheduler == gang.Kubernetes && r.set.Spec.Scheduling != nil
}

// fillPodGroups reads the PodGroups that a group needs.
func (r *reading) fillPodGroups(ctx context.Context, g *lws.Group) error {
	if g.Leader == nil || !gang.IsHanded(g.Leader) {
		return nil
	}
	var all []*unstructured.Unstructured
	for _, name := range gang.PodGroupNames(g.Leader) {
		found, missing, err := r.gangObject(ctx, r.podGroupKind(), types.NamespacedName{Namespace: r.set.Namespace, Name: name})
		if err != nil {
			return r.unlessForbidden(err)
		}
		if found != nil {
			all = append(all, found)
		}
		g.GangMissing = missing
	}
	var err error
	g.PodGroups, err = r.sortNative(ctx, all)
	return err
}

// unlessForbidden drops the error of a user who may not read what the operator may.
func (r *reading) unlessForbidden(err error) error {
	if apierrors.IsForbidden(err) && r.wholeSet {
		return nil // the rest of the set can be read
	}
	return err
}

// fillPodGroupsOfSet reads all PodGroups of a set, and which of them the pods in memory use.
func (r *reading) fillPodGroupsOfSet(ctx context.Context, w *lws.SetSnapshot) error {
	if !r.isNative() || w.GangMissing != "" {
		return nil
	}
	labelled, err := r.labelledPodGroups(ctx)
	if err != nil {
		return r.unlessForbidden(err)
	}
	if w.PodGroups, err = r.sortNative(ctx, labelled); err != nil {
		return err
	}
	w.PodGroupsInUse = gang.InUse(slices.Concat(w.Leaders.Owned, w.Leaders.Previous, w.Leaders.Orphans, w.Leaders.Foreign))
	for _, object := range w.PodGroups.Owned {
		if w.PodGroupsInUse[object.GetName()] {
			continue
		}
		workers, err := r.workersIn(ctx, object)
		if err != nil {
			return err
		}
		maps.Copy(w.PodGroupsInUse, gang.InUse(workers))
	}
	return nil
}

// labelledPodGroups returns the PodGroups with the label of a set.
func (r *reading) labelledPodGroups(ctx context.Context) (all []*unstructured.Unstructured, err error) {
	if r.PodGroups == nil {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gang.NativePodGroupKind)
		list.SetKind(gang.NativePodGroupKind.Kind + "List")
		if err := r.live.List(ctx, list, client.InNamespace(r.set.Namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: r.set.Name}); err != nil && !unserved(err) {
			return nil, fmt.Errorf("list the PodGroups of %q: %w", r.set.Name, err)
		}
		return pointers(list.Items), nil
	}
	store, _ := r.PodGroups.Store()
	if store == nil {
		return nil, nil // the set is read again once memory has them
	}
	found, err := store.ByIndex(indexSet, r.set.Namespace+"/"+r.set.Name)
	for _, object := range found {
		if object, ok := object.(*unstructured.Unstructured); ok {
			all = append(all, object)
		}
	}
	return all, err
}

// workersIn returns the workers in memory that may be in a PodGroup of a group: those of its ordinal, and of Hash groups.
func (r *reading) workersIn(ctx context.Context, podGroup *unstructured.Unstructured) ([]*corev1.Pod, error) {
	ofHash, err := r.podsWith(ctx, r.set.Namespace, underName(r.set.Name))
	if err != nil {
		return nil, err
	}
	pods, err := r.podsWith(ctx, r.set.Namespace, byName(r.set.Name+"-"+podGroup.GetLabels()[lwsv1.GroupIndexLabelKey]))
	return slices.Concat(ofHash, pods), err
}

// podGroupsInUse reads live which PodGroups the pods of a set use.
func (r *reading) podGroupsInUse(ctx context.Context) (map[string]bool, error) {
	var list corev1.PodList
	if err := r.live.List(ctx, &list, client.InNamespace(r.set.Namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: r.set.Name}); err != nil {
		return nil, fmt.Errorf("list the pods of %q: %w", r.set.Name, err)
	}
	return gang.InUse(pointers(list.Items)), nil
}

// sortNative classifies objects of Kubernetes' own scheduler. None is adopted: an owner of another set, or
// no owner, is a user's doing.
func (r *reading) sortNative(ctx context.Context, found []*unstructured.Unstructured) (identity.Claim[*unstructured.Unstructured], error) {
	return sorted(ctx, r, found, identity.Claimant{r.set.UID}, func(*unstructured.Unstructured) bool { return false })
}

// fillWorkload reads the Workload of a set, and the PodGroup of all its pods if it has one.
func (r *reading) fillWorkload(ctx context.Context, w *lws.SetSnapshot) (err error) {
	if w.Scheduler = r.Scheduler; !r.isNative() {
		return nil
	}
	if w.Workload, w.GangMissing, err = r.nativeObject(ctx, r.workloadKind(), gang.WorkloadName(r.set)); err != nil || w.GangMissing != "" {
		return r.unlessForbidden(err)
	}
	if gang.LevelOf(r.set.Spec.Scheduling) == gang.SetLevel {
		kind := r.podGroupKind()
		if w.AwaitsLeaders() && kind.objects != nil { // memory may show one that was deleted since
			kind.objects = liveObjects{}
		}
		w.PodGroup, w.GangMissing, err = r.nativeObject(ctx, kind, gang.SetPodGroupName(r.set))
	}
	return r.unlessForbidden(err)
}

// fillGroupWorkload is the same for a group whose leader belongs to a Workload.
func (r *reading) fillGroupWorkload(ctx context.Context, w *lws.GroupSnapshot) (err error) {
	if w.Leader != nil && r.isNative() {
		w.Workload, _, err = r.nativeObject(ctx, r.workloadKind(), gang.WorkloadName(r.set))
	}
	return err
}

func (r *reading) nativeObject(ctx context.Context, kind gangKind, name string) (claim identity.Claim[*unstructured.Unstructured], missing string, err error) {
	found, missing, err := r.gangObject(ctx, kind, types.NamespacedName{Namespace: r.set.Namespace, Name: name})
	if err != nil || found == nil {
		return claim, missing, err
	}
	claim, err = r.sortNative(ctx, []*unstructured.Unstructured{found})
	return claim, "", err
}

// liveObjects are read live, each time.
type liveObjects struct{}

// Store implements GangObjects.
func (liveObjects) Store() (store cache.Indexer, isAbsent bool) { return nil, false }

// gangObject reads an object of a kind that the API server need not serve. What memory lacks is
// read live: an object may be new, or lack our labels. A set reads live only names that are taken.
func (r *reading) gangObject(ctx context.Context, kind gangKind, key types.NamespacedName) (*unstructured.Unstructured, string, error) {
	if kind.objects == nil {
		return r.gangLive(ctx, kind, key)
	}
	store, isAbsent := kind.objects.Store()
	if isAbsent {
		return nil, kind.unserved, nil
	}
	if store == nil {
		return r.gangLive(ctx, kind, key)
	}
	if object, exists, err := store.GetByKey(key.String()); err != nil || exists {
		found, _ := object.(*unstructured.Unstructured)
		return found, "", err
	}
	n := nameOf(kind.is, key)
	if r.wholeSet && !r.memory.isTaken(n) {
		return nil, "", nil
	}
	found, missing, err := r.gangLive(ctx, kind, key)
	if found == nil && err == nil {
		r.memory.setFree(n)
	}
	return found, missing, err
}

// gangLive reads an object live.
func (r *reading) gangLive(ctx context.Context, kind gangKind, key types.NamespacedName) (*unstructured.Unstructured, string, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind.GroupVersionKind)
	err := r.live.Get(ctx, key, object)
	switch {
	case err == nil:
		return object, "", nil
	case apierrors.IsForbidden(err) && kind.objects == nil:
		return nil, "", err // the operator may have the permission that a user lacks
	case apierrors.IsForbidden(err):
		return nil, kind.forbidden, nil
	case unserved(err):
		return nil, kind.unserved, nil
	case apierrors.IsNotFound(err):
		return nil, "", nil
	}
	return nil, "", fmt.Errorf("read %s %q: %w", kind.Kind, key, err)
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
	if w.GangMissing != "" { // the Workload cannot be read, and neither can PodGroups
		return nil
	}
	for i := range w.Groups {
		if w.Groups[i].GangMissing != "" {
			w.GangMissing = w.Groups[i].GangMissing
			return nil
		}
	}
	if !gang.IsWanted(w.Set, false) || w.Set.Spec.Scheduling != nil {
		return nil
	}
	_, missing, err := r.gangObject(ctx, r.volcano(), client.ObjectKeyFromObject(w.Set))
	if apierrors.IsForbidden(err) {
		return nil
	}
	w.GangMissing = missing
	return err
}

var notServed = fmt.Sprintf("the API server does not serve %s: install %s, or take it away from this set; groups are not placed as gangs",
	gang.Resource.GroupResource(), gang.Volcano)
