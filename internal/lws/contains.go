package lws

import (
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
)

// contains tells whether every field that part sets has the same value in
// whole. Fields that part leaves out, such as those the API server fills in, may
// be anything. Lists must have the same length and match item by item.
func contains(whole, part any) bool {
	have, err := runtime.DefaultUnstructuredConverter.ToUnstructured(whole)
	if err != nil {
		return false
	}
	want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(part)
	if err != nil {
		return false
	}
	return within(have, want)
}

func within(have, want any) bool {
	switch want := want.(type) {
	case nil:
		return true
	case map[string]any:
		have, ok := have.(map[string]any)
		return (ok || len(want) == 0) && mapWithin(have, want)
	case []any:
		have, ok := have.([]any)
		return (ok || len(want) == 0) && listWithin(have, want)
	default:
		return reflect.DeepEqual(have, want)
	}
}

func mapWithin(have, want map[string]any) bool {
	for key, value := range want {
		if !within(have[key], value) {
			return false
		}
	}
	return true
}

func listWithin(have, want []any) bool {
	if len(have) != len(want) {
		return false
	}
	for i := range want {
		if !within(have[i], want[i]) {
			return false
		}
	}
	return true
}

// fingerprint is a short hash of all fields that object sets.
func fingerprint(object any) string {
	encoded, err := json.Marshal(object)
	if err != nil {
		return "" // typed API objects always encode
	}
	hash := fnv.New64a()
	_, _ = hash.Write(encoded)
	return hex.EncodeToString(hash.Sum(nil))
}
