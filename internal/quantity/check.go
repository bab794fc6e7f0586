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
	"strconv"
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
	return walk{tokens, judge}.value(p, nil)
}

// judge is called with the first token of each quantity.
type judge func(token jsontext.Token, at *place) error

// walk reads JSON once. It skips values whose Go type has no quantity.
type walk struct {
	*jsontext.Decoder
	judge judge
}

func (w walk) value(p *Places, at *place) error {
	if p == nil {
		return w.SkipValue()
	}
	token, err := w.ReadToken()
	if err != nil {
		return err
	}
	opened := token.Kind() // the token is valid until the next one is read
	if p.here {
		if err := w.judge(token, at); err != nil {
			return err
		}
	}
	if opened != '{' && opened != '[' {
		return nil
	}
	for i := 0; err == nil && w.PeekKind() != '}' && w.PeekKind() != ']'; i++ {
		if opened == '{' {
			err = w.member(p, at)
		} else {
			err = w.value(p.each, &place{above: at, step: strconv.Itoa(i), isKey: true})
		}
	}
	if err == nil {
		_, err = w.ReadToken()
	}
	return err
}

func (w walk) member(p *Places, at *place) error {
	key, err := w.ReadToken()
	if err != nil {
		return err
	}
	at = &place{above: at, step: key.String(), isKey: p.named == nil}
	return w.value(p.below(at.step), at)
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

// place is where a value is: a step below another place. nil is the whole.
type place struct {
	above *place
	step  string
	isKey bool // of a map or a list
}

// path is the place as errors name it.
func (at *place) path() *field.Path {
	switch {
	case at == nil:
		return nil
	case at.isKey:
		return at.above.path().Key(utilstrings.ShortenString(at.step, mostShown))
	}
	return at.above.path().Child(at.step)
}

// escape writes a step of a JSON pointer (RFC 6901).
var escape = strings.NewReplacer("~", "~0", "/", "~1")

// pointer is the place as patches name it.
func (at *place) pointer() string {
	if at == nil {
		return ""
	}
	return at.above.pointer() + "/" + escape.Replace(at.step)
}

// Decimal is a quantity that is a JSON number with a fraction or an exponent. Kubernetes takes it and
// writes a text. A schema of quantities takes only integers and texts.
type Decimal struct {
	// Pointer is where it is (RFC 6901), and Text what Kubernetes writes.
	Pointer, Text string
}

// Decimals returns the decimals of what Check lets pass, and the error of Check.
func (p *Places) Decimals(data []byte) (found []Decimal, err error) {
	err = p.walk(data, func(token jsontext.Token, at *place) error {
		text := token.String()
		if !Harmless(text) {
			return field.Invalid(at.path(), utilstrings.ShortenString(text, mostShown), advice)
		}
		if token.Kind() == '0' && strings.ContainsAny(text, ".eE") {
			if q, err := resource.ParseQuantity(text); err == nil {
				found = append(found, Decimal{at.pointer(), q.String()})
			}
		}
		return nil
	})
	return found, err
}

// Mistyped returns an error with the path of the first value that is no quantity, in JSON that Check lets pass, or nil.
func (p *Places) Mistyped(data []byte) (mistyped *field.Error) {
	_ = p.walk(data, func(token jsontext.Token, at *place) error {
		text := token.String()
		if _, err := resource.ParseQuantity(strings.TrimSpace(text)); err == nil || token.Kind() == 'n' {
			return nil
		}
		mistyped = field.TypeInvalid(at.path(), utilstrings.ShortenString(text, mostShown), "must be a quantity: write it like 500m, 1.5Gi or 1e3")
		return mistyped
	})
	return mistyped
}
