package sieve

import (
	"bytes"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

func serializers(pods *Sieve) (plain, sifted runtime.Serializer) {
	return fakeapi.Protobuf(clientgoscheme.Codecs.WithoutConversion()), fakeapi.Protobuf(Codecs(pods))
}

// What is not a pod, and what cannot be read, is decoded whole.
func TestOtherKindsAreNotSifted(t *testing.T) {
	plain, sifted := serializers(Only())
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Message: "gone"}
	got := fakeapi.Decode[*metav1.Status](t, sifted, fakeapi.Encode(t, plain, status))
	expect.Equal(t, "gone", got.Message)
	pod := fakeapi.AnyPod(4)
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	data := fakeapi.Encode(t, plain, pod)
	for end := range data {
		_, _, want := plain.Decode(bytes.Clone(data[:end]), nil, nil)
		_, _, got := sifted.Decode(bytes.Clone(data[:end]), nil, nil)
		expect.Must(t, (want == nil) == (got == nil),
			"cut off after %d of %d bytes: %v when sifted, %v when not", end, len(data), got, want)
	}
}

func FuzzSieve(f *testing.F) {
	pod := fakeapi.AnyPod(3)
	data := expect.Value(pod.Marshal())(f)
	f.Add(data)
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, s := range []*Sieve{Only(), Only(1).Within(2, Only(10)), Only().Within(1, Metadata())} {
			out, ok := s.sift(nil, data)
			expect.That(t, !ok || len(out) <= len(data), "%d bytes became %d", len(data), len(out))
		}
	})
}
