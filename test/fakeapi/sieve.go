package fakeapi

import (
	"bytes"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"

	"lockstep.dev/lockstep/test/expect"
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
	expect.OK(t, err)
	known, ok := object.(T)
	expect.Must(t, ok, "decoded a %T", object)
	return known
}

// Encode encodes an object.
func Encode(t *testing.T, by runtime.Encoder, object runtime.Object) []byte {
	t.Helper()
	return expect.Value(runtime.Encode(by, object))(t)
}

// CheckCodecs checks codecs that decode a part of each pod. They must decode all fields that
// keep reads, and less than half of the whole.
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
		diff := cmp.Diff(keep(Decode[*corev1.Pod](t, plain, data)), keep(part), cmp.Exporter(everyField))
		expect.Must(t, diff == "", "pod %d (-whole +part):\n%s", seed, diff)
	}
	data := Encode(t, plain, list)
	want, got := Decode[*corev1.PodList](t, plain, data), Decode[*corev1.PodList](t, partial, data)
	if diff := cmp.Diff(want.ListMeta, got.ListMeta); diff != "" || len(got.Items) != len(want.Items) {
		t.Fatalf("list of %d, want %d (-whole +part):\n%s", len(got.Items), len(want.Items), diff)
	}
	for i := range want.Items {
		diff := cmp.Diff(keep(&want.Items[i]), keep(&got.Items[i]), cmp.Exporter(everyField))
		expect.That(t, diff == "", "item %d (-whole +part):\n%s", i, diff)
	}
}

func everyField(reflect.Type) bool { return true }

// ownPrefix is the prefix of every string: sets keep labels whose key has it.
const ownPrefix = "leaderworkerset.sigs.k8s.io/"

// filler fills every field of a value, or some fields.
func filler(seed int64, some bool) *randfill.Filler {
	empty := map[bool]float64{true: 0.5}[some]
	return randfill.NewWithSeed(seed).NilChance(empty).NumElements(2, 2).MaxDepth(10).Funcs(
		func(into *string, c randfill.Continue) {
			if !some || c.Bool() {
				*into = ownPrefix + strconv.Itoa(c.Intn(300))
			}
		},
		func(into *metav1.Time, c randfill.Continue) { *into = metav1.NewTime(time.Unix(c.Int63n(1<<31), 0)) },
		func(into *resource.Quantity, c randfill.Continue) {
			*into = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
		},
		func(into *intstr.IntOrString, c randfill.Continue) { *into = intstr.FromInt32(c.Int31n(1000)) },
		func(into *metav1.FieldsV1, _ randfill.Continue) { into.SetRawBytes([]byte(`{"f:metadata":{}}`)) },
		func(*metav1.TypeMeta, randfill.Continue) {},
	)
}

// AnyPod returns a pod with any fields set. All phases and all kinds of volumes occur, because
// decisions read them.
func AnyPod(seed uint64) *corev1.Pod {
	pod := &corev1.Pod{}
	filler(int64(seed), seed%4 != 0).Fill(pod)
	pod.Name, pod.Namespace, pod.Annotations = "a-1", "ns", map[string]string{metav1.InitialEventsAnnotationKey: "true", ownPrefix + "size": "2"}
	pod.Status.Phase = []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}[seed/4%4]
	sources := reflect.TypeFor[corev1.VolumeSource]()
	for i := range sources.NumField() { // one of each kind; the last volume, below, has no kind
		volume := corev1.Volume{Name: sources.Field(i).Name}
		filler(int64(seed), false).Fill(reflect.ValueOf(&volume.VolumeSource).Elem().Field(i).Addr().Interface())
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "of a newer API"})
	return pod
}
