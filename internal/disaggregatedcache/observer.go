// Package disaggregatedcache reads what decisions about DisaggregatedSets are made from.
//
// It knows the index of the cache, and what is left of an earlier incarnation. It refuses to decide anything, and it never
// writes.
package disaggregatedcache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/memory"
)

// indexSet finds objects by the set of their label.
const indexSet = "lockstep.disaggregatedset"

// Observer makes snapshots of sets. It is safe for concurrent use.
type Observer struct {
	// Sets has sets, scalers, their LeaderWorkerSets and pods, and Beside their Services and ControllerRevisions. Both may be
	// a live reader.
	Sets, Beside client.Reader
	// IsLive is set where the readers know labels alone, and no index.
	IsLive bool
	// Live must not be a cache.
	Live   client.Reader
	Memory *memory.Memory
	// Beyond returns what a set has that this version lacks. It may be nil.
	Beyond func(context.Context, types.NamespacedName) ([]string, error)
}

// Index adds the indexes of an Observer to the cache of LeaderWorkerSets and pods. It must run before the cache starts.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	for _, object := range []client.Object{&lwsv1.LeaderWorkerSet{}, &corev1.Pod{}} {
		if err := indexer.IndexField(ctx, object, indexSet, SetKey); err != nil {
			return fmt.Errorf("index %T: %w", object, err)
		}
	}
	return nil
}

// SetKey is the set of an object's label, as a key of the index.
func SetKey(object client.Object) []string {
	if name := object.GetLabels()[dsv1.SetNameLabelKey]; name != "" {
		return []string{name}
	}
	return nil
}

// Beside returns a cache of the Services and ControllerRevisions of sets. The cache of the manager has those of
// LeaderWorkerSets alone.
func Beside(ctx context.Context, mgr manager.Manager, failed toolscache.WatchErrorHandlerWithContext) (cache.Cache, error) {
	labelled, err := labels.Parse(dsv1.SetNameLabelKey)
	if err != nil {
		return nil, err
	}
	all, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), DefaultWatchErrorHandler: failed,
		DefaultLabelSelector: labelled, DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, err
	}
	for _, object := range []client.Object{&corev1.Service{}, &appsv1.ControllerRevision{}} {
		if err := all.IndexField(ctx, object, indexSet, SetKey); err != nil {
			return nil, fmt.Errorf("index %T: %w", object, err)
		}
	}
	return all, nil
}

// Set reads a set. The number of lists is the same whatever the numbers of its roles, slices and revisions.
func (o *Observer) Set(ctx context.Context, key types.NamespacedName, now time.Time) (w disaggregated.Snapshot, err error) {
	w = disaggregated.Snapshot{Set: &dsv1.DisaggregatedSet{}, Now: now}
	if err := o.Sets.Get(ctx, key, w.Set); err != nil {
		return w, err
	}
	if o.Beyond != nil {
		if w.Beyond, err = o.Beyond(ctx, key); err != nil {
			return w, err
		}
	}
	if _, is := w.Set.Annotations[dsv1.RevisionHashVersionKey]; is { // its children have hashes of another kind
		w.Beyond = append(w.Beyond, "annotation "+dsv1.RevisionHashVersionKey)
	}
	if w.Children, err = claimed[*lwsv1.LeaderWorkerSet](ctx, o, o.Sets, &lwsv1.LeaderWorkerSetList{}, w.Set); err != nil {
		return w, err
	}
	if w.Scalers, err = claimed[*dsv1.DisaggregatedSetRoleScaler](ctx, o, o.Sets, &dsv1.DisaggregatedSetRoleScalerList{}, w.Set); err != nil {
		return w, err
	}
	if w.Services, err = claimed[*corev1.Service](ctx, o, o.Beside, &corev1.ServiceList{}, w.Set); err != nil {
		return w, err
	}
	if w.Records, err = claimed[*appsv1.ControllerRevision](ctx, o, o.Beside, &appsv1.ControllerRevisionList{}, w.Set); err != nil {
		return w, err
	}
	if w.Pods, err = listed[*corev1.Pod](ctx, o, o.Sets, &corev1.PodList{}, w.Set, client.DisableReadYourWritesConsistency); err != nil || o.Memory == nil {
		return w, err
	}
	for _, refused := range o.Memory.RefusedOf(w.Set, func(string) (int, bool) { return identity.NoOrdinal, true }) {
		w.Refused = append(w.Refused, refused.Refusal)
	}
	return w, nil
}

// listed returns the objects of a list that have the label of a set.
func listed[T client.Object](ctx context.Context, o *Observer, from client.Reader, list client.ObjectList, set *dsv1.DisaggregatedSet, options ...client.ListOption) (all []T, err error) {
	_, isOfScalers := list.(*dsv1.DisaggregatedSetRoleScalerList)
	options = append(options, client.InNamespace(set.Namespace))
	if o.IsLive || isOfScalers { // they are few, and their kind may not be served when the indexes are made
		options = append(options, client.MatchingLabels{dsv1.SetNameLabelKey: set.Name})
	} else {
		options = append(options, client.MatchingFields{indexSet: set.Name})
	}
	if err := from.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("list what belongs to disaggregatedset %q: %w", set.Name, err)
	}
	err = meta.EachListItem(list, func(object runtime.Object) error {
		all = append(all, object.(T))
		return nil
	})
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) }) // a cache lists in any order
	return all, err
}

// claimed returns the objects with the label of a set, and those that a create found under a name that it needs, by their
// class. Nothing is adopted.
func claimed[T client.Object](ctx context.Context, o *Observer, from client.Reader, list client.ObjectList, set *dsv1.DisaggregatedSet) (claim identity.Claim[T], err error) {
	found, err := listed[T](ctx, o, from, list, set)
	if err != nil {
		return claim, err
	}
	taken, err := takenNames[T](ctx, o, set, found)
	if err != nil {
		return claim, err
	}
	found = append(found, taken...)
	lives := identity.Lives{}
	for _, object := range found {
		if owner := metav1.GetControllerOfNoCopy(object); owner != nil && isFormer(owner, set) {
			lives[owner.UID] = identity.Gone
		}
	}
	bears := func(object T) bool { return object.GetLabels()[dsv1.SetNameLabelKey] == set.Name }
	return identity.Sort(found, identity.Claimant{set.UID}, bears, lives), nil
}

// isFormer reports whether an owner is an earlier set of the same name: a name holds one object at a time.
func isFormer(owner *metav1.OwnerReference, set *dsv1.DisaggregatedSet) bool {
	return owner.Kind == string(identity.KindDisaggregatedSet) && owner.Name == set.Name && owner.UID != set.UID
}

// takenNames reads live the objects whose names a create found taken, unless the cache shows them by now.
func takenNames[T client.Object](ctx context.Context, o *Observer, set *dsv1.DisaggregatedSet, found []T) (taken []T, err error) {
	if o.Memory == nil {
		return nil, nil
	}
	kind := kindOf[T]()
	for _, n := range o.Memory.TakenOf(client.ObjectKeyFromObject(set), kind) {
		key := types.NamespacedName{Namespace: n.Namespace, Name: n.Name}
		if slices.ContainsFunc(found, func(object T) bool { return object.GetName() == n.Name }) {
			o.Memory.SetFree(kind, key)
			continue
		}
		object := newOf[T]()
		err := o.Live.Get(ctx, key, object)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("read %s %q: %w", kind, key, err)
		case err != nil:
			o.Memory.SetFree(kind, key)
		default:
			taken = append(taken, object)
		}
	}
	return taken, nil
}

// SetNames returns the keys of all sets in the cache. It does not wait.
func (o *Observer) SetNames(ctx context.Context) (names []types.NamespacedName) {
	var sets dsv1.DisaggregatedSetList
	if err := o.Sets.List(ctx, &sets, client.DisableReadYourWritesConsistency); err != nil {
		return nil // the next event of a set reads it
	}
	for i := range sets.Items {
		names = append(names, client.ObjectKeyFromObject(&sets.Items[i]))
	}
	return names
}
