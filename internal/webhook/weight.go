package webhook

import (
	"encoding/json"
	"io"
	"maps"
	"reflect"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
)

// weight is how many bytes JSON takes when a Go type decodes it: an empty container is two bytes of JSON and 408 of Go.
type weight struct {
	size  int64
	each  *weight            // an element of a list or a map
	named map[string]*weight // the fields of a struct, by exact name
}

// reviewOf returns the weight of an AdmissionReview of objects of type T.
func reviewOf[T any]() *weight {
	type request struct {
		admissionv1.AdmissionRequest `json:",inline"`
		Object                       T `json:"object"`
		OldObject                    T `json:"oldObject"`
	}
	return below(reflect.TypeFor[struct {
		Request *request `json:"request"`
	}]())
}

// below returns the weight of what a value of type t refers to. T must not be recursive.
func below(t reflect.Type) *weight {
	w := &weight{}
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()): // it keeps bytes, or a scalar
	case t.Kind() == reflect.Pointer:
		w = whole(t.Elem())
	case t.Kind() == reflect.Slice:
		w.each = whole(t.Elem())
	case t.Kind() == reflect.Map:
		w.each = whole(t.Elem())
		w.each.size += int64(t.Key().Size())
	case t.Kind() == reflect.Struct:
		w.named = map[string]*weight{}
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" && f.Anonymous {
				maps.Copy(w.named, below(f.Type).named)
			} else {
				w.named[name] = below(f.Type)
			}
		}
	}
	return w
}

func whole(t reflect.Type) *weight {
	w := below(t)
	w.size += int64(t.Size())
	return w
}

// of returns the weight of a body. It stops at the limit, with errHeavy. It reads JSON alone: a library that is given
// something else would try YAML, whose aliases multiply.
func (w *weight) of(body io.Reader, limit int64) (int64, error) {
	left := limit
	d := json.NewDecoder(body)
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return 0, errForm
	}
	err := w.members(d, true, &left)
	if left < 0 {
		return 0, errHeavy
	}
	if err != nil {
		return 0, errForm
	}
	return limit - left, nil
}

// value reads one value, whose nesting is bounded by that of its type. What the type lacks is skipped by the decoder,
// which bounds nesting itself.
func (w *weight) value(d *json.Decoder, left *int64) error {
	if w == nil {
		var skipped json.RawMessage
		return d.Decode(&skipped)
	}
	if *left -= w.size; *left < 0 {
		return errHeavy
	}
	token, err := d.Token()
	if opens, nests := token.(json.Delim); err == nil && nests {
		return w.members(d, opens == '{', left)
	}
	return err
}

func (w *weight) members(d *json.Decoder, keyed bool, left *int64) error {
	for d.More() {
		in := w.each
		if keyed {
			key, err := d.Token()
			if err != nil {
				return err
			}
			if w.named != nil {
				in = w.named[key.(string)] // the decoder takes only strings for keys
			}
		}
		if err := in.value(d, left); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}
