package quantity

import (
	"encoding/json"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Places are where quantities stand in the JSON of one Go type. A nil *Places
// stands for what holds none.
type Places struct {
	here  bool               // the value itself is one
	each  *Places            // within every element of a list or a map
	named map[string]*Places // within the fields of a struct, by exact name
}

var (
	quantityType    = reflect.TypeFor[resource.Quantity]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

// In finds the places of T, which must not contain itself.
func In[T any]() *Places { return placesOf(reflect.TypeFor[T]()) }

func placesOf(t reflect.Type) *Places {
	if t == quantityType {
		return &Places{here: true}
	}
	if reflect.PointerTo(t).Implements(unmarshalerType) {
		return nil // times and the like, with a form of their own
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

// fieldsOf lists the fields with places, those of embedded structs among them.
func fieldsOf(t reflect.Type) map[string]*Places {
	named := map[string]*Places{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		within := placesOf(f.Type)
		switch {
		case within == nil, name == "-":
		case name == "" && f.Anonymous:
			for inner, places := range within.named {
				named[inner] = places
			}
		case name == "":
			named[f.Name] = within
		default:
			named[name] = within
		}
	}
	return named
}

// below are the places within the member called name, and nil if there are none.
func (p *Places) below(name string) *Places {
	if p.named != nil {
		return p.named[name]
	}
	return p.each
}
