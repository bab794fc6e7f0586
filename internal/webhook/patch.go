package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	fastjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/runtime"
)

// A patch has what the rules changed, and nothing else.
//
// The raw JSON of an object and its Go value differ: raw JSON has fields that our types
// lack, and a Go value has empty fields. So three documents are compared: the value before
// the rules, the value after them, and the raw object. A field that our types lack is in
// neither value, and so in no operation. Libraries compare two documents, and would remove it.
//
// A new first element of a list moves all others. To replace each would drop their unknown fields. So elements are
// matched by name, or by equality if they have none, and only new ones are added and only missing ones removed.

// Diff returns the operations that change raw as the rules changed the object. before and after are the object before
// and after the rules; raw decodes to before. Time and memory are linear in the size of the three.
func Diff[T any](raw []byte, before, after *T) ([]jsonpatch.Operation, error) {
	was, is := *before, *after
	leaveOut(reflect.ValueOf(&was).Elem(), reflect.ValueOf(&is).Elem())
	wasDocument, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&was)
	if err != nil {
		return nil, fmt.Errorf("encode the object before the rules: %w", err)
	}
	isDocument, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&is)
	if err != nil {
		return nil, fmt.Errorf("encode the object after the rules: %w", err)
	}
	var p patch
	p.value("", raw, wasDocument, isDocument)
	return p, nil
}

// leaveOut clears equal fields of two objects, so that these are not encoded: managedFields are half of a pod. It
// changes nothing behind pointers and in lists, which are shared, and whose elements may be matched by equality.
func leaveOut(before, after reflect.Value) {
	for i := range before.NumField() {
		was, is := before.Field(i), after.Field(i)
		switch {
		case !was.CanSet():
		case reflect.DeepEqual(was.Interface(), is.Interface()):
			was.SetZero()
			is.SetZero()
		case was.Kind() == reflect.Struct && !was.Addr().Type().Implements(reflect.TypeFor[json.Marshaler]()):
			leaveOut(was, is)
		}
	}
}

type patch []jsonpatch.Operation

func (p *patch) then(operation, path string, v any) {
	*p = append(*p, jsonpatch.NewOperation(operation, path, v))
}

// value adds the operations for one value at path, which raw has. It decodes only the parts
// of raw that lead to a change.
func (p *patch) value(path string, raw jsontext.Value, before, after any) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch after := after.(type) {
	case map[string]any:
		if before, inBefore := before.(map[string]any); inBefore {
			if in := decoded[map[string]jsontext.Value](raw); in != nil {
				p.object(path, in, before, after)
				return
			}
		}
	case []any:
		if before, inBefore := before.([]any); inBefore {
			if in := decoded[[]jsontext.Value](raw); in != nil && len(in) == len(before) {
				p.list(path, in, before, after)
				return
			}
		}
	}
	p.then("replace", path, after)
}

// decoded returns nil for null. It panics on what cannot be decoded: the whole object was decoded before.
func decoded[T any](raw jsontext.Value) (into T) {
	if err := fastjson.Unmarshal(raw, &into, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		panic(err)
	}
	return into
}

func (p *patch) object(path string, raw map[string]jsontext.Value, before, after map[string]any) {
	all := map[string]any{}
	maps.Copy(all, before)
	maps.Copy(all, after)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		at := string(jsontext.Pointer(path).AppendToken(key))
		was, existed := before[key]
		is, exists := after[key]
		_, inRaw := raw[key]
		switch {
		case exists && existed && inRaw:
			p.value(at, raw[key], was, is)
		case exists && !reflect.DeepEqual(was, is):
			p.then("add", at, is) // its parent exists; "add" replaces a value that raw has
		case !exists && inRaw:
			p.then("remove", at, nil)
		}
	}
}

// list compares both lists once. If two elements differ, the old one stays if it comes later
// in the new list, and is removed if not.
func (p *patch) list(path string, raw []jsontext.Value, before, after []any) {
	was, is := identities(before), identities(after)
	last := make(map[string]int, len(is))
	for j, id := range is {
		last[id] = j
	}
	i, j := 0, 0
	for i < len(was) || j < len(is) {
		at := fmt.Sprintf("%s/%d", path, j)
		switch {
		case i < len(was) && j < len(is) && was[i] == is[j]:
			p.value(at, raw[i], before[i], after[j])
			i, j = i+1, j+1
		case i < len(was) && last[was[i]] <= j: // an element that is gone has 0
			p.then("remove", at, nil)
			i++
		default:
			p.then("add", at, after[j])
			j++
		}
	}
}

func identities(list []any) []string {
	ids := make([]string, len(list))
	for i, v := range list {
		ids[i] = identity(v)
	}
	return ids
}

// identity returns the name of an element, as of containers, variables and volumes, or else the whole element.
func identity(v any) string {
	if object, ok := v.(map[string]any); ok {
		if name, ok := object["name"].(string); ok {
			return "name:" + name
		}
	}
	text, _ := json.Marshal(v) // v is made of what JSON knows
	return "value:" + string(text)
}
