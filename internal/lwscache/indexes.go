package lwscache

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Indexes return the cache's own StatefulSets and pods, by the keys of indexClaim. A client's list
// copies each object: for a set of 500 groups, a megabyte for each reconcile.
type Indexes struct{ statefulSets, pods toolscache.Indexer }

// indexKeys finds objects by namespace and key; indexNothing finds none. A list by the latter
// returns once the cache shows this process's own writes.
const (
	indexKeys    = "lockstep.keys"
	indexNothing = "lockstep.nothing"
)

// NewIndexes indexes StatefulSets and pods. It must run before the cache starts.
func NewIndexes(ctx context.Context, informers cache.Informers) (*Indexes, error) {
	statefulSets, err := indexer(ctx, informers, &appsv1.StatefulSet{}, toolscache.Indexers{})
	if err != nil {
		return nil, err
	}
	pods, err := indexer(ctx, informers, &corev1.Pod{}, toolscache.Indexers{indexKeys: indexKeysOf})
	if err != nil {
		return nil, err
	}
	if err := informers.IndexField(ctx, &corev1.Pod{}, indexNothing, func(client.Object) []string { return nil }); err != nil {
		return nil, fmt.Errorf("index pods by nothing: %w", err)
	}
	return &Indexes{statefulSets, pods}, nil
}

func indexer(ctx context.Context, informers cache.Informers, object client.Object, indexers toolscache.Indexers) (toolscache.Indexer, error) {
	informer, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("index %T: %w", object, err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("index %T: a %T holds no objects of its own", object, informer)
	}
	if err := shared.AddIndexers(indexers); err != nil {
		return nil, fmt.Errorf("index %T: %w", object, err)
	}
	return shared.GetIndexer(), nil
}

func indexKeysOf(object any) ([]string, error) {
	known, ok := object.(client.Object)
	if !ok {
		return nil, fmt.Errorf("a cache holds a %T, which has no metadata", object)
	}
	keys := claimKeys(known)
	for i := range keys {
		keys[i] = indexKey(known.GetNamespace(), keys[i])
	}
	return keys, nil
}

func indexKey(namespace, key string) string { return one(namespace + "/" + key) }

// indexed returns the cached objects of a key. They must not be changed.
func indexed[T client.Object](indexer toolscache.Indexer, namespace, key string) ([]T, error) {
	objects, err := indexer.ByIndex(indexKeys, indexKey(namespace, key))
	if err != nil {
		return nil, fmt.Errorf("find %q: %w", key, err)
	}
	all := make([]T, 0, len(objects))
	for _, object := range objects {
		known, ok := object.(T)
		if !ok {
			return nil, fmt.Errorf("a cache holds a %T among others of %T", object, all)
		}
		all = append(all, known)
	}
	return all, nil
}

// statefulSet returns the StatefulSet of a name as the cache holds it. It must not be changed.
func (s *Indexes) statefulSet(key types.NamespacedName) (*appsv1.StatefulSet, bool, error) {
	object, found, err := s.statefulSets.GetByKey(key.String())
	sts, _ := object.(*appsv1.StatefulSet)
	return sts, found && sts != nil, err
}

// podsShown returns the cached pods named "<parent>-<ordinal>", whatever their owner. It does not
// wait.
func (o *Observer) podsShown(ctx context.Context, parent types.NamespacedName) ([]*corev1.Pod, error) {
	if o.indexes != nil {
		return indexed[*corev1.Pod](o.indexes.pods, parent.Namespace, byName(parent.Name))
	}
	var list corev1.PodList
	err := o.listed(ctx, &list, parent.Namespace, byName(parent.Name), client.DisableReadYourWritesConsistency)
	return pointers(list.Items), err
}

// podsSettled is podsShown once the cache shows all writes of this process to pods. A set must
// not count leaders that it deleted.
func (o *Observer) podsSettled(ctx context.Context, parent types.NamespacedName) ([]*corev1.Pod, error) {
	if o.indexes == nil {
		var list corev1.PodList
		err := o.listed(ctx, &list, parent.Namespace, byName(parent.Name))
		return pointers(list.Items), err
	}
	var none corev1.PodList
	if err := o.cached.List(ctx, &none, client.InNamespace(parent.Namespace), client.MatchingFields{indexNothing: ""}); err != nil {
		return nil, fmt.Errorf("wait for pods under %q: %w", parent, err)
	}
	return o.podsShown(ctx, parent)
}

// podsOneByOne is podsShown once the cache shows this process's writes to those pods. A group
// does not wait for writes to the pods of others.
func (o *Observer) podsOneByOne(ctx context.Context, parent types.NamespacedName) ([]*corev1.Pod, error) {
	if o.indexes == nil {
		return o.podsSettled(ctx, parent)
	}
	shown, err := o.podsShown(ctx, parent)
	if err != nil {
		return nil, err
	}
	settled := make([]*corev1.Pod, 0, len(shown))
	for _, pod := range shown {
		now := &corev1.Pod{}
		err := o.cached.Get(ctx, client.ObjectKeyFromObject(pod), now)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("read pod %q: %w", pod.Name, err)
		default:
			settled = append(settled, now)
		}
	}
	return settled, nil
}

// listed fills a list by the index.
func (o *Observer) listed(ctx context.Context, list client.ObjectList, namespace, key string, options ...client.ListOption) error {
	options = append(options, client.InNamespace(namespace), client.MatchingFields{indexClaim: key})
	if err := o.cached.List(ctx, list, options...); err != nil {
		return fmt.Errorf("list objects under %q: %w", key, err)
	}
	return nil
}
