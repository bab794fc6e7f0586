package fakeapi

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// Protobuf returns the serializer for protobuf.
func Protobuf(of runtime.NegotiatedSerializer) runtime.Serializer {
	info, ok := runtime.SerializerInfoForMediaType(of.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		panic("no protobuf serializer")
	}
	return info.Serializer
}

// Decode decodes an object of a type.
func Decode[T runtime.Object](t *testing.T, by runtime.Decoder, data []byte) T {
	t.Helper()
	object, _, err := by.Decode(bytes.Clone(data), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	known, ok := object.(T)
	if !ok {
		t.Fatalf("decoded a %T", object)
	}
	return known
}

// Encode encodes an object.
func Encode(t *testing.T, by runtime.Encoder, object runtime.Object) []byte {
	t.Helper()
	var data bytes.Buffer
	if err := by.Encode(object, &data); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

// CheckCodecs checks that codecs which decode a part of each pod decode all that keep reads,
// and less than half of the whole.
func CheckCodecs[T any](t *testing.T, codecs runtime.NegotiatedSerializer, keep func(*corev1.Pod) T) {
	t.Helper()
	plain, partial := Protobuf(clientgoscheme.Codecs.WithoutConversion()), Protobuf(codecs)
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "on"}}
	for seed := range uint64(400) {
		pod := AnyPod(seed)
		if list.Items = append(list.Items, *pod); len(list.Items) > 20 {
			list.Items = list.Items[1:]
		}
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		data := Encode(t, plain, pod)
		part := Decode[*corev1.Pod](t, partial, data)
		if seed == 4 && part.Size() > len(data)/2 {
			t.Errorf("%d of %d bytes are decoded", part.Size(), len(data))
		}
		if diff := cmp.Diff(keep(Decode[*corev1.Pod](t, plain, data)), keep(part), cmp.Exporter(everyField)); diff != "" {
			t.Fatalf("pod %d (-whole +part):\n%s", seed, diff)
		}
	}
	data := Encode(t, plain, list)
	want, got := Decode[*corev1.PodList](t, plain, data), Decode[*corev1.PodList](t, partial, data)
	if diff := cmp.Diff(want.ListMeta, got.ListMeta); diff != "" || len(got.Items) != len(want.Items) {
		t.Fatalf("list of %d, want %d (-whole +part):\n%s", len(got.Items), len(want.Items), diff)
	}
	for i := range want.Items {
		if diff := cmp.Diff(keep(&want.Items[i]), keep(&got.Items[i]), cmp.Exporter(everyField)); diff != "" {
			t.Errorf("item %d (-whole +part):\n%s", i, diff)
		}
	}
}

func everyField(reflect.Type) bool { return true }
