package lwscache

import (
	"bytes"
	"math/rand/v2"
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
)

// sown fills a value by chance: every field that there is, or some of them.
func sown(r *rand.Rand, v reflect.Value, some bool, depth int) {
	if some && r.IntN(2) == 0 || depth > 9 {
		return
	}
	switch into := v.Addr().Interface().(type) {
	case *metav1.Time:
		*into = metav1.NewTime(time.Unix(r.Int64N(1<<31), 0))
		return
	case *resource.Quantity:
		*into = *resource.NewQuantity(r.Int64N(1000), resource.DecimalSI)
		return
	case *intstr.IntOrString:
		*into = intstr.FromInt32(r.Int32N(1000))
		return
	case *metav1.FieldsV1:
		into.SetRawBytes([]byte(`{"f:metadata":{}}`))
		return
	case *metav1.TypeMeta:
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				sown(r, v.Field(i), some, depth+1)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		sown(r, v.Elem(), some, depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			sown(r, v.Index(i), some, depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			sown(r, key, false, depth+1)
			sown(r, value, some, depth+1)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(ownPrefix + strconv.Itoa(r.IntN(300)))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(r.Int64N(1 << 20))
	case reflect.Uint8:
		v.SetUint(r.Uint64N(256))
	}
}

// aPod is a pod in which anything may be set. Its phase and its volumes are such as
// something is decided by.
func aPod(seed uint64) *corev1.Pod {
	r, pod := rand.New(rand.NewPCG(seed, 0)), &corev1.Pod{}
	sown(r, reflect.ValueOf(pod).Elem(), seed%4 != 0, 0)
	pod.Name, pod.Namespace, pod.Annotations = "a-1", "ns", map[string]string{metav1.InitialEventsAnnotationKey: "true", ownPrefix + "size": "2"}
	pod.Status.Phase = []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}[r.IntN(4)]
	sources := reflect.TypeFor[corev1.VolumeSource]()
	for i := range sources.NumField() { // one of each kind, and one of none
		volume := corev1.Volume{Name: sources.Field(i).Name}
		sown(r, reflect.ValueOf(&volume.VolumeSource).Elem().Field(i), false, 0)
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "of a newer API"})
	return pod
}

func siftedOf(t *testing.T, pods *sieve) (plain, sifted runtime.Serializer) {
	t.Helper()
	codecs := clientgoscheme.Codecs.WithoutConversion()
	protobuf := func(of runtime.NegotiatedSerializer) runtime.Serializer {
		info, ok := runtime.SerializerInfoForMediaType(of.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
		if !ok {
			t.Fatal("no protobuf serializer")
		}
		return info.Serializer
	}
	return protobuf(codecs), protobuf(siftedCodecs{codecs, pods})
}

func decodedBy[T runtime.Object](t *testing.T, by runtime.Decoder, data []byte) T {
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

func written(t *testing.T, by runtime.Encoder, object runtime.Object) []byte {
	t.Helper()
	var data bytes.Buffer
	if err := by.Encode(object, &data); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

const manyPods = 400

// What is kept of a pod does not depend on how much of it was decoded.
func TestTheSieveKeepsWhatTrimPodKeeps(t *testing.T) {
	plain, trimmed := siftedOf(t, trimmedSieve())
	for seed := range uint64(manyPods) {
		pod := aPod(seed)
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		data := written(t, plain, pod)

		want, _ := trimPod(decodedBy[*corev1.Pod](t, plain, data))
		got, _ := trimPod(decodedBy[*corev1.Pod](t, trimmed, data))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("pod %d, as it is kept for sets (-decoded whole +sifted):\n%s", seed, diff)
		}
	}
}

// Most of a pod is left out, or there is no use in sifting.
func TestTheSieveDropsMostOfAPod(t *testing.T) {
	plain, _ := siftedOf(t, nil)
	pod := aPod(4)
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	data := written(t, plain, pod)
	for name, s := range map[string]*sieve{"for sets": trimmedSieve()} {
		sifted, ok := siftingOf(plain, corev1.SchemeGroupVersion.WithKind("Pod"), s).sift(data)
		if !ok || len(sifted) > len(data)/2 {
			t.Errorf("%s: %t, %d of %d bytes", name, ok, len(sifted), len(data))
		}
	}
}

func TestListsOfPodsAreSifted(t *testing.T) {
	plain, sifted := siftedOf(t, trimmedSieve())
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "on"}}
	for seed := range uint64(20) {
		list.Items = append(list.Items, *aPod(seed))
	}
	data := written(t, plain, list)
	want, got := decodedBy[*corev1.PodList](t, plain, data), decodedBy[*corev1.PodList](t, sifted, data)
	for _, list := range []*corev1.PodList{want, got} {
		for i := range list.Items {
			_, _ = trimPod(&list.Items[i])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-decoded whole +sifted):\n%s", diff)
	}
}

// What is not a pod, and what cannot be read, is decoded as it ever was.
func TestOtherKindsAreNotSifted(t *testing.T) {
	plain, sifted := siftedOf(t, only())
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Message: "gone"}
	if got := decodedBy[*metav1.Status](t, sifted, written(t, plain, status)); got.Message != "gone" {
		t.Errorf("got %+v", got)
	}
	pod := aPod(4)
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	data := written(t, plain, pod)
	for end := range data {
		_, _, want := plain.Decode(bytes.Clone(data[:end]), nil, nil)
		_, _, got := sifted.Decode(bytes.Clone(data[:end]), nil, nil)
		if (want == nil) != (got == nil) {
			t.Fatalf("cut off after %d of %d bytes: %v when sifted, %v when not", end, len(data), got, want)
		}
	}
}

func FuzzSieve(f *testing.F) {
	pod := aPod(3)
	data, err := pod.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, s := range []*sieve{trimmedSieve()} {
			if out, ok := s.sift(nil, data); ok && len(out) > len(data) {
				t.Errorf("%d bytes became %d", len(data), len(out))
			}
		}
	})
}
