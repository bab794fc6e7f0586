package chart

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/test/expect"
)

// TestGeneratedFilesAreCurrent writes them.
var update = flag.Bool("update", false, "write values.schema.json and the table of README.md")

func TestGeneratedFilesAreCurrent(t *testing.T) {
	all, readme := defaults(t), filepath.Join(chartDir, "README.md")
	for path, want := range map[string][]byte{
		readme: withTable(t, readFile(t, readme), all), filepath.Join(chartDir, "values.schema.json"): schemaOf(t, all),
	} {
		if !*update {
			expect.That(t, bytes.Equal(want, readFile(t, path)), "%s is not current: run make generate", path)
			continue
		}
		expect.OK(t, os.WriteFile(path, want, 0o600))
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	return expect.Value(os.ReadFile(path))(t)
}

// value is one entry of values.yaml.
type value struct {
	// name is the last part of path.
	name, path string
	// text is the comment above it.
	text string
	// marks are the lines of the comment that begin with "+", such as "+enum=a,b".
	marks map[string]string
	// node is its default.
	node *yaml.Node
	// fields are the values below it. A value with a type of its own has none.
	fields []value
}

// defaults returns the values of values.yaml. Each has a comment.
func defaults(t *testing.T) []value {
	t.Helper()
	var document yaml.Node
	expect.OK(t, yaml.Unmarshal(readFile(t, filepath.Join(chartDir, "values.yaml")), &document))
	return fields(t, document.Content[0], "")
}

func fields(t *testing.T, of *yaml.Node, path string) (all []value) {
	t.Helper()
	for i := 0; i < len(of.Content); i += 2 {
		key, node := of.Content[i], of.Content[i+1]
		v := value{name: key.Value, path: strings.TrimPrefix(path+"."+key.Value, "."), node: node, marks: map[string]string{}}
		v.comment(key.HeadComment)
		expect.Must(t, v.text != "", "values.yaml:%d: %s has no comment", key.Line, v.path)
		if node.Kind == yaml.MappingNode && v.marks["type"] == "" {
			v.fields = fields(t, node, v.path)
		}
		all = append(all, v)
	}
	return all
}

func (v *value) comment(text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "#"))
		if mark, found := strings.CutPrefix(line, "+"); found {
			name, value, _ := strings.Cut(mark, "=")
			v.marks[name] = value
			continue
		}
		v.text = strings.TrimSpace(v.text + " " + line)
	}
}

// leaves returns the values that have no fields.
func leaves(all []value) (found []value) {
	for _, v := range all {
		if len(v.fields) == 0 {
			found = append(found, v)
		}
		found = append(found, leaves(v.fields)...)
	}
	return found
}

// Every manifest of the chart is the one of config.
func TestManifestsAreCopies(t *testing.T) {
	for _, dir := range []string{"crd", "deployment", "policy", "protection", "rbac", "webhook"} {
		sources, err := filepath.Glob("../../config/" + dir + "/*.yaml")
		if err != nil || len(sources) == 0 {
			t.Fatal(dir, err)
		}
		copies, _ := filepath.Glob(filepath.Join(chartDir, "files/manifests", dir, "*"))
		expect.Equalf(t, len(sources), len(copies), "%s: files in config and in the chart: run make generate", dir)
		for _, source := range sources {
			want, _ := os.ReadFile(source)
			got, err := os.ReadFile(filepath.Join(chartDir, "files/manifests", dir, filepath.Base(source)))
			expect.That(t, err == nil && bytes.Equal(want, got), "%s is not current: run make generate (%v)", source, err)
		}
	}
}

// A value that no template reads would be accepted and do nothing.
func TestEveryValueIsRead(t *testing.T) {
	files := expect.Value(filepath.Glob(filepath.Join(chartDir, "templates", "*")))(t)
	templates := ""
	for _, file := range files {
		templates += string(readFile(t, file))
	}
	for _, v := range leaves(defaults(t)) {
		block, name, isNested := strings.Cut(v.path, ".")
		isPassedOn := block == "protection" || strings.HasPrefix(v.path, "metrics.tokenSecret.")
		if !isNested {
			name = block
		}
		expect.That(t, isPassedOn || strings.Contains(templates, name), "no template reads %s", v.path)
	}
}

// Every object in the schema is closed, but the one that Helm itself fills.
func TestTheSchemaIsClosed(t *testing.T) {
	root := map[string]any{}
	expect.OK(t, json.Unmarshal(schemaOf(t, defaults(t)), &root))
	delete(root["properties"].(map[string]any), "global")
	var walk func(at string, in any)
	walk = func(at string, in any) {
		schema, isMap := in.(map[string]any)
		if !isMap {
			return
		}
		if schema["type"] == "object" && (schema["additionalProperties"] == nil || schema["additionalProperties"] == true) {
			t.Errorf("%s is open", at)
		}
		for name, inner := range schema {
			walk(at+"/"+name, inner)
		}
	}
	walk("", root)
}

func TestUnknownAndWrongValuesAreErrors(t *testing.T) {
	for _, text := range []string{
		`{replica: 3}`, `{replicas: "3"}`, `{replicas: -1}`, `{image: {repo: x}}`, `{image: {repository: x, digest: "sha256:1"}}`,
		`{protection: {mode: barrier}}`, `{protection: {kinds: [{apiVersion: v1, kind: X, podTemplate: [spec]}]}}`,
		`{affinity: {nodeAffinities: {}}}`, `{tolerations: [{keys: a}]}`, `{resources: {request: {}}}`, `{metrics: {labels: {a: 1}}}`,
		`{nodeSelector: {a: true}}`, `{webhook: {url: "http://a"}}`, `{featureGates: {A: "yes"}}`, `{crashLogLines: -1}`,
	} {
		_, err := render(t, namespace, values(t, text))
		expect.That(t, err != nil, "accepted: %s", text)
	}
	for _, text := range []string{
		`{image: {}}`, `{certificates: {source: Secret}}`, `{metrics: {monitor: PodMonitor}}`, `{protectOnly: true, protection: {enabled: false}}`,
	} {
		_, err := render(t, namespace, values(t, text))
		expect.That(t, err != nil, "accepted values that do not fit together: %s", text)
	}
}

// The table of values stands between these lines of README.md.
const begin, end = "<!-- values -->\n", "<!-- end of values -->\n"

var table = regexp.MustCompile("(?s)" + begin + ".*" + end)

// withTable returns a README with the table of values.
func withTable(t *testing.T, readme []byte, all []value) []byte {
	t.Helper()
	expect.Must(t, table.Match(readme), "README.md: want the lines %q and %q", begin, end)
	rows := []byte(begin + "| value | default | what it is |\n| --- | --- | --- |\n")
	for _, v := range leaves(all) {
		var byDefault any
		expect.OK(t, v.node.Decode(&byDefault))
		text := expect.Value(json.Marshal(byDefault))(t)
		rows = fmt.Appendf(rows, "| `%s` | `%s` | %s |\n", v.path, text, strings.ReplaceAll(v.described(), "|", `\|`))
	}
	return table.ReplaceAllLiteral(readme, append(rows, end...))
}

// described is the text of a value with the choices that it has.
func (v value) described() string {
	choices, found := v.marks["enum"]
	if !found {
		return v.text
	}
	choices = "`" + strings.ReplaceAll(choices, ",", "`, `") + "`"
	return v.text + " One of " + strings.ReplaceAll(choices, "``", "empty") + "."
}

// types are those that a value may have: by its tag in YAML, or by the line "+type=", which may put "[]" before them.
var types = map[string]reflect.Type{
	"!!str":                            reflect.TypeFor[string](),
	"!!int":                            reflect.TypeFor[int](),
	"!!bool":                           reflect.TypeFor[bool](),
	"string":                           reflect.TypeFor[string](),
	"intstr":                           reflect.TypeFor[intstr.IntOrString](),
	"map":                              reflect.TypeFor[map[string]string](),
	"map[bool]":                        reflect.TypeFor[map[string]bool](),
	"core/v1.Affinity":                 reflect.TypeFor[corev1.Affinity](),
	"core/v1.LocalObjectReference":     reflect.TypeFor[corev1.LocalObjectReference](),
	"core/v1.ResourceRequirements":     reflect.TypeFor[corev1.ResourceRequirements](),
	"core/v1.Toleration":               reflect.TypeFor[corev1.Toleration](),
	"core/v1.TopologySpreadConstraint": reflect.TypeFor[corev1.TopologySpreadConstraint](),
	"networking/v1.NetworkPolicyPeer":  reflect.TypeFor[networkingv1.NetworkPolicyPeer](),
	"config/v1alpha1.WorkloadKind":     reflect.TypeFor[v1alpha1.WorkloadKind](),
}

// reflector makes schemas of Go types as encoding/json reads them. Templates and the API server know what is required.
var reflector = jsonschema.Reflector{Anonymous: true, DoNotReference: true, RequiredFromJSONSchemaTags: true, Mapper: ofJSON}

// ofJSON returns the schema of types that encoding/json reads in a way of their own.
func ofJSON(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[intstr.IntOrString]():
		return &jsonschema.Schema{Extras: map[string]any{"type": []string{"integer", "string"}}}
	case reflect.TypeFor[resource.Quantity]():
		return &jsonschema.Schema{Extras: map[string]any{"type": []string{"number", "string"}}}
	}
	return nil
}

// schemaOf returns values.schema.json: every object in it is closed, so a value that the chart does
// not know is an error.
func schemaOf(t *testing.T, all []value) []byte {
	t.Helper()
	root := closed(t, all)
	root.Version = "http://json-schema.org/draft-07/schema#"
	// Helm adds it where the chart is a part of another chart.
	root.Properties.Set("global", &jsonschema.Schema{Type: "object"})
	text := expect.Value(json.MarshalIndent(root, "", "  "))(t)
	return append(text, '\n')
}

func closed(t *testing.T, all []value) *jsonschema.Schema {
	t.Helper()
	object := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema}
	for _, v := range all {
		object.Properties.Set(v.name, v.schema(t))
	}
	return object
}

func (v value) schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	if len(v.fields) > 0 {
		object := closed(t, v.fields)
		object.Description = v.text
		return object
	}
	item, isList := strings.CutPrefix(cmp.Or(v.marks["type"], v.node.Tag), "[]")
	of, found := types[item]
	expect.Must(t, found, "values.yaml: %s: no type %q: write a line +type=…", v.path, item)
	if isList {
		of = reflect.SliceOf(of)
	}
	schema := reflector.ReflectFromType(of)
	schema.Version, schema.Description, schema.Pattern = "", v.text, v.marks["pattern"]
	schema.Minimum, schema.Maximum = json.Number(v.marks["minimum"]), json.Number(v.marks["maximum"])
	if choices, found := v.marks["enum"]; found {
		for choice := range strings.SplitSeq(choices, ",") {
			schema.Enum = append(schema.Enum, choice)
		}
	}
	return schema
}
