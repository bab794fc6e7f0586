package lwscache

import (
	"context"
	"fmt"
	"time"

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
	// shelves are what the cache holds itself, or nil where nothing is cached.
	shelves *Shelves
	// wide is a look at a whole set, which must not fail for one kind that the
	// reader may not see.
	wide bool
	// now is when the look that this is a copy for began, or zero between looks.
	now time.Time
	// stock is what was read at once for this look, or nil.
	stock *stock
}

// New returns an Observer that reads through cached, which must have been given
// CacheOptions and Index, and takes its second looks through live.
func New(cached, live client.Reader, memory *Memory) *Observer {
	return &Observer{cached: cached, live: live, memory: memory}
}

// WithShelves returns an Observer that takes StatefulSets and pods off the shelves of
// the cache that it reads through.
func (o *Observer) WithShelves(shelves *Shelves) *Observer {
	shelved := *o
	shelved.shelves = shelves
	return &shelved
}

// at is the observer for one look: what it finds is dated now.
func (o *Observer) at(now time.Time) *Observer {
	look := *o
	look.now = now
	return &look
}

// find reads one object from the cache, and what was found hidden under its name
// when the cache has none. It returns false when nothing bears the name.
func find[T client.Object](ctx context.Context, o *Observer, kind identity.Kind, key types.NamespacedName, into T) (T, bool, error) {
	err := o.cached.Get(ctx, key, into)
	switch {
	case err == nil:
		o.memory.unhide(name{kind: kind, namespace: key.Namespace, name: key.Name})
		return into, true, nil
	case !apierrors.IsNotFound(err):
		return into, false, fmt.Errorf("read %s %q: %w", kind, key, err)
	}
	hidden, err := hiddenBearing[T](ctx, o, kind, key)
	if err != nil || len(hidden) == 0 {
		return into, false, err
	}
	return hidden[0], true, nil
}

// hiddenBearing returns what was found hidden under a name, as a list of none or one.
func hiddenBearing[T client.Object](ctx context.Context, o *Observer, kind identity.Kind, key types.NamespacedName) ([]T, error) {
	object, found, err := o.lookAgain(ctx, name{kind: kind, namespace: key.Namespace, name: key.Name})
	if err != nil || !found {
		return nil, err
	}
	if known, ok := object.(T); ok {
		return []T{known}, nil
	}
	return nil, nil
}

// bearing is find as a list of none or one.
func bearing[T client.Object](ctx context.Context, o *Observer, kind identity.Kind, key types.NamespacedName, into T) ([]T, error) {
	object, found, err := find(ctx, o, kind, key, into)
	if err != nil || !found {
		return nil, err
	}
	return []T{object}, nil
}

func (o *Observer) statefulSets(ctx context.Context, key types.NamespacedName) ([]*appsv1.StatefulSet, error) {
	if sts, known := o.stock.statefulSet(key); known {
		if sts != nil {
			o.memory.unhide(name{kind: identity.KindStatefulSet, namespace: key.Namespace, name: key.Name})
			return []*appsv1.StatefulSet{sts}, nil
		}
		return hiddenBearing[*appsv1.StatefulSet](ctx, o, identity.KindStatefulSet, key)
	}
	return bearing(ctx, o, identity.KindStatefulSet, key, &appsv1.StatefulSet{})
}

func (o *Observer) services(ctx context.Context, key types.NamespacedName) ([]*corev1.Service, error) {
	return bearing(ctx, o, identity.KindService, key, &corev1.Service{})
}

// leadersUnder returns the pods that bear names of a set's leaders, and what stands
// unseen under such names.
func (o *Observer) leadersUnder(ctx context.Context, set types.NamespacedName) ([]*corev1.Pod, error) {
	pods, err := o.podsSettled(ctx, set)
	if err != nil {
		return nil, err
	}
	hidden, err := hiddenUnder(ctx, o, identity.KindPod, set, pods)
	return append(pods, hidden...), err
}

// workersUnder returns the same of a group's workers.
func (o *Observer) workersUnder(ctx context.Context, group types.NamespacedName) ([]*corev1.Pod, error) {
	pods, known := o.stock.podsOf(group)
	if !known {
		var err error
		if pods, err = o.podsOneByOne(ctx, group); err != nil {
			return nil, err
		}
	}
	hidden, err := hiddenUnder(ctx, o, identity.KindPod, group, pods)
	return append(pods, hidden...), err
}

// PodNames returns the names of the pods that the cache holds under names that
// the StatefulSet with the given key would give, whoever they belong to. It does
// not look anywhere else and waits for nothing, so that event handlers may call it.
func (o *Observer) PodNames(ctx context.Context, statefulSet types.NamespacedName) ([]string, error) {
	pods, err := o.podsShown(ctx, statefulSet)
	names := make([]string, 0, len(pods))
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names, err
}

// SetNames returns the keys of all sets that the cache holds. It waits for nothing.
func (o *Observer) SetNames(ctx context.Context) []types.NamespacedName {
	var list lwsv1.LeaderWorkerSetList
	if err := o.cached.List(ctx, &list, client.DisableReadYourWritesConsistency); err != nil {
		return nil // the cache holds sets or the process would not have started
	}
	names := make([]types.NamespacedName, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, client.ObjectKeyFromObject(&list.Items[i]))
	}
	return names
}

// revisions returns the ControllerRevisions that belong to the set's UID, and
// those that merely bear its name.
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
	hidden, err := hiddenUnder(ctx, o, identity.KindControllerRevision, key, all)
	return append(all, hidden...), err
}

// OfStatefulSet tells whether a revision is a StatefulSet's own history. It bears
// the labels of the pod template, ours among them, and is none of our business.
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
