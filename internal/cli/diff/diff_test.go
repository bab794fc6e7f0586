package diff

import (
	"testing"

	"lockstep.dev/lockstep/test/expect"
)

func TestLacking(t *testing.T) {
	type fields = map[string]any
	list := []any{fields{"a": int64(1)}}
	want := fields{"spec": fields{"list": list, "none": []any{}, "text": "x", "empty": ""}}
	for name, c := range map[string]struct {
		live fields
		at   string
	}{
		"the same":           {want, ""},
		"with defaults":      {fields{"spec": fields{"list": []any{fields{"a": 1.0, "b": 2}}, "text": "x", "more": true}}, ""},
		"another value":      {fields{"spec": fields{"list": []any{fields{"a": int64(2)}}, "text": "x"}}, "spec.list[0].a"},
		"one element more":   {fields{"spec": fields{"list": []any{fields{"a": int64(1)}, nil}, "text": "x"}}, "spec.list"},
		"an element":         {fields{"spec": fields{"list": list, "none": []any{"b"}, "text": "x"}}, "spec.none"},
		"a field is missing": {fields{"spec": fields{"list": list}}, "spec.text"},
		"nothing":            {nil, "spec.list"},
	} {
		expect.Equalf(t, c.at, Lacking(want, c.live), "%s", name)
	}
}
