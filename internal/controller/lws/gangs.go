package lws

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/lwscache"
)

// newPodGroups watches the objects of gang schedulers while the manager runs.
func newPodGroups(mgr ctrl.Manager) (*lwscache.PodGroups, error) {
	clients, err := kinds.ClientsFor(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("read objects of gang schedulers: %w", err)
	}
	groups := lwscache.NewPodGroups(clients)
	return groups, mgr.Add(manager.RunnableFunc(groups.Run))
}

// gangEvents tells a controller of the objects of gang schedulers. keys are whom an
// object concerns, and all whom it concerns that a kind came or went.
func gangEvents(groups *lwscache.PodGroups, keys keysOf, after time.Duration, all func(context.Context) []types.NamespacedName) source.Source {
	var mu sync.Mutex
	var tell queue
	add := func(names []types.NamespacedName) {
		mu.Lock()
		defer mu.Unlock()
		for _, name := range names {
			if tell != nil {
				tell.AddAfter(ctrl.Request{NamespacedName: name}, after)
			}
		}
	}
	groups.Follow(
		func(object *unstructured.Unstructured) { add(keys(context.Background(), object)) },
		func() { add(all(context.Background())) },
	)
	return source.Func(func(_ context.Context, q queue) error {
		mu.Lock()
		defer mu.Unlock()
		tell = q
		return nil
	})
}

// groupOfGang returns the group whose leader an object belongs to, and the one
// that it is labelled with.
func groupOfGang(_ context.Context, object client.Object) []types.NamespacedName {
	var keys []types.NamespacedName
	owner := metav1.GetControllerOfNoCopy(object)
	if owner != nil && owner.Kind == string(identity.KindPod) {
		keys = append(keys, types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name})
	}
	named := labelledSet(object)
	named.Name += "-" + object.GetLabels()[lwsv1.GroupIndexLabelKey]
	if len(keys) == 1 && keys[0] == named {
		return keys
	}
	return append(keys, named)
}

// setOfGang returns the set that an object is labelled with.
func setOfGang(_ context.Context, object client.Object) []types.NamespacedName {
	return []types.NamespacedName{labelledSet(object)}
}

// everyGroup returns the groups of all leaders of all sets.
func everyGroup(o *lwscache.Observer) func(context.Context) []types.NamespacedName {
	return func(ctx context.Context) []types.NamespacedName {
		var groups []types.NamespacedName
		for _, set := range o.SetNames(ctx) {
			names, err := o.PodNames(ctx, set)
			if err != nil {
				continue // the next look at the set finds out
			}
			for _, name := range names {
				groups = append(groups, types.NamespacedName{Namespace: set.Namespace, Name: name})
			}
		}
		return groups
	}
}
