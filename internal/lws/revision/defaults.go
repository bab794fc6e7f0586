package revision

import (
	"encoding/json"
	"reflect"
	"slices"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// filledIn are the values that the schema and the webhooks give to absent fields. A set that is
// older than a field gets its default with the next read; its revision never does. The key is
// the field with the one that it is in: a label may have the same name.
var filledIn = map[string][]any{
	"leaderWorkerTemplate.size":          {1.0},
	"leaderWorkerTemplate.restartPolicy": {string(lwsv1.RecreateGroupOnPodRestart), ""},
	"subGroupPolicy.subGroupPolicyType":  {string(lwsv1.SubGroupPolicyTypeLeaderWorker), nil},
	"networkConfig.subdomainPolicy":      {string(lwsv1.SubdomainShared), nil},

	// Within pod templates.
	"ports.protocol":            {"TCP"},
	"grpc.service":              {""},
	"configMap.name":            {""},
	"configMapKeyRef.name":      {""},
	"configMapRef.name":         {""},
	"imagePullSecrets.name":     {""},
	"nodePublishSecretRef.name": {""},
	"secret.name":               {""},
	"secretKeyRef.name":         {""},
	"secretRef.name":            {""},
	"fileKeyRef.optional":       {false},
	"azureDisk.fsType":          {"ext4"},
	"azureDisk.readOnly":        {false},
	"iscsi.iscsiInterface":      {"default"},
	"rbd.keyring":               {"/etc/ceph/keyring"},
	"rbd.pool":                  {"rbd"},
	"rbd.user":                  {"admin"},
	"scaleIO.fsType":            {"xfs"},
	"scaleIO.storageMode":       {"ThinProvisioned"},
}

// SameMeaning reports whether two revision data differ only in defaults of absent fields, and in
// the deprecated name of a restart policy. Other differences roll the set, even if they lead to
// the same pods: another implementation would roll it.
func SameMeaning(one, other []byte) bool {
	var a, b any
	if json.Unmarshal(one, &a) != nil || json.Unmarshal(other, &b) != nil {
		return false
	}
	return reflect.DeepEqual(written("", a), written("", b))
}

// written removes defaults from the value of the field name, in place.
func written(name string, value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if field = renamed(name, key, written(key, field)); isFilledIn(name, key, field) {
				delete(value, key)
				continue
			}
			value[key] = field
		}
		return value
	case []any:
		for i := range value {
			value[i] = written(name, value[i])
		}
		return value
	}
	return value
}

func isFilledIn(in, key string, value any) bool {
	values, known := filledIn[in+"."+key]
	return known && slices.ContainsFunc(values, func(v any) bool { return reflect.DeepEqual(v, value) })
}

// renamed gives the deprecated restart policy the name that admission gives it.
func renamed(in, key string, value any) any {
	if in == "leaderWorkerTemplate" && key == "restartPolicy" && value == string(lwsv1.DeprecatedDefaultRestartPolicy) {
		return string(lwsv1.NoneRestartPolicy)
	}
	return value
}
