package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
)

// content returns the part of the spec that a revision holds, without empty values.
func content(set *lwsv1.LeaderWorkerSet, data []byte) (map[string]any, error) {
	restored, err := lws.Restore(set, data)
	if err != nil {
		return nil, err
	}
	return contentOf(restored)
}

func contentOf(set *lwsv1.LeaderWorkerSet) (map[string]any, error) {
	data, err := lws.RevisionData(set)
	if err != nil {
		return nil, err
	}
	var whole struct {
		Spec map[string]any `json:"spec"`
	}
	if err := json.Unmarshal(data, &whole); err != nil {
		return nil, fmt.Errorf("decode revision: %w", err)
	}
	said, _ := pruned(whole.Spec).(map[string]any)
	return said, nil
}

// pruned returns a value without nulls, empty maps and the directives of a patch.
func pruned(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, inner := range value {
			if inner = pruned(inner); inner != nil && key != "$patch" {
				kept[key] = inner
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case []any:
		kept := make([]any, len(value))
		for i := range value {
			kept[i] = pruned(value[i])
		}
		return kept
	}
	return value
}

// Change is one field that differs between two templates.
type Change struct {
	// Path names the field, elements of lists by their name where they have one.
	Path string `json:"path"`
	// From and To are what it was and is; absent where it was or is not there.
	From any `json:"from,omitempty"`
	To   any `json:"to,omitempty"`
}

// String is the change in short.
func (c Change) String() string {
	switch {
	case c.From == nil:
		return fmt.Sprintf("%s: added %s", c.Path, short(c.To))
	case c.To == nil:
		return fmt.Sprintf("%s: removed %s", c.Path, short(c.From))
	}
	return fmt.Sprintf("%s: %s → %s", c.Path, short(c.From), short(c.To))
}

// shortAtMost bounds how much of a value is shown in a line.
const shortAtMost = 60

func short(value any) string {
	text, isText := value.(string)
	if !isText {
		encoded, err := json.Marshal(value)
		if err != nil {
			return "?"
		}
		text = string(encoded)
	}
	if runes := []rune(text); len(runes) > shortAtMost {
		return string(runes[:shortAtMost-1]) + "…"
	}
	return text
}

// changes lists the differences by path.
func changes(path string, from, to any) []Change {
	before, wasMap := from.(map[string]any)
	after, isMap := to.(map[string]any)
	if wasMap && isMap {
		return changesOfMaps(path, before, after)
	}
	old, wasList := named(from)
	new, isList := named(to)
	if wasList && isList {
		return changesOfMaps(path, old, new)
	}
	if reflect.DeepEqual(from, to) {
		return nil
	}
	return []Change{{Path: path, From: from, To: to}}
}

func changesOfMaps(path string, before, after map[string]any) []Change {
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	var all []Change
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		at := key
		switch {
		case path != "" && key[0] == '[':
			at = path + key
		case path != "":
			at = path + "." + key
		}
		all = append(all, changes(at, before[key], after[key])...)
	}
	return all
}

// named returns a list of maps as a map by "[name]", if all names differ.
func named(value any) (map[string]any, bool) {
	list, isList := value.([]any)
	if !isList || len(list) == 0 {
		return nil, false
	}
	byName := map[string]any{}
	for _, element := range list {
		fields, isMap := element.(map[string]any)
		name, hasName := fields["name"].(string)
		if !isMap || !hasName || byName["["+name+"]"] != nil {
			return nil, false
		}
		byName["["+name+"]"] = element
	}
	return byName, true
}
