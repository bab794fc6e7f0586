package lwscache

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// Observer makes snapshots of the cluster. It is safe for concurrent use.
type Observer struct {
	cached client.Reader
	live   client.Reader
	memory *Memory
	gangs  GangObjects
	// indexes are the indexes of the cache, or nil where nothing is cached.
	indexes *Indexes
	// set is the set that this copy reads, or zero.
	set types.NamespacedName
}

// New returns an Observer. cached must have CacheOptions and Index; live must not be a cache.
func New(cached, live client.Reader, memory *Memory) *Observer {
	return &Observer{cached: cached, live: live, memory: memory}
}

// WithIndexes returns an Observer that reads StatefulSets and pods from the cache's indexes.
func (o *Observer) WithIndexes(indexes *Indexes) *Observer {
	indexed := *o
	indexed.indexes = indexes
	return &indexed
}

// find reads one object from the cache, and live where a create found its name taken. It
// returns false if no object has the name.
func find[T client.Object](ctx context.Context, o *Observer, kind identity.Kind, key types.NamespacedName, into T) (T, bool, error) {
	n := name{kind: kind, namespace: key.Namespace, name: key.Name}
	err := o.cached.Get(ctx, key, into)
	switch {
	case err == nil:
		o.memory.setFree(n)
		return into, true, nil
	case !apierrors.IsNotFound(err):
		return into, false, fmt.Errorf("read %s %q: %w", kind, key, err)
	}
	return ifTaken[T](ctx, o, n)
}

// bearing is find as a list of none or one.
func bearing[T client.Object](ctx context.Context, o *Observer, kind identity.Kind, key types.NamespacedName, into T) ([]T, error) {
	object, found, err := find(ctx, o, kind, key, into)
	if err != nil || !found {
		return nil, err
	}
	return []T{object}, nil
}

// statefulSets returns the StatefulSet of a name, as a list of none or one.
func (o *Observer) statefulSets(ctx context.Context, key types.NamespacedName) ([]*appsv1.StatefulSet, error) {
	if o.indexes == nil || !o.isGroup(key) {
		return bearing(ctx, o, identity.KindStatefulSet, key, &appsv1.StatefulSet{})
	}
	n := name{kind: identity.KindStatefulSet, namespace: key.Namespace, name: key.Name}
	sts, found, err := o.indexes.statefulSet(key)
	switch {
	case err != nil:
		return nil, err
	case found:
		o.memory.setFree(n)
	default:
		if sts, found, err = ifTaken[*appsv1.StatefulSet](ctx, o, n); err != nil || !found {
			return nil, err
		}
	}
	return []*appsv1.StatefulSet{sts}, nil
}

// isGroup reports whether a set is being read and the key is not its own. What groups own need
// not show our last writes then: the set writes none of it.
func (o *Observer) isGroup(key types.NamespacedName) bool {
	return o.set.Name != "" && key != o.set
}

func (o *Observer) services(ctx context.Context, key types.NamespacedName) ([]*corev1.Service, error) {
	return bearing(ctx, o, identity.KindService, key, &corev1.Service{})
}

// workersUnder returns the pods that have names of a group's workers.
func (o *Observer) workersUnder(ctx context.Context, group types.NamespacedName) ([]*corev1.Pod, error) {
	if o.isGroup(group) {
		return o.podsShown(ctx, group)
	}
	return o.podsOneByOne(ctx, group)
}

// PodNames returns the names of cached pods that are named as a StatefulSet would name its own,
// whatever their owner. It does not wait, so event handlers may call it.
func (o *Observer) PodNames(ctx context.Context, statefulSet types.NamespacedName) ([]string, error) {
	pods, err := o.podsShown(ctx, statefulSet)
	names := make([]string, 0, len(pods))
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names, err
}

// SetNames returns the keys of all cached sets. It does not wait.
func (o *Observer) SetNames(ctx context.Context) []types.NamespacedName {
	var list lwsv1.LeaderWorkerSetList
	if err := o.cached.List(ctx, &list, client.DisableReadYourWritesConsistency); err != nil {
		return nil // the cache has synced sets before controllers start
	}
	names := make([]types.NamespacedName, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, client.ObjectKeyFromObject(&list.Items[i]))
	}
	return names
}

// revisions returns the ControllerRevisions that the set's UID owns, and those with its label.
func (o *Observer) revisions(ctx context.Context, set *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error) {
	var all []*appsv1.ControllerRevision
	seen := map[types.UID]bool{}
	for _, key := range []string{byUID(string(set.UID)), byName(set.Name)} {
		var list appsv1.ControllerRevisionList
		if err := o.cached.List(ctx, &list, client.InNamespace(set.Namespace), client.MatchingFields{indexClaim: key}); err != nil {
			return nil, fmt.Errorf("list revisions of %q: %w", set.Name, err)
		}
		for _, revision := range pointers(list.Items) {
			if !seen[revision.UID] && !OfStatefulSet(revision) {
				seen[revision.UID] = true
				all = append(all, revision)
			}
		}
	}
	key := types.NamespacedName{Namespace: set.Namespace, Name: set.Name}
	taken, err := o.takenRevisions(ctx, key, all)
	return append(all, taken...), err
}

// OfStatefulSet reports whether a revision is a StatefulSet's own history. It has the labels of
// the pod template, and so ours.
func OfStatefulSet(revision metav1.Object) bool {
	owner := metav1.GetControllerOfNoCopy(revision)
	return owner != nil && owner.Kind == string(identity.KindStatefulSet)
}

func pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}
