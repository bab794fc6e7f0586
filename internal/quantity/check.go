// Package quantity finds resource quantities that take too long to decode.
//
// A few bytes can be a number of two thousand million digits. The core type for quantities
// takes minutes to write it, or panics when it is compared. Objects that the API server has
// not validated are checked here before they are decoded.
//
// It knows Go types, JSON and the text of quantities. It refuses to know what an object is
// for, and checks cost alone: the decoder and admission refuse what is wrong.
package quantity

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilstrings "k8s.io/utils/strings"
)

// Check reads JSON of the type of p, and returns an error with the path of the first
// quantity that is costly to decode. Time and memory are linear in the size of data.
//
// Names are case-sensitive, so the decoder must be, too. Each value of a repeated name is
// checked, as a decoder reads each.
func (p *Places) Check(data []byte) error {
	_, err := p.Decimals(data)
	return err
}

func (p *Places) walk(data []byte, judge judge) error {
	// Names that occur twice, and strings that are no UTF-8, are left to the decoder.
	tokens := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return walk{tokens, judge}.value(p)
}

// judge is called with the first token of each quantity, and with where it is.
type judge func(token jsontext.Token, at jsontext.Pointer) error

// walk reads JSON once. It skips values whose Go type has no quantity.
type walk struct {
	*jsontext.Decoder
	judge judge
}

func (w walk) value(p *Places) error {
	if p == nil {
		return w.SkipValue()
	}
	token, err := w.ReadToken()
	if err != nil {
		return err
	}
	opened := token.Kind() // the token is valid until the next one is read
	if p.here {
		if err := w.judge(token, w.StackPointer()); err != nil {
			return err
		}
	}
	if opened != '{' && opened != '[' {
		return nil
	}
	for err == nil && w.PeekKind() != '}' && w.PeekKind() != ']' {
		if opened == '{' {
			err = w.member(p)
		} else {
			err = w.value(p.each)
		}
	}
	if err == nil {
		_, err = w.ReadToken()
	}
	return err
}

func (w walk) member(p *Places) error {
	key, err := w.ReadToken()
	if err != nil {
		return err
	}
	return w.value(p.below(key.String()))
}

// Places are the quantities in the JSON of one Go type. A nil *Places has none.
type Places struct {
	here  bool               // the value is one
	each  *Places            // in each element of a list or a map
	named map[string]*Places // in the fields of a struct, by exact name
}

var (
	quantityType    = reflect.TypeFor[resource.Quantity]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

// In returns the places of T, which must not be recursive.
func In[T any]() *Places { return placesOf(reflect.TypeFor[T]()) }

func placesOf(t reflect.Type) *Places {
	if t == quantityType {
		return &Places{here: true}
	}
	if reflect.PointerTo(t).Implements(unmarshalerType) {
		return nil // times, for example, which have their own JSON form
	}
	switch t.Kind() {
	case reflect.Pointer:
		return placesOf(t.Elem())
	case reflect.Slice, reflect.Array, reflect.Map:
		if each := placesOf(t.Elem()); each != nil {
			return &Places{each: each}
		}
	case reflect.Struct:
		if named := fieldsOf(t); len(named) > 0 {
			return &Places{named: named}
		}
	}
	return nil
}

// fieldsOf returns the fields with places, also those of embedded structs.
func fieldsOf(t reflect.Type) map[string]*Places {
	named := map[string]*Places{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		within := placesOf(f.Type)
		switch {
		case within == nil, name == "-":
		case name == "" && f.Anonymous:
			maps.Copy(named, within.named)
		case name == "":
			named[f.Name] = within
		default:
			named[name] = within
		}
	}
	return named
}

// below returns the places in a member, or nil.
func (p *Places) below(name string) *Places {
	if p.named != nil {
		return p.named[name]
	}
	return p.each
}

// The definition of a LeaderWorkerSet accepts quantities of 64 characters with an exponent of two digits. These limits
// accept what such a quantity becomes when it is written again: 64 digits and "e99" become up to "e163".
const (
	mostCharacters     = 256
	mostExponentDigits = 3
	mostFractionDigits = 2 // of an exponent below zero
)

// mostShown is how many bytes of a text errors have.
const mostShown = 64

const advice = "a quantity has at most 64 characters and an exponent of at most two digits: write it like 500m, 1.5Gi or 1e3"

// Harmless reports whether its length bounds the time to decode, compare and write a quantity. The result is the same
// for the form in which a decoder writes the text. Texts that are no quantities are harmless: they are refused at once.
func Harmless(text string) bool {
	text = strings.TrimSpace(text) // as the decoder does
	if !short(text) {
		return false
	}
	parsed, err := resource.ParseQuantity(text)
	return err != nil || short(parsed.String())
}

func short(text string) bool {
	if len(text) > mostCharacters {
		return false
	}
	mark := strings.LastIndexAny(text, "eE")
	if mark < 0 {
		return true
	}
	if digits, fraction := strings.CutPrefix(text[mark+1:], "-"); fraction {
		return len(digits) <= mostFractionDigits
	}
	return len(strings.TrimPrefix(text[mark+1:], "+")) <= mostExponentDigits
}

// path is a place as errors name it: the elements of lists and maps have keys.
func (p *Places) path(at jsontext.Pointer) (path *field.Path) {
	for step := range at.Tokens() {
		if p.named == nil {
			path = path.Key(utilstrings.ShortenString(step, mostShown))
		} else {
			path = path.Child(step)
		}
		p = p.below(step)
	}
	return path
}

// Decimal is a quantity that is a JSON number with a fraction or an exponent. Kubernetes takes it and
// writes a text. A schema of quantities takes only integers and texts.
type Decimal struct {
	// Pointer is where it is (RFC 6901), and Text what Kubernetes writes.
	Pointer, Text string
}

// Decimals returns the decimals of what Check lets pass, and the error of Check.
func (p *Places) Decimals(data []byte) (found []Decimal, err error) {
	err = p.walk(data, func(token jsontext.Token, at jsontext.Pointer) error {
		text := token.String()
		if !Harmless(text) {
			return field.Invalid(p.path(at), utilstrings.ShortenString(text, mostShown), advice)
		}
		if token.Kind() == '0' && strings.ContainsAny(text, ".eE") {
			if q, err := resource.ParseQuantity(text); err == nil {
				found = append(found, Decimal{string(at), q.String()})
			}
		}
		return nil
	})
	return found, err
}

// Mistyped returns an error with the path of the first value that is no quantity, in JSON that Check lets pass, or nil.
func (p *Places) Mistyped(data []byte) (mistyped *field.Error) {
	_ = p.walk(data, func(token jsontext.Token, at jsontext.Pointer) error {
		text := token.String()
		if _, err := resource.ParseQuantity(strings.TrimSpace(text)); err == nil || token.Kind() == 'n' {
			return nil
		}
		mistyped = field.TypeInvalid(p.path(at), utilstrings.ShortenString(text, mostShown), "must be a quantity: write it like 500m, 1.5Gi or 1e3")
		return mistyped
	})
	return mistyped
}
