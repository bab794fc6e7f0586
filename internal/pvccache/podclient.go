package pvccache

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/sieve"
)

// usesSieve keeps what UsesOf reads.
func usesSieve() *sieve.Sieve {
	return sieve.Only().
		Within(1, sieve.Metadata()).
		Within(2, sieve.Only(1, 10, 38)). // volumes, nodeName, schedulingGates
		Within(3, sieve.Only(1))          // phase
}

// PodClient returns a client that decodes those fields of pods that concern PVCs.
func PodClient(config *rest.Config) (rest.Interface, error) { return sieve.Pods(config, usesSieve()) }

// PodLister lists pods through a PodClient, and reads all else through the Reader.
type PodLister struct {
	client.Reader
	Pods rest.Interface
}

// List implements client.Reader.
func (l PodLister) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	pods, ok := list.(*corev1.PodList)
	if !ok {
		return l.Reader.List(ctx, list, options...)
	}
	o := (&client.ListOptions{}).ApplyOptions(options)
	return l.Pods.Get().NamespaceIfScoped(o.Namespace, o.Namespace != "").Resource("pods").
		VersionedParams(o.AsListOptions(), scheme.ParameterCodec).Do(ctx).Into(pods)
}
