package crd_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
	strictjson "sigs.k8s.io/json"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/config/crd"
	lwsrevision "lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/quantity"
	"lockstep.dev/lockstep/test/expect"
)

// columns returns a line for each column of a definition.
func columns(t *testing.T, file string) (all []string) {
	t.Helper()
	for _, c := range readFile(t, file).Spec.Versions[0].AdditionalPrinterColumns {
		all = append(all, fmt.Sprintf("%s: %s %s, priority %d", c.Name, c.Type, c.JSONPath, c.Priority))
	}
	return all
}

func TestColumns(t *testing.T) {
	want := []string{
		"Ready: integer .status.readyReplicas, priority 0", "Desired: integer .spec.replicas, priority 0",
		"Up-to-date: integer .status.updatedReplicas, priority 0", "Restarts: integer .status.groupRestarts, priority 0",
		`Status: string .status.conditions[?(@.type=="Ready")].reason, priority 0`, "Age: date .metadata.creationTimestamp, priority 0",
		`Message: string .status.conditions[?(@.type=="Ready")].message, priority 1`,
	}
	expect.Equal(t, want, columns(t, setFile))
}

// property finds the schema at a dotted path.
func property(t *testing.T, path string) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	return propertyOf(t, setFile, path)
}

// propertyOf finds a schema in a definition. A list has "[]" after its name.
func propertyOf(t *testing.T, file, path string) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	at := *readFile(t, file).Spec.Versions[0].Schema.OpenAPIV3Schema
	for step := range strings.SplitSeq(path, ".") {
		name, isList := strings.CutSuffix(step, "[]")
		next, found := at.Properties[name]
		expect.Must(t, found, "no %q in %q", step, path)
		if at = next; isList {
			at = *next.Items.Schema
		}
	}
	return at
}

// preset is the default and the enum of a field.
type preset struct{ path, fallback, enum string }

func TestDefaultsAndEnums(t *testing.T) {
	const template, rolling = "spec.leaderWorkerTemplate.", "spec.rolloutStrategy.rollingUpdateConfiguration."
	checkPresets(t, setFile, []preset{
		{"spec.replicas", `1`, `null`},
		{"spec.startupPolicy", `"LeaderCreated"`, `["LeaderCreated","LeaderReady"]`},
		{"spec.podTerminationPolicy", `"Default"`, `["Default","Parallel"]`},
		{"spec.groupIdentity", `"Ordinal"`, `["Ordinal","Hash"]`},
		{"spec.groupReplacementPolicy", `"PostTermination"`, `["Immediate","PostTermination"]`},
		{"spec.networkConfig.subdomainPolicy", ``, `["Shared","UniquePerReplica"]`},
		{"spec.rolloutStrategy.type", `"RollingUpdate"`, `["RollingUpdate"]`},
		{rolling + "partition", `0`, `null`},
		{rolling + "maxUnavailable", `1`, `null`},
		{rolling + "maxSurge", `0`, `null`},
		{template + "size", `1`, `null`},
		{template + "restartPolicy", `"RecreateGroupOnPodRestart"`, `["Default","RecreateGroupOnPodRestart","RecreateGroupAfterStart","None"]`},
		{template + "maxGroupRestarts", ``, `null`},
		{template + "subGroupPolicy.subGroupPolicyType", `"LeaderWorker"`, `["LeaderWorker","LeaderExcluded"]`},
		{template + "subGroupPolicy.subGroupSize", ``, `null`},
		{template + "persistentVolumeClaimRetentionPolicy.whenDeleted", ``, `null`},
	})
}

func checkPresets(t *testing.T, file string, all []preset) {
	t.Helper()
	for _, tt := range all {
		schema := propertyOf(t, file, tt.path)
		fallback := ""
		if schema.Default != nil {
			fallback = string(schema.Default.Raw)
		}
		enum := string(expect.Value(json.Marshal(schema.Enum))(t))
		expect.Equalf(t, tt.fallback, fallback, "%s: default", tt.path)
		expect.Equalf(t, tt.enum, enum, "%s: enum", tt.path)
	}
}

// clientSideApplyLimit is what all annotations of an object together may take;
// kubectl apply puts the whole object into one of them.
const clientSideApplyLimit = 256 * 1024

func TestDefinitionsCanBeAppliedFromTheClientSide(t *testing.T) {
	for file := range files {
		raw := expect.Value(json.Marshal(readFile(t, file)))(t)
		expect.That(t, len(raw) <= clientSideApplyLimit*9/10,
			"%s takes %d bytes, want at most nine tenths of %d", file, len(raw), clientSideApplyLimit)
	}
}

// unreadable are values that some Go type behind a leaf of the schema cannot hold.
var unreadable = map[string][]string{
	"number": {`99999999999`, `-99999999999`, `2147483648`},
	"time": {
		`"2026-01-01t00:00:00z"`, `"2026-01-01T00:00:00"`, `"2026-01-01T00:00:00x5Z"`, `"2026-02-31T00:00:00Z"`,
		`"2026-01-01T24:00:00Z"`, `"2026-01-01T00:00:00+99:99"`, `[]`, `["2026-01-01T00:00:00Z"]`,
	},
	"other": {`[]`},
}

// files are the definitions, and how to make an object of each.
var files = map[string]func() any{
	setFile:           func() any { return &lwsv1.LeaderWorkerSet{} },
	disaggregatedFile: func() any { return &dsv1.DisaggregatedSet{} },
	scalerFile:        func() any { return &dsv1.DisaggregatedSetRoleScaler{} },
}

// The webhook may be missing, and the status has none. One object that a Go client
// cannot read keeps it from listing all others.
func TestWhatTheDefinitionsTakeCanBeRead(t *testing.T) {
	for file, empty := range files {
		g := gateOf(t, file)
		asked := map[string]int{}
		schema := *readFile(t, file).Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, part := range []string{"spec", "status"} {
			leaves(schema.Properties[part], []string{part}, func(path []string, leaf apiextensionsv1.JSONSchemaProps) {
				kind := kindOf(leaf)
				for _, value := range unreadable[kind] {
					asked[kind]++
					raw := document(path, json.RawMessage(value))
					if g.takes(t, raw, strings.Join(path, ".")) && strictjson.UnmarshalCaseSensitivePreserveInts(raw, empty()) != nil {
						t.Errorf("%s: %s: %s is taken, and no client can read it", file, strings.Join(path, "."), value)
					}
				}
			})
		}
		isSmall := file == scalerFile
		expect.Must(t, isSmall || asked["number"] >= 600 && asked["time"] >= 30 && asked["other"] >= 500,
			"%s: asked %v times: the schema is not what this test thinks", file, asked)
	}
}

func TestTimesThatClientsWriteAreTaken(t *testing.T) {
	g := newGate(t)
	for _, text := range []string{"2026-11-22T18:34:47Z", "2024-02-29T00:00:00Z", "2026-11-22T18:34:47.123456Z", "2026-11-22T18:34:47+05:30"} {
		expect.That(t, g.takes(t, []byte(`{"status":{"restartsSince":"`+text+`"}}`), "status.restartsSince"),
			"%s is refused", text)
	}
}

func kindOf(leaf apiextensionsv1.JSONSchemaProps) string {
	switch {
	case leaf.Format == "date-time":
		return "time"
	case leaf.Type == "integer", leaf.XIntOrString:
		return "number"
	}
	return "other"
}

// takes reports whether the definition finds nothing wrong at the path of a document:
// what else a set must have is not in it.
func (g *gate) takes(t *testing.T, raw []byte, path string) bool {
	t.Helper()
	listed := strings.NewReplacer("[0]", ".[]", ".0", ".[]", "[key]", ".key")
	for _, fault := range g.create(t, parseJSON(t, raw)) {
		if strings.Contains(listed.Replace(fault.Field+" "+fault.Detail), path) {
			return false
		}
	}
	return true
}

func leaves(schema apiextensionsv1.JSONSchemaProps, path []string, found func([]string, apiextensionsv1.JSONSchemaProps)) {
	below := func(name string, child apiextensionsv1.JSONSchemaProps) {
		leaves(child, append(path[:len(path):len(path)], name), found)
	}
	for name, child := range schema.Properties {
		below(name, child)
	}
	switch {
	case schema.Items != nil && schema.Items.Schema != nil:
		below("[]", *schema.Items.Schema)
	case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
		below("key", *schema.AdditionalProperties.Schema)
	case len(schema.Properties) == 0:
		found(path, schema)
	}
}

// What the schema fills into a set that was stored before is no new template:
// every default within what a revision holds must be known to be one.
func TestADefaultOfTheSchemaMakesNoRevision(t *testing.T) {
	spec := readCRD(t).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	found := 0
	for _, part := range []string{"leaderWorkerTemplate", "networkConfig"} {
		defaults(spec.Properties[part], []string{part}, func(path []string, value json.RawMessage) {
			found++
			expect.That(t, lwsrevision.SameMeaning(document(path, value), document(path, nil)),
				"%s: a set gets %s there when it is read, and a revision of its own by that", strings.Join(path, "."), value)
		})
	}
	expect.Must(t, found >= 50, "found %d defaults: the schema is not what this test thinks", found)
}

func defaults(schema apiextensionsv1.JSONSchemaProps, path []string, found func([]string, json.RawMessage)) {
	if schema.Default != nil {
		found(path, schema.Default.Raw)
	}
	for name, field := range schema.Properties {
		defaults(field, append(path[:len(path):len(path)], name), found)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		defaults(*schema.Items.Schema, append(path[:len(path):len(path)], "[]"), found)
	}
}

// document is what has a value at a path, or all of the path but its end.
func document(path []string, value json.RawMessage) []byte {
	head, rest := path[0], path[1:]
	var inner string
	switch {
	case len(rest) > 0:
		inner = string(document(rest, value))
	case value == nil:
		return []byte(`{}`)
	default:
		inner = string(value)
	}
	if head == "[]" {
		return []byte("[" + inner + "]")
	}
	name, _ := json.Marshal(head)
	return []byte("{" + string(name) + ":" + inner + "}")
}

// limit is a set whose workers may take this much.
func limit(tb testing.TB, text string) object {
	tb.Helper()
	return set(tb, `leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c, resources: {limits: {cpu: "`+text+`"}}}]}}}`)
}

func TestQuantitiesThatUsersWriteAreTaken(t *testing.T) {
	gate := newGate(t)
	for _, text := range []string{
		"0", "1", "+1", "-1", "1.5Gi", "+1.5Gi", ".5", "1.", "0.25", "500m", "100n", "5u", "2k", "2M", "2G", "2T", "2P", "2E",
		"1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei", "1e3", "1E3", "1e+03", "1e-3", "1.5e9", "12e6", "9223372036854775807",
	} {
		expect.Value(resource.ParseQuantity(text))(t)
		expect.Emptyf(t, gate.create(t, limit(t, text)), "%q", text)
	}
}

// The webhook may be missing. Whatever the definition takes must be harmless by
// itself; so must it be in every place, and there are more than one.
func TestEveryQuantityIsBounded(t *testing.T) {
	patterns, places := map[string]bool{}, 0
	for file := range files {
		text := expect.Value(crd.Files.ReadFile(file))(t)
		for _, schema := range quantitySchemas(parse(t, string(text))) {
			places++
			patterns[schema["pattern"].(string)] = true
			expect.Equalf[any](t, int64(64), schema["maxLength"], "a quantity has the length")
		}
	}
	expect.Must(t, places >= 60 && len(patterns) == 1,
		"%d quantities with the patterns %v, want at least 60 with one", places, patterns)
	for pattern := range patterns {
		matches := regexp.MustCompile(pattern)
		texts := rapid.StringMatching(pattern)
		rapid.Check(t, func(t *rapid.T) {
			text := texts.Draw(t, "text")
			if len(text) > 64 || !matches.MatchString(text) {
				return
			}
			expect.Must(t, quantity.Harmless(text), "%q is taken and costly", text)
			_, err := resource.ParseQuantity(text)
			expect.Must(t, err == nil, "%q is taken and no quantity: %v", text, err)
		})
	}
}

// quantitySchemas finds what is an integer or a text with a pattern.
func quantitySchemas(node any) []object {
	var found []object
	switch n := node.(type) {
	case object:
		if _, patterned := n["pattern"].(string); patterned && n["x-kubernetes-int-or-string"] == true {
			found = append(found, n)
		}
		for _, child := range n {
			found = append(found, quantitySchemas(child)...)
		}
	case []any:
		for _, item := range n {
			found = append(found, quantitySchemas(item)...)
		}
	}
	return found
}

// The texts are a contract.
const (
	dns1035   = "<nil>: metadata.name: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
	immutable = ": field is immutable: the claims of a StatefulSet cannot be changed; put back what it was; to enlarge a volume, resize its claim; for other claims, delete the set and create it again, with whenDeleted Retain if data is to stay"

	template = "spec.leaderWorkerTemplate."
	claims   = template + "volumeClaimTemplates"
)

type rule struct {
	name, spec string
	want       []string
}

// The webhook has the same texts: TestValidateCreate.
var hashRules = []rule{
	{"hash", `{groupIdentity: Hash, groupReplacementPolicy: Immediate, networkConfig: {subdomainPolicy: UniquePerReplica}, leaderWorkerTemplate: {size: 4, subGroupPolicy: {subGroupSize: 2}, maxGroupRestarts: 1}}`, nil},
	{"hash with PVCs", `{groupIdentity: Hash, leaderWorkerTemplate: {volumeClaimTemplates: [{metadata: {name: data}}]}}`, []string{
		"spec.groupIdentity: volumeClaimTemplates are not supported with groupIdentity Hash",
	}},
	{"hash with a partition", `{groupIdentity: Hash, rolloutStrategy: {rollingUpdateConfiguration: {partition: 1}}}`, []string{
		"spec.groupIdentity: rollingUpdateConfiguration.partition is not supported with groupIdentity Hash",
	}},
	{"hash with a host name of all", `{groupIdentity: Hash, leaderWorkerTemplate: {workerTemplate: {spec: {hostname: h}}}}`, []string{
		"spec.groupIdentity: a leader pod hostname is not supported with groupIdentity Hash",
	}},
	{"hash with a host name of workers", `{groupIdentity: Hash, leaderWorkerTemplate: {leaderTemplate: {spec: {containers: [{name: c}]}}, workerTemplate: {spec: {hostname: h}}}}`, nil},
	{"ordinals at once", `{groupReplacementPolicy: Immediate}`, []string{
		"spec.groupReplacementPolicy: Immediate is only supported with groupIdentity Hash",
	}},
}

func TestHashNames(t *testing.T) {
	g := newGate(t)
	for size, limit := range map[int]int{1: 54, 2: 43} {
		spec := fmt.Sprintf(`{groupIdentity: Hash, leaderWorkerTemplate: {size: %d}}`, size)
		checkFaults(t, g.create(t, named(t, strings.Repeat("a", limit), spec)), nil)
		checkFaults(t, g.create(t, named(t, strings.Repeat("a", limit+1), spec)), []string{
			fmt.Sprintf("<nil>: metadata.name: must be no more than %d characters with groupIdentity Hash", limit),
		})
	}
}

// The laws of agreement_test.go check what the webhook checks. These are the values that they do not draw.
func TestCreateRules(t *testing.T) {
	tests := []rule{
		{"empty objects", `{rolloutStrategy: {rollingUpdateConfiguration: {}}}`, nil},
		{"nulls that have a default", `{replicas: null, rolloutStrategy: {type: null}}`, nil},
		{"retention", `leaderWorkerTemplate: {persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Delete}}`, nil},
		{"retention left empty", `leaderWorkerTemplate: {persistentVolumeClaimRetentionPolicy: {whenDeleted: ""}}`, nil},
		{"retention unknown", `leaderWorkerTemplate: {persistentVolumeClaimRetentionPolicy: {whenDeleted: x, whenScaled: z}}`, []string{
			template + "persistentVolumeClaimRetentionPolicy.whenDeleted: must be Retain or Delete",
			template + "persistentVolumeClaimRetentionPolicy.whenScaled: must be Retain or Delete",
		}},
	}
	tests = append(tests, hashRules...)
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

		{"identity to hash", `{}`, `{groupIdentity: Hash}`, []string{"spec.groupIdentity: groupIdentity is immutable"}},
		{"identity spelt out", `{}`, `{groupIdentity: Ordinal}`, nil},
		{"identity removed", `{groupIdentity: Hash}`, `{}`, []string{"spec.groupIdentity: groupIdentity is immutable"}},
		{"replacement policy", `{groupIdentity: Hash}`, `{groupIdentity: Hash, groupReplacementPolicy: Immediate}`, nil},

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

func TestTemplatesHaveMetadata(t *testing.T) {
	for _, template := range []string{"leaderTemplate", "workerTemplate"} {
		metadata := property(t, "spec.leaderWorkerTemplate."+template+".metadata")
		want := []string{"annotations", "finalizers", "labels", "name", "namespace"}
		expect.Equalf(t, want, slices.Sorted(maps.Keys(metadata.Properties)), "metadata of %s", template)
	}
}
