// Package sieve decodes a part of each pod. It knows the protobuf encoding; which fields a decision
// reads, it refuses to know.
package sieve

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// A Sieve names the fields of a protobuf message that are decoded. No decision reads most of a
// pod, and decoding it took a fifth of the operator's processor time while a large set came.
//
// A nil sieve drops a field. An empty one keeps the field without its content.
type Sieve struct {
	fields map[protowire.Number]*Sieve
	// others reports whether fields that are not named are kept whole.
	others bool
}

// whole keeps everything.
var whole = &Sieve{others: true}

// Only keeps the fields with these numbers, whole.
func Only(numbers ...protowire.Number) *Sieve {
	s := &Sieve{fields: map[protowire.Number]*Sieve{}}
	for _, n := range numbers {
		s.fields[n] = whole
	}
	return s
}

// Within sifts the content of one field too.
func (s *Sieve) Within(number protowire.Number, inner *Sieve) *Sieve {
	s.fields[number] = inner
	return s
}

// sift appends the kept fields of a message to out. It returns false for a message that it cannot
// read: the decoder reports that.
func (s *Sieve) sift(out, message []byte) ([]byte, bool) {
	for len(message) > 0 {
		number, form, header := protowire.ConsumeTag(message)
		if header < 0 {
			return nil, false
		}
		size := protowire.ConsumeFieldValue(number, form, message[header:])
		if size < 0 {
			return nil, false
		}
		field := message[:header+size]
		message = message[len(field):]
		inner, isNamed := s.fields[number]
		if !isNamed && s.others {
			inner = whole
		}
		switch {
		case inner == nil:
		case inner == whole || form != protowire.BytesType:
			out = append(out, field...)
		default:
			var ok bool
			if out, ok = inner.siftField(out, field, header); !ok {
				return nil, false
			}
		}
	}
	return out, true
}

// siftField appends a field whose content is a message. Its length keeps its number of bytes: a
// varint may have more than it needs.
func (s *Sieve) siftField(out, field []byte, header int) ([]byte, bool) {
	content, _ := protowire.ConsumeBytes(field[header:])
	begins := len(field) - len(content)
	at := len(out)
	out, ok := s.sift(append(out, field[:begins]...), content)
	if !ok {
		return nil, false
	}
	length, size := out[at+header:at+begins], len(out)-at-begins
	for i := range length {
		length[i] = byte(size&0x7f) | 0x80
		size >>= 7
	}
	length[len(length)-1] &= 0x7f
	return out, true
}

// sifting decodes objects of the kinds that it has sieves for in part, and all others whole.
type sifting struct {
	runtime.Serializer
	// sieves are by the bytes that objects of a kind begin with.
	sieves map[string]*Sieve
}

// beginningOf returns the bytes that an object of a core kind begins with: a magic number, and the
// first field of the envelope.
func beginningOf(kind string) string {
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}}
	typed, err := envelope.TypeMeta.Marshal()
	if err != nil {
		panic(err) // two strings can be encoded
	}
	beginning := protowire.AppendBytes(protowire.AppendTag([]byte("k8s\x00"), 1, protowire.BytesType), typed)
	return string(protowire.AppendTag(beginning, rawField, protowire.BytesType))
}

// rawField is the envelope's field that holds the object.
const rawField = 2

// Decode implements runtime.Decoder.
func (s sifting) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if sifted, ok := s.sift(data); ok {
		data = sifted
	}
	return s.Serializer.Decode(data, defaults, into)
}

// sift returns the kept part of an object, if its kind has a sieve and it can be read.
func (s sifting) sift(data []byte) ([]byte, bool) {
	for beginning, objects := range s.sieves {
		if len(data) < len(beginning) || string(data[:len(beginning)]) != beginning {
			continue
		}
		envelope := &Sieve{fields: map[protowire.Number]*Sieve{rawField: objects}, others: true}
		begins := len(beginning) - 1 // before the tag of the object
		return envelope.sift(append(make([]byte, 0, len(data)), data[:begins]...), data[begins:])
	}
	return nil, false
}

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
	sieves := map[string]*Sieve{beginningOf("Pod"): c.pods, beginningOf("PodList"): Only(1).Within(2, c.pods)}
	for i := range types {
		if types[i].MediaType == runtime.ContentTypeProtobuf {
			types[i].Serializer = sifting{types[i].Serializer, sieves}
		}
	}
	return types
}

// Codecs returns the codecs of Kubernetes' types that decode pods in part.
func Codecs(pods *Sieve) runtime.NegotiatedSerializer {
	return codecs{clientgoscheme.Codecs.WithoutConversion(), pods}
}

// Pods returns a client of the core API that decodes pods in part. What it reads must never be written back.
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
