package lwscache

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"lockstep.dev/lockstep/internal/sieve"
)

// keptFields are the fields of pods that decisions and reports read.
func keptFields() *sieve.Sieve {
	containers := sieve.Only(1, 2, 8)        // name, image, resources
	statuses := sieve.Only(1, 2, 3, 4, 5, 9) // name, state, lastState, ready, restartCount, started
	return sieve.Only().
		Within(1, sieve.Metadata()).
		Within(2, sieve.Only(10, 38).Within(2, containers).Within(20, containers)). // nodeName, schedulingGates, containers, initContainers
		Within(3, sieve.Only(1, 2, 3, 4, 17).Within(8, statuses).Within(10, statuses))
}

// NewCache returns a cache with CacheOptions that decodes only those fields of pods that it keeps.
func NewCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	client, err := sieve.Pods(config, keptFields())
	if err != nil {
		return nil, err
	}
	pods := toolscache.NewFilteredListWatchFromClient(client, "pods", metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.LabelSelector, o.AllowWatchBookmarks = labelled().String(), true
	})
	options.NewInformer = func(from toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, ok := object.(*corev1.Pod); ok {
			from = pods
		}
		return toolscache.NewSharedIndexInformer(from, object, resync, indexers)
	}
	return cache.New(config, options)
}
