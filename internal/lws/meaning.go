package lws

import (
	"encoding/json"
	"reflect"
	"slices"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// filledIn are the values that the schema and the webhooks put where nobody
// wrote any. A set from before a definition knew a field gets its default with
// the next read; its revision, which no schema judges, never does. A field name
// that stands in several places has a value here that means the same in all.
var filledIn = map[string][]any{
	"size":               {1.0},
	"restartPolicy":      {string(lwsv1.RecreateGroupOnPodRestart), ""},
	"subGroupPolicyType": {string(lwsv1.SubGroupPolicyTypeLeaderWorker), nil},
	"subdomainPolicy":    {string(lwsv1.SubdomainShared), nil},

	// Within pod templates.
	"protocol":       {"TCP"},
	"service":        {""},
	"name":           {""},
	"optional":       {false},
	"readOnly":       {false},
	"fsType":         {"ext4", "xfs"},
	"storageMode":    {"ThinProvisioned"},
	"iscsiInterface": {"default"},
	"keyring":        {"/etc/ceph/keyring"},
	"pool":           {"rbd"},
	"user":           {"admin"},
}

// SameMeaning tells whether two revision data differ in nothing that anybody
// wrote: only in what is filled in where a field is left out, and in the old
// word for a restart policy. What somebody wrote is never taken for the same,
// though the API server would make the same pods of it: another implementation
// would roll it.
func SameMeaning(one, other []byte) bool {
	var a, b any
	if json.Unmarshal(one, &a) != nil || json.Unmarshal(other, &b) != nil {
		return false
	}
	return reflect.DeepEqual(written(a), written(b))
}

// written leaves out of a document what is filled in. It changes what it is given.
func written(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if field = written(field); isFilledIn(key, field) {
				delete(value, key)
				continue
			}
			value[key] = field
		}
		renamed(value)
		return value
	case []any:
		for i := range value {
			value[i] = written(value[i])
		}
		return value
	}
	return value
}

func isFilledIn(key string, value any) bool {
	values, known := filledIn[key]
	return known && slices.ContainsFunc(values, func(v any) bool { return reflect.DeepEqual(v, value) })
}

// renamed gives the deprecated restart policy the name that admission gives it.
// Pods know no policy of that name.
func renamed(fields map[string]any) {
	if fields["restartPolicy"] == string(lwsv1.DeprecatedDefaultRestartPolicy) {
		fields["restartPolicy"] = string(lwsv1.NoneRestartPolicy)
	}
}
