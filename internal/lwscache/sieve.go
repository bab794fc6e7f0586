package lwscache

import (
	"encoding/binary"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A sieve names the fields of a protobuf message that are decoded. No decision reads most of a
// pod, and decoding it took a fifth of the operator's processor time while a large set came.
//
// A nil sieve drops a field. An empty one keeps the field without its content.
type sieve struct {
	fields map[uint64]*sieve
	// others reports whether fields that are not named are kept whole.
	others bool
}

// whole keeps everything.
var whole = &sieve{others: true}

// only keeps the fields with these numbers, whole.
func only(numbers ...uint64) *sieve {
	s := &sieve{fields: map[uint64]*sieve{}}
	for _, n := range numbers {
		s.fields[n] = whole
	}
	return s
}

// within sifts the content of one field too.
func (s *sieve) within(number uint64, inner *sieve) *sieve {
	s.fields[number] = inner
	return s
}

// of returns the sieve of a field.
func (s *sieve) of(number uint64) *sieve {
	if inner, named := s.fields[number]; named {
		return inner
	}
	if s.others {
		return whole
	}
	return nil
}

// sift appends the kept fields of a message to out. It returns false for a message that it cannot
// read: the decoder reports that.
func (s *sieve) sift(out, message []byte) ([]byte, bool) {
	for len(message) > 0 {
		tag, header := binary.Uvarint(message)
		if header <= 0 {
			return nil, false
		}
		begins, ends, ok := bounds(message, header, tag&7)
		if !ok {
			return nil, false
		}
		inner := s.of(tag >> 3)
		switch {
		case inner == nil:
		case inner == whole || tag&7 != delimited:
			out = append(out, message[:ends]...)
		default:
			at := len(out)
			out = append(out, message[:begins]...)
			if out, ok = inner.sift(out, message[begins:ends]); !ok {
				return nil, false
			}
			resize(out[at+header:at+begins], len(out)-at-begins)
		}
		message = message[ends:]
	}
	return out, true
}

// Wire types of protobuf: the last three bits of a tag.
const (
	varint    = 0
	fixed64   = 1
	delimited = 2
	fixed32   = 5
)

// bounds returns where the value of a message's first field begins and ends.
func bounds(message []byte, header int, form uint64) (begins, ends int, ok bool) {
	begins = header
	switch form {
	case varint:
		_, n := binary.Uvarint(message[header:])
		return begins, begins + n, n > 0
	case fixed64:
		ends = begins + 8
	case fixed32:
		ends = begins + 4
	case delimited:
		size, n := binary.Uvarint(message[header:])
		if n <= 0 || size > uint64(len(message)) {
			return 0, 0, false
		}
		begins += n
		ends = begins + int(size)
	default:
		return 0, 0, false
	}
	return begins, ends, ends <= len(message)
}

// resize overwrites a length by a lower one in the same number of bytes. A varint may have more
// bytes than it needs.
func resize(into []byte, length int) {
	for i := range into {
		into[i] = byte(length&0x7f) | 0x80
		length >>= 7
	}
	into[len(into)-1] &= 0x7f
}

// sifting decodes objects of the kinds that it has sieves for in part, and all others whole.
type sifting struct {
	runtime.Serializer
	// sieves are by the bytes that objects of a kind begin with.
	sieves map[string]*sieve
}

// siftingOf returns a serializer that sifts objects of a kind, and lists of it.
func siftingOf(serializer runtime.Serializer, kind schema.GroupVersionKind, objects *sieve) sifting {
	list := kind
	list.Kind += "List"
	return sifting{serializer, map[string]*sieve{
		beginningOf(kind): objects,
		beginningOf(list): only(1).within(2, objects),
	}}
}

// beginningOf returns the bytes that an object of a kind begins with: a magic number, and the
// first field of the envelope.
func beginningOf(kind schema.GroupVersionKind) string {
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}}
	typed, err := envelope.TypeMeta.Marshal()
	if err != nil {
		panic(err) // two strings can be encoded
	}
	beginning := append([]byte("k8s\x00"), 1<<3|delimited)
	beginning = binary.AppendUvarint(beginning, uint64(len(typed)))
	return string(append(append(beginning, typed...), rawTag))
}

// rawTag is the tag of the envelope's field that holds the object.
const rawTag = 2<<3 | delimited

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
		envelope := only().within(2, objects)
		envelope.others = true
		before := len(beginning) - 1 // the tag is read again
		out := append(make([]byte, 0, len(data)), data[:before]...)
		return envelope.sift(out, data[before:])
	}
	return nil, false
}
