package lwscache

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// metadataSieve keeps an object's metadata without managedFields, which are half of a pod. The
// numbers, here and below, are those of Kubernetes' messages, which never change.
func metadataSieve() *sieve {
	return &sieve{fields: map[protowire.Number]*sieve{17: nil}, others: true}
}

// trimmedSieve keeps what trimPod keeps.
func trimmedSieve() *sieve {
	containers := only(1, 2, 8)        // name, image, resources
	statuses := only(1, 2, 3, 4, 5, 9) // name, state, lastState, ready, restartCount, started
	return only().
		within(1, metadataSieve()).
		within(2, only(10).within(2, containers).within(20, containers)). // nodeName, containers, initContainers
		within(3, only(1, 2, 3, 4, 17).within(8, statuses).within(10, statuses))
}

// siftedCodecs decode the fields of pods that a sieve keeps.
type siftedCodecs struct {
	runtime.NegotiatedSerializer
	pods *sieve
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (c siftedCodecs) SupportedMediaTypes() []runtime.SerializerInfo {
	types := slices.Clone(c.NegotiatedSerializer.SupportedMediaTypes())
	for i := range types {
		if types[i].MediaType == runtime.ContentTypeProtobuf {
			types[i].Serializer = siftingOf(types[i].Serializer, corev1.SchemeGroupVersion.WithKind("Pod"), c.pods)
		}
	}
	return types
}

// siftedPods returns a client of the core API that decodes pods in part. What it reads must never
// be written back.
func siftedPods(config *rest.Config, pods *sieve) (rest.Interface, error) {
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion, c.ContentType = "/api", &corev1.SchemeGroupVersion, runtime.ContentTypeProtobuf
	c.NegotiatedSerializer = siftedCodecs{clientgoscheme.Codecs.WithoutConversion(), pods}
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client for pods: %w", err)
	}
	return client, nil
}

// NewCache returns a cache with CacheOptions that decodes only those fields of pods that it keeps.
func NewCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	client, err := siftedPods(config, trimmedSieve())
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
