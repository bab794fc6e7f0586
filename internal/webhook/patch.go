package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
)

// A patch tells the API server what the rules changed, and nothing else.
//
// The object comes as raw JSON and is judged as a Go value, and the two are not
// the same: fields newer than our types are in the one and not in the other,
// empty fields may be in the other and not in the one. So three documents are
// walked together. The typed value before and after the rules says what
// changed; the raw object says what is there to be changed. A field that our
// types do not know is in neither typed document, hence in no operation.
//
// Lists need care: an environment variable put in front moves all others, and a
// patch that rewrote them one by one would drop what it does not know of them.
// So elements are matched by name, or by equality where they have none, and
// only the new ones are added and only the missing ones removed.

// Diff returns the operations that take raw to what the rules made of it.
// before and after are the typed object before and after the rules ran. Time
// and memory are linear in the size of the three.
func Diff(raw []byte, before, after any) ([]jsonpatch.Operation, error) {
	documents := make([]any, 3)
	beforeJSON, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("encode the object before the rules: %w", err)
	}
	afterJSON, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encode the object after the rules: %w", err)
	}
	if bytes.Equal(beforeJSON, afterJSON) {
		return nil, nil
	}
	for i, text := range [][]byte{raw, beforeJSON, afterJSON} {
		if documents[i], err = decode(text); err != nil {
			return nil, err
		}
	}
	var p patch
	p.value("", documents[0], documents[1], documents[2])
	return p, nil
}

// decode keeps numbers as they are written: a float would lose large integers.
func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode the object: %w", err)
	}
	return v, nil
}

type patch []jsonpatch.Operation

func (p *patch) add(path string, v any) { *p = append(*p, jsonpatch.NewOperation("add", path, v)) }
func (p *patch) replace(path string, v any) {
	*p = append(*p, jsonpatch.NewOperation("replace", path, v))
}
func (p *patch) remove(path string) { *p = append(*p, jsonpatch.NewOperation("remove", path, nil)) }

// value describes the change of one value that exists in raw under path.
func (p *patch) value(path string, raw, before, after any) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch after := after.(type) {
	case map[string]any:
		rawMap, inRaw := raw.(map[string]any)
		beforeMap, inBefore := before.(map[string]any)
		if inRaw && inBefore {
			p.object(path, rawMap, beforeMap, after)
			return
		}
	case []any:
		rawList, inRaw := raw.([]any)
		beforeList, inBefore := before.([]any)
		if inRaw && inBefore && len(rawList) == len(beforeList) {
			p.list(path, rawList, beforeList, after)
			return
		}
	}
	p.replace(path, after)
}

func (p *patch) object(path string, raw, before, after map[string]any) {
	for _, key := range keysOf(before, after) {
		at := path + "/" + escape.Replace(key)
		was, existed := before[key]
		is, exists := after[key]
		_, inRaw := raw[key]
		switch {
		case exists && existed && inRaw:
			p.value(at, raw[key], was, is)
		case exists && !reflect.DeepEqual(was, is):
			p.add(at, is) // its parent is there; whatever raw has here, "add" takes its place
		case !exists && inRaw:
			p.remove(at)
		}
	}
}

// list walks both lists once. Where the elements at hand differ, the one that
// was there stays if it comes later in the new list, and goes if it does not.
func (p *patch) list(path string, raw, before, after []any) {
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
		case i < len(was) && !comesAfter(last, was[i], j):
			p.remove(at)
			i++
		default:
			p.add(at, after[j])
			j++
		}
	}
}

func comesAfter(last map[string]int, id string, position int) bool {
	at, found := last[id]
	return found && at > position
}

func identities(list []any) []string {
	ids := make([]string, len(list))
	for i, v := range list {
		ids[i] = identity(v)
	}
	return ids
}

// identity tells elements of one list apart: by name where they have one, as
// containers, variables and volumes do, else by all they hold.
func identity(v any) string {
	if object, ok := v.(map[string]any); ok {
		if name, ok := object["name"].(string); ok {
			return "name:" + name
		}
	}
	text, _ := json.Marshal(v) // v came out of a JSON decoder and goes back into JSON
	return "value:" + string(text)
}

func keysOf(before, after map[string]any) []string {
	keys := make([]string, 0, len(after))
	for key := range after {
		keys = append(keys, key)
	}
	for key := range before {
		if _, again := after[key]; !again {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// escape writes a key as one step of a JSON pointer (RFC 6901).
var escape = strings.NewReplacer("~", "~0", "/", "~1")
