package crd_test

import (
	"strings"
	"testing"
)

// The texts are a contract.
const (
	dns1035   = "<nil>: metadata.name: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
	immutable = ": field is immutable: the claims of a StatefulSet cannot be changed; put back what it was; to enlarge a volume, resize its claim; for other claims, delete the set and create it again, with whenDeleted Retain if data is to stay"

	template = "spec.leaderWorkerTemplate."
	claims   = template + "volumeClaimTemplates"
)

// The laws of agreement_test.go check what the webhook checks. These are the values that they do not draw.
func TestCreateRules(t *testing.T) {
	tests := []struct {
		name, spec string
		want       []string
	}{
		{"empty objects", `{rolloutStrategy: {rollingUpdateConfiguration: {}}}`, nil},
		{"nulls that have a default", `{replicas: null, rolloutStrategy: {type: null}}`, nil},
		{"retention", `leaderWorkerTemplate: {persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Delete}}`, nil},
		{"retention left empty", `leaderWorkerTemplate: {persistentVolumeClaimRetentionPolicy: {whenDeleted: ""}}`, nil},
		{"retention unknown", `leaderWorkerTemplate: {persistentVolumeClaimRetentionPolicy: {whenDeleted: x, whenScaled: z}}`, []string{
			template + "persistentVolumeClaimRetentionPolicy.whenDeleted: must be Retain or Delete",
			template + "persistentVolumeClaimRetentionPolicy.whenScaled: must be Retain or Delete",
		}},
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
	data := func(name, class, storage, more string) string {
		return `leaderWorkerTemplate: {volumeClaimTemplates: [{metadata: {name: ` + name + `}, spec: {accessModes: [ReadWriteOnce], storageClassName: ` +
			class + `, resources: {requests: {storage: ` + storage + `}}` + more + `}}]}`
	}
	was := data("data", "fast", "1Gi", "")
	tests := []struct {
		name, old, is string
		want          []string
	}{
		{"claims as they were", was, was, nil},
		{"claims in another notation", was, data("data", "fast", "1024Mi", ""), nil},
		{"claims with the default spelt out", was, data("data", "fast", "1Gi", ", volumeMode: Filesystem"), nil},
		{"claims as a typed client sends them", was, strings.Replace(was, "}}]}", "}, status: {}}]}", 1), nil},
		{"claims larger", was, data("data", "fast", "2Gi", ""), []string{claims + immutable}},
		{"claims of another class", was, data("data", "slow", "1Gi", ""), []string{claims + immutable}},
		{"claims of another mode", was, data("data", "fast", "1Gi", ", volumeMode: Block"), []string{claims + immutable}},
		{"claims added", `{}`, was, []string{claims + immutable}},
		{"claims removed", was, `{}`, []string{claims + immutable}},

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
