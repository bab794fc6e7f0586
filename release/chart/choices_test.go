package chart

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const operatorName = "Deployment lws-system/lws-controller-manager"

// Each row is a choice that "lockstep install" does not have, and what it makes of an object.
func TestChoices(t *testing.T) {
	for name, tt := range map[string]struct{ values, object, want string }{
		"digest": {`{image: {repository: a/b, tag: v2, digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000", pullPolicy: Always}}`, operatorName,
			`{spec: {template: {spec: {containers: [{name: manager, imagePullPolicy: Always,
			image: "a/b@sha256:0000000000000000000000000000000000000000000000000000000000000000"}]}}}}`},
		"tag of the chart": {`{image: {repository: a/b}}`, operatorName, `{spec: {template: {spec: {containers: [{image: "a/b:v0.1.0-dev"}]}}}}`},
		"scheduling": {`{replicas: 3, nodeSelector: {a: b}, tolerations: [{key: x, operator: Exists}], priorityClassName: high, imagePullSecrets: [{name: s}],
			affinity: {podAntiAffinity: {}}, topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}`, operatorName,
			`{spec: {replicas: 3, template: {spec: {nodeSelector: {a: b}, tolerations: [{key: x, operator: Exists}], priorityClassName: high,
			imagePullSecrets: [{name: s}], affinity: {podAntiAffinity: {}}, topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}}}}`},
		"resources":     {`{resources: {limits: {memory: 2Gi}}}`, operatorName, `{spec: {template: {spec: {containers: [{resources: {limits: {memory: 2Gi}, requests: {cpu: "1", memory: 1Gi}}}]}}}}`},
		"log":           {`{log: {format: console, level: 4}}`, operatorName, `{spec: {template: {spec: {containers: [{args: [run, --zap-log-level=4, --zap-encoder=console, --config=/etc/lockstep/config.yaml]}]}}}}`},
		"labels":        {`{extraLabels: {team: a, app.kubernetes.io/name: other}}`, operatorName, `{metadata: {labels: {team: a, app.kubernetes.io/name: lws}}, spec: {template: {metadata: {labels: {team: a}}}}}`},
		"labels of all": {`{extraLabels: {team: a}}`, "CustomResourceDefinition /leaderworkersets.leaderworkerset.x-k8s.io", `{metadata: {labels: {team: a}}}`},
		"a budget": {`{podDisruptionBudget: {enabled: true, maxUnavailable: "50%"}}`, "PodDisruptionBudget lws-system/lws-controller-manager",
			`{spec: {maxUnavailable: 50%, selector: {matchLabels: {control-plane: controller-manager, app.kubernetes.io/instance: lws}}}}`},
		"a network policy": {`{}`, "NetworkPolicy lws-system/lws-controller-manager",
			`{spec: {policyTypes: [Ingress], ingress: [{ports: [{port: 8081}]}, {ports: [{port: 8443}]}, {ports: [{port: 9443}]}]}}`},
		"a network policy with peers": {`{networkPolicy: {metricsFrom: [{namespaceSelector: {matchLabels: {a: b}}}], webhooksFrom: [{ipBlock: {cidr: 10.0.0.0/8}}],
			probesFrom: [{ipBlock: {cidr: 10.1.0.0/16}}]}}`, "NetworkPolicy lws-system/lws-controller-manager",
			`{spec: {ingress: [{ports: [{port: 8081}], from: [{ipBlock: {cidr: 10.1.0.0/16}}]}, {ports: [{port: 8443}], from: [{namespaceSelector: {matchLabels: {a: b}}}]},
			{ports: [{port: 9443}], from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}}`},
		"a service monitor": {`{metrics: {monitor: ServiceMonitor, labels: {release: p}}}`, "ServiceMonitor lws-system/lws-controller-manager",
			`{metadata: {labels: {release: p}}, spec: {endpoints: [{port: https, scheme: https, interval: 30s}]}}`},
		"a pod monitor": {`{metrics: {monitor: PodMonitor, tokenSecret: {name: token}}}`, "PodMonitor lws-system/lws-controller-manager",
			`{spec: {podMetricsEndpoints: [{port: metrics, authorization: {credentials: {name: token, key: token}}}]}}`},
		"a reader": {`{metrics: {reader: {serviceAccount: prometheus}}}`, "ClusterRoleBinding /lws-metrics-reader",
			`{roleRef: {name: lws-metrics-reader}, subjects: [{name: prometheus, namespace: monitoring}]}`},
		"cert-manager": {`{certificates: {source: CertManager}}`, "Certificate lws-system/lws-serving-cert",
			`{spec: {secretName: lws-webhook-server-cert, dnsNames: [lws-webhook-service.lws-system.svc, lws-webhook-service.lws-system.svc.cluster.local], issuerRef: {name: lws-selfsigned-issuer}}}`},
		"cert-manager's bundle": {`{certificates: {source: CertManager}}`, "MutatingWebhookConfiguration /lws-mutating-webhook-configuration",
			`{metadata: {annotations: {cert-manager.io/inject-ca-from: lws-system/lws-serving-cert}}}`},
		"own certificates": {`{certificates: {source: Secret, secretName: mine, caBundle: PEM}}`, operatorName,
			`{spec: {template: {spec: {volumes: [{configMap: {name: lockstep-configuration}}, {name: certificate, secret: {secretName: mine}}],
			containers: [{volumeMounts: [{name: lockstep-configuration}, {mountPath: /tmp/k8s-webhook-server/serving-certs}]}]}}}}`},
		"own bundle": {`{certificates: {source: Secret, secretName: mine, caBundle: PEM}}`, "ValidatingWebhookConfiguration /lws-validating-webhook-configuration",
			`{webhooks: [{clientConfig: {caBundle: UEVN}}]}`},
		"names": {`{names: {prefix: old-lws, instance: old}}`, "Deployment lws-system/old-lws-controller-manager",
			`{spec: {selector: {matchLabels: {app.kubernetes.io/instance: old}}, template: {metadata: {labels: {app.kubernetes.io/instance: old}}, spec: {serviceAccountName: old-lws-controller-manager}}}}`},
		"fixed names": {`{names: {prefix: old-lws, instance: old}}`, "Service lws-system/lws-webhook-service", `{spec: {selector: {app.kubernetes.io/instance: old}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := mustRender(t, tt.values)[tt.object]
			if got == nil {
				t.Fatalf("%s is not rendered", tt.object)
			}
			want := map[string]any{}
			must(t, yaml.Unmarshal([]byte(tt.want), &want))
			if diff := cmp.Diff(want, part(got.Object, want)); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tt.object, diff)
			}
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
	objects, err := render(t, "elsewhere", values(t, `{protection: {exemptNamespaces: []}, metrics: {monitor: ServiceMonitor}, podDisruptionBudget: {enabled: true}}`))
	must(t, err)
	for name, u := range objects {
		text, err := u.MarshalJSON()
		must(t, err)
		if strings.Contains(string(text), "lws-system") {
			t.Errorf("%s refers to lws-system", name)
		}
	}
	policy := objects["MutatingAdmissionPolicyBinding /barrier.protection.lockstep.dev"]
	selector, _, _ := unstructured.NestedFieldNoCopy(policy.Object, "spec", "matchResources", "namespaceSelector", "matchExpressions")
	if text, _ := json.Marshal(selector); !strings.Contains(string(text), `"elsewhere"`) {
		t.Errorf("the operator's namespace is not exempt: %s", text)
	}
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
		if _, err := render(t, "lws-system", values(t, "{metrics: {alerts: true, "+misspelt+"}}")); err == nil || !strings.Contains(err.Error(), "LockstepSetDwon") {
			t.Errorf("%s: %v", misspelt, err)
		}
	}
}

// On request, the chart has every alert and every dashboard as they were tested.
func TestMonitoring(t *testing.T) {
	objects := mustRender(t, `{metrics: {alerts: true, dashboards: true, labels: {release: p}}}`)
	rules := map[string]any{}
	must(t, yaml.Unmarshal(readFile(t, filepath.Join(chartDir, "files/alerts.yaml")), &rules))
	rule := objects["PrometheusRule lws-system/lws-controller-manager"]
	if rule == nil {
		t.Fatal("no PrometheusRule is rendered")
	}
	if diff := cmp.Diff(rules, rule.Object["spec"]); diff != "" || rule.GetLabels()["release"] != "p" {
		t.Errorf("labels %v, rules (-file +chart)\n%s", rule.GetLabels(), diff)
	}
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
		if got, _, _ := unstructured.NestedString(u.Object, "data", name); got != string(readFile(t, file)) {
			t.Errorf("%s differs in the chart", name)
		}
	}
}
