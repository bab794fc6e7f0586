// Package lwscache reads what decisions about sets and groups are made from.
//
// It knows the indexes of the cache, follows chains of owners, and reads live what the cache may
// lack. It refuses to decide anything, and it never writes.
package lwscache

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/budgetcache"
	"lockstep.dev/lockstep/internal/definitioncache"
	"lockstep.dev/lockstep/internal/gangcache"
	"lockstep.dev/lockstep/internal/identity"
)

// Observer makes snapshots of the cluster. It is safe for concurrent use.
type Observer struct {
	cached client.Reader
	live   client.Reader
	memory *Memory
	// Gangs holds Volcano's PodGroups. Without it, each read asks the API server.
	Gangs gangcache.Objects
	// Scheduler places sets with spec.scheduling. Without one, such sets are left alone.
	Scheduler string
	// ProgressDeadline is that of sets without the annotation, or zero.
	ProgressDeadline time.Duration
	// Workloads and PodGroups hold objects of Kubernetes' own scheduler. Without them, each read asks the API server.
	Workloads, PodGroups gangcache.Objects
	// Budgets reads what limits evictions.
	Budgets budgetcache.Budgets
	// Stores are those of the cache itself, by kind. Where one lacks, the cache lists copies: a set that starts has all
	// its objects listed at each event.
	Stores map[identity.Kind]toolscache.Indexer
	// Logs is nil where no logs are kept.
	Logs *Logs
	// Definition is nil where all fields of sets are known.
	Definition *definitioncache.Definition
}

// New returns an Observer. cached must have CacheOptions and Index; live must not be a cache.
func New(cached, live client.Reader, memory *Memory) *Observer {
	return &Observer{cached: cached, live: live, memory: memory, Stores: map[identity.Kind]toolscache.Indexer{}}
}

// reading is one read of a set or a group: what it finds out about owners serves all of it.
type reading struct {
	*Observer
	now   time.Time
	set   *lwsv1.LeaderWorkerSet
	lives identity.Lives
	// owners creates the leaders of the set: its StatefulSet, also one to adopt, or the ReplicaSets of its Deployment.
	owners identity.Claimant
	// isHash is set once the makers are read of a set of Hash groups.
	isHash bool
	// former names what made the leaders while the set had groups of the other identity, or is empty.
	former string
	// wholeSet is set while a set is read. What its groups own need not show the last writes of
	// this process then: the set writes none of it.
	wholeSet bool
}

// continued returns a reading that goes on with what a snapshot knows about owners.
func (o *Observer) continued(set *lwsv1.LeaderWorkerSet, lives identity.Lives, now time.Time) *reading {
	r := &reading{Observer: o, now: now, set: set, lives: identity.Lives{}}
	maps.Copy(r.lives, lives)
	return r
}

// sorted classifies objects that have one of our names. It finds out whether their owners exist: a claimant does, and
// costs no read.
func sorted[T client.Object](ctx context.Context, r *reading, found []T, claimant identity.Claimant, ours func(T) bool) (claim identity.Claim[T], err error) {
	for _, object := range found {
		owners := object.GetOwnerReferences()
		for i := range owners {
			if slices.Contains(claimant, owners[i].UID) {
				continue
			}
			if _, err := r.life(ctx, object.GetNamespace(), &owners[i], chainLength); err != nil {
				return claim, err
			}
		}
	}
	return identity.Sort(found, claimant, ours, r.lives), nil
}

// claimed reads and classifies the object of a name.
func claimed[T client.Object](ctx context.Context, r *reading, kind identity.Kind, key types.NamespacedName, into T, claimant identity.Claimant, ours func(T) bool) (identity.Claim[T], error) {
	found, err := named(ctx, r.Observer, kind, key, into)
	claim, unread := sorted(ctx, r, found, claimant, ours)
	return claim, cmp.Or(err, unread)
}

// named reads the object of a name, as a list of none or one: from the cache, and live where a
// create found the name taken.
func named[T client.Object](ctx context.Context, o *Observer, kind identity.Kind, key types.NamespacedName, into T, options ...client.GetOption) ([]T, error) {
	err := o.cached.Get(ctx, key, into, options...)
	if apierrors.IsNotFound(err) && o.memory.IsTaken(kind, key) {
		if err = o.live.Get(ctx, key, into); err == nil {
			return []T{into}, nil
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read %s %q: %w", kind, key, err)
	}
	o.memory.SetFree(kind, key)
	if err != nil {
		return nil, nil
	}
	return []T{into}, nil
}

// Pods returns the cached pods that are named as a StatefulSet would name its own, whatever their owner, or those that
// belong to a set or a leader in the same way in a Hash set. It does not wait, so event handlers may call it.
// Writes to pods need no wait: a second create of a pod is refused, and so is a delete.
func (o *Observer) Pods(ctx context.Context, statefulSet types.NamespacedName) ([]*corev1.Pod, error) {
	return o.podsWith(ctx, statefulSet.Namespace, byName(statefulSet.Name))
}

// podsWith returns the cached pods with a key of the index.
func (o *Observer) podsWith(ctx context.Context, namespace, key string) ([]*corev1.Pod, error) {
	return stored[*corev1.Pod](ctx, o, identity.KindPod, &corev1.PodList{}, namespace, key)
}

// stored returns the cached objects of a kind with a key of the index. It does not wait.
func stored[T client.Object](ctx context.Context, o *Observer, kind identity.Kind, list client.ObjectList, namespace, key string) ([]T, error) {
	if store := o.Stores[kind]; store != nil {
		return indexed[T](store.ByIndex("field:"+indexClaim, namespace+"/"+key)) // as the cache names index and keys
	}
	return listed[T](ctx, o.cached, list, fmt.Sprintf("%ss of %q", kind, key), client.InNamespace(namespace), keyed(key), client.DisableReadYourWritesConsistency)
}

func indexed[T client.Object](found []any, err error) (all []T, _ error) {
	for _, object := range found {
		all = append(all, object.(T))
	}
	return all, err
}

// keyed selects the objects that the index has under a key.
func keyed(key string) client.ListOption { return client.MatchingFields{indexClaim: key} }

// listed returns the objects of a list. An error says what they are.
func listed[T client.Object](ctx context.Context, from client.Reader, list client.ObjectList, what string, options ...client.ListOption) (all []T, err error) {
	if err := from.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("list %s: %w", what, err)
	}
	err = meta.EachListItem(list, func(object runtime.Object) error {
		all = append(all, object.(T))
		return nil
	})
	return all, err
}

// SetNames returns the keys of all cached sets. It does not wait.
func (o *Observer) SetNames(ctx context.Context) (names []types.NamespacedName) {
	sets, _ := listed[*lwsv1.LeaderWorkerSet](ctx, o.cached, &lwsv1.LeaderWorkerSetList{}, "sets", client.DisableReadYourWritesConsistency)
	for _, set := range sets { // the cache has synced sets before controllers start
		names = append(names, client.ObjectKeyFromObject(set))
	}
	return names
}

func uids[T metav1.Object](objects []T) (all []types.UID) {
	for _, object := range objects {
		all = append(all, object.GetUID())
	}
	return all
}
