package fakeapi

import (
	"fmt"
	"maps"
	"strings"

	"pgregory.net/rapid"
)

const laterPrefix = "ofALaterVersion"

// WithLater adds fields that no type of this version has to some of the objects within raw. The
// metadata, whose maps have keys of users, stays as it is.
func WithLater(t *rapid.T, raw []byte) []byte {
	var whole map[string]any
	decode(raw, &whole)
	count := 0
	inEach(whole, func(object map[string]any) {
		if rapid.Bool().Draw(t, "extend") {
			count++
			object[fmt.Sprint(laterPrefix, count)] = rapid.SampledFrom([]any{"x", 7.0, false, []any{"y"}, map[string]any{"z": "1"}}).Draw(t, "value")
		}
	})
	return encoded(whole)
}

// LaterOf returns the fields that WithLater added, by name, wherever they are now.
func LaterOf(raw []byte) map[string]any {
	var whole map[string]any
	decode(raw, &whole)
	found := map[string]any{}
	inEach(whole, func(object map[string]any) {
		for name, value := range object {
			if strings.HasPrefix(name, laterPrefix) {
				found[name] = value
			}
		}
	})
	return found
}

// inEach calls visit with value and each object within it, but for metadata.
func inEach(value any, visit func(map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		within := maps.Clone(value)
		visit(value)
		for name, field := range within {
			if name != "metadata" {
				inEach(field, visit)
			}
		}
	case []any:
		for _, element := range value {
			inEach(element, visit)
		}
	}
}
