package sieve

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Metadata keeps an object's metadata without managedFields, which are half of a pod. The
// numbers, here and in every sieve, are those of Kubernetes' messages, which never change.
func Metadata() *Sieve {
	return &Sieve{fields: map[protowire.Number]*Sieve{17: nil}, others: true}
}

// codecs decode the fields of pods that a sieve keeps.
type codecs struct {
	runtime.NegotiatedSerializer
	pods *Sieve
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (c codecs) SupportedMediaTypes() []runtime.SerializerInfo {
	types := slices.Clone(c.NegotiatedSerializer.SupportedMediaTypes())
	for i := range types {
		if types[i].MediaType == runtime.ContentTypeProtobuf {
			types[i].Serializer = siftingOf(types[i].Serializer, corev1.SchemeGroupVersion.WithKind("Pod"), c.pods)
		}
	}
	return types
}

// Codecs returns the codecs of Kubernetes' types that decode pods in part.
func Codecs(pods *Sieve) runtime.NegotiatedSerializer {
	return codecs{clientgoscheme.Codecs.WithoutConversion(), pods}
}

// Pods returns a client of the core API that decodes pods in part. What it reads must never
// be written back.
func Pods(config *rest.Config, pods *Sieve) (rest.Interface, error) {
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion, c.ContentType = "/api", &corev1.SchemeGroupVersion, runtime.ContentTypeProtobuf
	c.NegotiatedSerializer = Codecs(pods)
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client for pods: %w", err)
	}
	return client, nil
}
