package chart

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/test/expect"
)

const operatorName = "Deployment lws-system/lws-controller-manager"

// The choices are those that "lockstep install" does not have, and what each makes of an object.
func TestChoices(t *testing.T) {
	var choices map[string]struct {
		Values json.RawMessage
		Object string
		Want   map[string]any
	}
	expect.OK(t, yaml.UnmarshalStrict(readFile(t, "testdata/choices.yaml"), &choices))
	for name, tt := range choices {
		t.Run(name, func(t *testing.T) {
			got := mustRender(t, string(tt.Values))[tt.Object]
			expect.Must(t, got != nil, "%s is not rendered", tt.Object)
			expect.Equalf[any](t, tt.Want, part(got.Object, tt.Want), "%s", tt.Object)
		})
	}
}

// part returns what a value has at the fields of a pattern.
func part(of, pattern any) any {
	switch pattern := pattern.(type) {
	case map[string]any:
		from, isMap := of.(map[string]any)
		if !isMap {
			return of
		}
		found := map[string]any{}
		for name, inner := range pattern {
			if value, has := from[name]; has {
				found[name] = part(value, inner)
			}
		}
		return found
	case []any:
		from, isList := of.([]any)
		if !isList || len(from) != len(pattern) {
			return of
		}
		found := []any{}
		for i := range from {
			found = append(found, part(from[i], pattern[i]))
		}
		return found
	}
	return of
}

// In another namespace than the default one no object refers to that one.
func TestAnotherNamespace(t *testing.T) {
	objects := expect.Value(render(t, "elsewhere", values(t,
		`{protection: {exemptNamespaces: []}, metrics: {monitor: ServiceMonitor}, podDisruptionBudget: {enabled: true}}`)))(t)
	for name, u := range objects {
		text := expect.Value(u.MarshalJSON())(t)
		expect.That(t, !strings.Contains(string(text), "lws-system"), "%s refers to lws-system", name)
	}
	policy := objects["MutatingAdmissionPolicyBinding /barrier.protection.lockstep.dev"]
	selector, _, _ := unstructured.NestedFieldNoCopy(policy.Object, "spec", "matchResources", "namespaceSelector", "matchExpressions")
	text, _ := json.Marshal(selector)
	expect.That(t, strings.Contains(string(text), `"elsewhere"`), "the operator's namespace is not exempt: %s", text)
}

// TestAlertsIgnoreTheirSettings: each alert has its own severity and duration, and a name without an alert is an error.
func TestAlertsIgnoreTheirSettings(t *testing.T) {
	const object = "PrometheusRule lws-system/lws-controller-manager"
	each := func(values string, visit func(rule map[string]any)) {
		spec := mustRender(t, values)[object].Object["spec"]
		for _, group := range spec.(map[string]any)["groups"].([]any) {
			for _, rule := range group.(map[string]any)["rules"].([]any) {
				visit(rule.(map[string]any))
			}
		}
	}
	each(`{metrics: {alerts: true, severities: null, durations: null}}`, func(want map[string]any) {
		name := want["alert"].(string)
		each(fmt.Sprintf(`{metrics: {alerts: true, severities: {%s: page}, durations: {%s: 7h}}}`, name, name), func(rule map[string]any) {
			labels := rule["labels"].(map[string]any)
			if isSet := rule["alert"] == name; isSet != (labels["severity"] == "page") || isSet != (rule["for"] == "7h") {
				t.Errorf("%s is set: %v has severity %v and lasts %v", name, rule["alert"], labels["severity"], rule["for"])
			}
		})
	})
	for _, misspelt := range []string{`severities: {LockstepSetDwon: page}`, `durations: {LockstepSetDwon: 1h}`} {
		_, err := render(t, "lws-system", values(t, "{metrics: {alerts: true, "+misspelt+"}}"))
		expect.That(t, err != nil && strings.Contains(err.Error(), "LockstepSetDwon"), "%s: %v", misspelt, err)
	}
}

// On request, the chart has every alert and every dashboard as they were tested.
func TestMonitoring(t *testing.T) {
	objects := mustRender(t, `{metrics: {alerts: true, dashboards: true, labels: {release: p}}}`)
	rules := map[string]any{}
	expect.OK(t, yaml.Unmarshal(readFile(t, filepath.Join(chartDir, "files/alerts.yaml")), &rules))
	rule := objects["PrometheusRule lws-system/lws-controller-manager"]
	expect.Must(t, rule != nil, "no PrometheusRule is rendered")
	expect.Equalf[any](t, rules, rule.Object["spec"], "rules")
	expect.Equalf(t, "p", rule.GetLabels()["release"], "labels %v", rule.GetLabels())
	files, err := filepath.Glob(filepath.Join(chartDir, "files/dashboards/*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal("no dashboards", err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		u := objects["ConfigMap lws-system/lws-controller-manager-"+strings.TrimSuffix(name, ".json")]
		if u == nil {
			t.Errorf("no ConfigMap has %s", name)
			continue
		}
		got, _, _ := unstructured.NestedString(u.Object, "data", name)
		expect.Equalf(t, string(readFile(t, file)), got, "%s differs in the chart", name)
	}
}
