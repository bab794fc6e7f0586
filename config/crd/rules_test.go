package crd_test

import (
	"strings"
	"testing"
)

// The texts are a contract.
const (
	percentText = ": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
	negative    = ": must be greater than or equal to 0"
	bothZero    = rolling + "maxUnavailable: must not be 0 when `maxSurge` is 0"
	product     = "spec.replicas: the product of replicas and worker replicas must not exceed 2147483647"
	dns1035     = "<nil>: metadata.name: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
	immutable   = ": field is immutable: the claims of a StatefulSet cannot be changed; put back what it was; to enlarge a volume, resize its claim; for other claims, delete the set and create it again, with whenDeleted Retain if data is to stay"
	always      = ".spec.restartPolicy: must be Always: the pods of a StatefulSet are always restarted"
	endless     = ".spec.activeDeadlineSeconds: the pods of a StatefulSet have no deadline; remove it"

	rolling  = "spec.rolloutStrategy.rollingUpdateConfiguration."
	template = "spec.leaderWorkerTemplate."
	subgroup = template + "subGroupPolicy.subGroupSize: "
	claims   = template + "volumeClaimTemplates"
)

// The laws of agreement_test.go check the borders of each rule. This table has each message once, and
// the values that the laws do not draw.
func TestCreateRules(t *testing.T) {
	tests := []struct {
		name, spec string
		want       []string
	}{
		{"nothing given", `{}`, nil},
		{"empty objects", `{rolloutStrategy: {rollingUpdateConfiguration: {}}}`, nil},
		{"nulls that have a default", `{replicas: null, rolloutStrategy: {type: null}}`, nil},

		{"size 0", `leaderWorkerTemplate: {size: 0}`, []string{template + "size: size must be equal or greater than 1"}},
		{"too large a group", `{replicas: 1, leaderWorkerTemplate: {size: 1000001}}`, []string{
			"spec.leaderWorkerTemplate.size: size must be equal or less than 1000000: more pods than a cluster holds; use more groups",
		}},
		{"too many pods", `{replicas: 65536, leaderWorkerTemplate: {size: 32768}}`, []string{product}},

		{"no percentage", `rolloutStrategy: {rollingUpdateConfiguration: {maxUnavailable: abc, maxSurge: 1.5%}}`, []string{
			rolling + "maxUnavailable" + percentText, rolling + "maxSurge" + percentText,
		}},
		{"negative", `rolloutStrategy: {rollingUpdateConfiguration: {maxUnavailable: -1, maxSurge: -1, partition: -1}}`, []string{
			rolling + "maxUnavailable" + negative, rolling + "maxSurge" + negative, rolling + "partition" + negative,
		}},
		{"more than all", `rolloutStrategy: {rollingUpdateConfiguration: {maxUnavailable: 101%, maxSurge: 99999999999999999999%}}`, []string{
			rolling + "maxUnavailable: must not be greater than 100%", rolling + "maxSurge: must not be greater than 100%",
		}},
		{"both zero", `{replicas: 2, rolloutStrategy: {rollingUpdateConfiguration: {maxUnavailable: 0}}}`, []string{bothZero}},

		{"subgroups of none", `leaderWorkerTemplate: {size: 4, subGroupPolicy: {subGroupSize: 0}}`, []string{subgroup + "subGroupSize must be equal or greater than 1"}},
		{"subgroups without a size", `leaderWorkerTemplate: {size: 4, subGroupPolicy: {}}`, []string{
			template + "subGroupPolicy: a subGroupPolicy needs a subGroupSize, the number of pods of a subgroup",
		}},
		{"subgroups that do not divide", `leaderWorkerTemplate: {size: 5, subGroupPolicy: {subGroupSize: 3}}`, []string{subgroup + "size or size - 1 must be divisible by subGroupSize"}},
		{"subgroups of size 1", `leaderWorkerTemplate: {subGroupPolicy: {subGroupSize: 2}}`, []string{subgroup + "subGroupSize cannot be larger than size"}},
		{"subgroups need the leader", `leaderWorkerTemplate: {size: 4, subGroupPolicy: {subGroupSize: 2, subGroupPolicyType: LeaderExcluded}}`, []string{
			subgroup + "size-1 must be divisible by subGroupSize when using LeaderExcluded",
		}},

		{"retention", `leaderWorkerTemplate: {persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Delete}}`, nil},
		{"retention left empty", `leaderWorkerTemplate: {persistentVolumeClaimRetentionPolicy: {whenDeleted: ""}}`, nil},
		{"retention unknown", `leaderWorkerTemplate: {persistentVolumeClaimRetentionPolicy: {whenDeleted: x, whenScaled: z}}`, []string{
			template + "persistentVolumeClaimRetentionPolicy.whenDeleted: must be Retain or Delete",
			template + "persistentVolumeClaimRetentionPolicy.whenScaled: must be Retain or Delete",
		}},
		{"leaders that end", `leaderWorkerTemplate: {leaderTemplate: {spec: {restartPolicy: Never, containers: [{name: c}]}}}`, []string{template + "leaderTemplate" + always}},
		{"workers that end", `leaderWorkerTemplate: {workerTemplate: {spec: {restartPolicy: OnFailure}}}`, []string{template + "workerTemplate" + always}},
		{"leaders with a deadline", `leaderWorkerTemplate: {leaderTemplate: {spec: {activeDeadlineSeconds: 5, containers: [{name: c}]}}}`, []string{template + "leaderTemplate" + endless}},
		{"workers with a deadline", `leaderWorkerTemplate: {workerTemplate: {spec: {activeDeadlineSeconds: 5}}}`, []string{template + "workerTemplate" + endless}},
		{"unused workers that end", `leaderWorkerTemplate: {leaderTemplate: {spec: {containers: [{name: c}]}}, workerTemplate: {spec: {restartPolicy: Never}}}`, nil},
	}
	g := newGate(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkFaults(t, g.create(t, set(t, tt.spec)), tt.want)
		})
	}
}

func TestCreateRulesForNames(t *testing.T) {
	tests := []struct {
		name string
		want []string
	}{
		{"a", nil},
		{strings.Repeat("a", 63), nil},
		{strings.Repeat("a", 64), []string{"<nil>: metadata.name: must be no more than 63 characters"}},
		{"2cube", []string{dns1035}},
		{"a.b", []string{dns1035}},
	}
	g := newGate(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := named(t, tt.name, `{}`)
			checkFaults(t, g.create(t, in), tt.want)
			checkFaults(t, g.update(t, named(t, tt.name, `replicas: 3`), in), nil)
		})
	}
}

func TestASetNeedsASpec(t *testing.T) {
	in := set(t, `{}`)
	delete(in, "spec")
	checkFaults(t, newGate(t).create(t, in), []string{"<nil>: spec: a set needs at least spec.leaderWorkerTemplate.workerTemplate"})
}

func TestUpdateRules(t *testing.T) {
	const (
		added   = template + "subGroupPolicy: cannot enable subGroupSize after the lws is already created"
		removed = template + "subGroupPolicy: cannot remove subGroupSize after enabled"
	)
	data := func(name, class, storage, more string) string {
		return `leaderWorkerTemplate: {volumeClaimTemplates: [{metadata: {name: ` + name + `}, spec: {accessModes: [ReadWriteOnce], storageClassName: ` +
			class + `, resources: {requests: {storage: ` + storage + `}}` + more + `}}]}`
	}
	was := data("data", "fast", "1Gi", "")
	tests := []struct {
		name, old, is string
		want          []string
	}{
		{"subgroups added", `leaderWorkerTemplate: {size: 4}`, `leaderWorkerTemplate: {size: 4, subGroupPolicy: {subGroupSize: 2}}`, []string{added}},
		{"subgroups removed", `leaderWorkerTemplate: {size: 4, subGroupPolicy: {subGroupSize: 2}}`, `leaderWorkerTemplate: {size: 4}`, []string{removed}},
		{"subgroups changed", `leaderWorkerTemplate: {size: 4, subGroupPolicy: {subGroupSize: 2}}`, `leaderWorkerTemplate: {size: 4, subGroupPolicy: {subGroupSize: 4}}`, []string{subgroup + "field is immutable"}},

		{"claims as they were", was, was, nil},
		{"claims in another notation", was, data("data", "fast", "1024Mi", ""), nil},
		{"claims with the default spelt out", was, data("data", "fast", "1Gi", ", volumeMode: Filesystem"), nil},
		{"claims as a typed client sends them", was, strings.Replace(was, "}}]}", "}, status: {}}]}", 1), nil},
		{"claims larger", was, data("data", "fast", "2Gi", ""), []string{claims + immutable}},
		{"claims of another class", was, data("data", "slow", "1Gi", ""), []string{claims + immutable}},
		{"claims of another mode", was, data("data", "fast", "1Gi", ", volumeMode: Block"), []string{claims + immutable}},
		{"claims added", `{}`, was, []string{claims + immutable}},
		{"claims removed", was, `{}`, []string{claims + immutable}},

		{"to unused workers that end put to use", `leaderWorkerTemplate: {leaderTemplate: {spec: {containers: []}}, workerTemplate: {spec: {restartPolicy: Never}}}`, `leaderWorkerTemplate: {workerTemplate: {spec: {restartPolicy: Never}}}`, []string{template + "workerTemplate" + always}},
		{"to unused workers that end grown", `leaderWorkerTemplate: {leaderTemplate: {spec: {containers: []}}, workerTemplate: {spec: {restartPolicy: Never}}}`, `leaderWorkerTemplate: {size: 2, leaderTemplate: {spec: {containers: []}}, workerTemplate: {spec: {restartPolicy: Never}}}`, []string{template + "workerTemplate" + always}},

		// The scale subresource changes replicas alone, and must get through.
		{"scaled down under a percentage", `{replicas: 10, rolloutStrategy: {rollingUpdateConfiguration: {maxUnavailable: 10%}}}`, `{replicas: 5, rolloutStrategy: {rollingUpdateConfiguration: {maxUnavailable: 10%}}}`, nil},
		{"scaled up from nothing", `{replicas: 0, rolloutStrategy: {rollingUpdateConfiguration: {maxUnavailable: 0}}}`, `{replicas: 5, rolloutStrategy: {rollingUpdateConfiguration: {maxUnavailable: 0}}}`, nil},
	}
	g := newGate(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkFaults(t, g.create(t, set(t, tt.old)), nil)
			checkFaults(t, g.update(t, set(t, tt.is), set(t, tt.old)), tt.want)
		})
	}
}

// A set may have been stored before a rule existed. Whoever touches something
// else must not be stopped.
func TestUpdateLeavesOldFaultsAlone(t *testing.T) {
	faulty := map[string]string{
		"size":               `leaderWorkerTemplate: {size: 0}`,
		"product":            `{replicas: 1000000, leaderWorkerTemplate: {size: 1000000}}`,
		"percentages":        `rolloutStrategy: {rollingUpdateConfiguration: {maxUnavailable: abc, maxSurge: 200%}}`,
		"negative":           `rolloutStrategy: {rollingUpdateConfiguration: {maxUnavailable: -1, maxSurge: -1, partition: -1}}`,
		"both zero":          `rolloutStrategy: {rollingUpdateConfiguration: {maxUnavailable: 0}}`,
		"no subgroup size":   `leaderWorkerTemplate: {subGroupPolicy: {}}`,
		"subgroups of none":  `leaderWorkerTemplate: {subGroupPolicy: {subGroupSize: 0}}`,
		"subgroups":          `leaderWorkerTemplate: {size: 5, subGroupPolicy: {subGroupSize: 3}}`,
		"subgroups, leader":  `leaderWorkerTemplate: {size: 4, subGroupPolicy: {subGroupSize: 2, subGroupPolicyType: LeaderExcluded}}`,
		"subgroups, size":    `leaderWorkerTemplate: {size: 1, subGroupPolicy: {subGroupSize: 2}}`,
		"retention":          `leaderWorkerTemplate: {persistentVolumeClaimRetentionPolicy: {whenDeleted: x}}`,
		"leaders that end":   `leaderWorkerTemplate: {leaderTemplate: {spec: {restartPolicy: Never, containers: []}}}`,
		"workers that end":   `leaderWorkerTemplate: {workerTemplate: {spec: {restartPolicy: Never}}}`,
		"workers' deadline":  `leaderWorkerTemplate: {workerTemplate: {spec: {activeDeadlineSeconds: 5}}}`,
		"too many replicas":  `replicas: 1000001`,
		"unknown start":      `startupPolicy: Whenever`,
		"unknown restarting": `leaderWorkerTemplate: {restartPolicy: Sometimes}`,
	}
	touches := map[string]func(object){
		"labels": func(in object) { in["metadata"].(object)["labels"] = object{"a": "b"} },
		"image": func(in object) {
			pod := in["spec"].(object)["leaderWorkerTemplate"].(object)["workerTemplate"].(object)["spec"].(object)
			pod["containers"].([]any)[0].(object)["image"] = "new"
		},
		"network": func(in object) {
			in["spec"].(object)["networkConfig"] = object{"subdomainPolicy": "Shared"}
		},
	}
	g := newGate(t)
	for name, spec := range faulty {
		for what, touch := range touches {
			t.Run(name+"/"+what, func(t *testing.T) {
				if len(g.create(t, set(t, spec))) == 0 {
					t.Fatal("the set has no fault to begin with")
				}
				is := set(t, spec)
				touch(is)
				checkFaults(t, g.update(t, is, set(t, spec)), nil)
			})
		}
	}
}
