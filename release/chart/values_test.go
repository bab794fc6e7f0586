package chart

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func defaults(t *testing.T) []Value {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := Generate(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(chartDir, name))
		if err != nil || !bytes.Equal(want, got) {
			t.Errorf("%s is not current: run make generate (%v)", name, err)
		}
	}
}

// Every manifest of the chart is the one of config.
func TestManifestsAreCopies(t *testing.T) {
	for _, dir := range []string{"crd", "deployment", "policy", "protection", "rbac", "webhook"} {
		sources, err := filepath.Glob("../../config/" + dir + "/*.yaml")
		if err != nil || len(sources) == 0 {
			t.Fatal(dir, err)
		}
		copies, _ := filepath.Glob(filepath.Join(chartDir, "files/manifests", dir, "*"))
		if len(copies) != len(sources) {
			t.Errorf("%s: %d files in the chart, %d in config: run make generate", dir, len(copies), len(sources))
		}
		for _, source := range sources {
			want, _ := os.ReadFile(source)
			got, err := os.ReadFile(filepath.Join(chartDir, "files/manifests", dir, filepath.Base(source)))
			if err != nil || !bytes.Equal(want, got) {
				t.Errorf("%s is not current: run make generate (%v)", source, err)
			}
		}
	}
}

// A value that no template reads would be accepted and do nothing.
func TestEveryValueIsRead(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(chartDir, "templates", "*"))
	if err != nil {
		t.Fatal(err)
	}
	templates := ""
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		templates += string(text)
	}
	for _, v := range Leaves(defaults(t)) {
		block, name, isNested := strings.Cut(v.Path, ".")
		isPassedOn := block == "protection" || strings.HasPrefix(v.Path, "metrics.tokenSecret.")
		if !isNested {
			name = block
		}
		if !isPassedOn && !strings.Contains(templates, name) {
			t.Errorf("no template reads %s", v.Path)
		}
	}
}

// Every object in the schema is closed, but the one that Helm itself fills.
func TestTheSchemaIsClosed(t *testing.T) {
	text, err := Schema(defaults(t))
	if err != nil {
		t.Fatal(err)
	}
	root := map[string]any{}
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
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
		if _, err := render(t, namespace, values(t, text)); err == nil {
			t.Errorf("accepted: %s", text)
		}
	}
	for _, text := range []string{
		`{image: {}}`, `{certificates: {source: Secret}}`, `{metrics: {monitor: PodMonitor}}`, `{protectOnly: true, protection: {enabled: false}}`,
	} {
		if _, err := render(t, namespace, values(t, text)); err == nil {
			t.Errorf("accepted values that do not fit together: %s", text)
		}
	}
}
