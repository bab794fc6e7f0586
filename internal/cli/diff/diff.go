// Package diff compares values of JSON and YAML by the paths of their fields. It refuses to know what a field means.
package diff

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"sigs.k8s.io/yaml"
)

// Unified compares two versions, which side returns with their names, in the format of diff -u. Without a difference it is
// empty.
func Unified(from, to int64, side func(int64) (name string, content any, err error)) (string, error) {
	var names, texts []string
	for _, number := range []int64{from, to} {
		name, content, err := side(number)
		if err != nil {
			return "", err
		}
		text, _ := yaml.Marshal(content) // it was decoded from JSON
		names, texts = append(names, name), append(texts, string(text))
	}
	return udiff.Unified(names[0], names[1], texts[0], texts[1]), nil
}

// Change is one field that differs between two templates.
type Change struct {
	// Path names the field; elements of lists by their name if they have one, as in containers[vllm].
	Path string `json:"path"`
	// From and To are the values before and after; absent where the field is absent.
	From any `json:"from,omitempty"`
	To   any `json:"to,omitempty"`
}

// Changes lists the fields that differ, by path.
func Changes(from, to map[string]any) []Change {
	before, after := map[string]any{}, map[string]any{}
	flatten("", from, before)
	flatten("", to, after)
	all := maps.Clone(before)
	maps.Copy(all, after)
	var found []Change
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if !reflect.DeepEqual(before[path], after[path]) {
			found = append(found, Change{Path: path, From: before[path], To: after[path]})
		}
	}
	return found
}

// flatten collects the fields of a value by path. A list whose elements have no names is one field.
func flatten(path string, value any, into map[string]any) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			flatten(strings.TrimPrefix(path+"."+key, "."), inner, into)
		}
		return
	case []any:
		if names := namesOf(value); names != nil {
			for i, name := range names {
				flatten(fmt.Sprintf("%s[%s]", path, name), value[i], into)
			}
			return
		}
	}
	into[path] = value
}

// namesOf returns the names of the elements of a list, or nil if one has none.
func namesOf(list []any) (names []string) {
	for _, element := range list {
		fields, _ := element.(map[string]any)
		name, _ := fields["name"].(string)
		if name == "" || slices.Contains(names, name) {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// Lacking returns the first path at which a live value lacks a wanted one, or nothing. The API server adds defaults to
// maps, and nothing to lists. Numbers of JSON and YAML have different types.
func Lacking(want, live any) string { return lacking(want, live, "") }

func lacking(want, live any, at string) (path string) {
	switch want := want.(type) {
	case map[string]any:
		has, _ := live.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			path = cmp.Or(path, lacking(want[name], has[name], strings.TrimPrefix(at+"."+name, ".")))
		}
	case []any:
		has, _ := live.([]any)
		if len(has) != len(want) {
			return at
		}
		for i := range want {
			path = cmp.Or(path, lacking(want[i], has[i], fmt.Sprintf("%s[%d]", at, i)))
		}
	default:
		if isAbsent := live == nil && want == ""; !isAbsent && fmt.Sprint(want) != fmt.Sprint(live) {
			return at
		}
	}
	return path
}
