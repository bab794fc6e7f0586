package quantity

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

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
