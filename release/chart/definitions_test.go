package chart

import (
	"errors"
	"os"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"
)

// cluster is what templates look up.
type cluster struct{ client dynamic.Interface }

var resources = map[string]string{
	"CustomResourceDefinition": "customresourcedefinitions",
	"LeaderWorkerSet":          "leaderworkersets",
	"Namespace":                "namespaces",
	"Secret":                   "secrets",

	"MutatingWebhookConfiguration":   "mutatingwebhookconfigurations",
	"ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}

func (c cluster) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if resources[kind] == "" {
		err = errors.New("unexpected kind " + kind)
	}
	return c.client.Resource(version.WithResource(resources[kind])), kind == "LeaderWorkerSet" || kind == "Secret", err
}

const definitionFile = "../../config/crd/leaderworkerset.x-k8s.io_leaderworkersets.yaml"

// definition is a copy of ours, in the cluster.
func definition(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(definitionFile)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, definitionFile, string(text))
}

// add adds a property to a definition, below a path of properties.
func add(t *testing.T, u *unstructured.Unstructured, path, name string) {
	t.Helper()
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	at := []string{"schema", "openAPIV3Schema"}
	for field := range strings.SplitSeq(path, ".") {
		at = append(at, "properties", field)
	}
	at = append(at, "properties", name)
	if err := unstructured.SetNestedMap(versions[0].(map[string]any), map[string]any{"type": "string"}, at...); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedSlice(u.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
}

func hasProperty(u *unstructured.Unstructured, path, name string) bool {
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	at := []string{"schema", "openAPIV3Schema"}
	for field := range strings.SplitSeq(path, ".") {
		at = append(at, "properties", field)
	}
	_, found, _ := unstructured.NestedMap(versions[0].(map[string]any), append(at, "properties", name)...)
	return found
}

// renderOver renders an upgrade of a release in a cluster with some objects.
func renderOver(t *testing.T, set string, objects ...*unstructured.Unstructured) (string, error) {
	t.Helper()
	chart := load(t)
	options := common.ReleaseOptions{Name: "lockstep", Namespace: namespace, Revision: 2, IsUpgrade: true}
	all, err := util.ToRenderValues(chart, values(t, set), options, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	var stored []runtime.Object
	for _, u := range objects {
		stored = append(stored, u)
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}: "CustomResourceDefinitionList",
		{Group: "leaderworkerset.x-k8s.io", Version: "v1", Resource: "leaderworkersets"}:      "LeaderWorkerSetList",
	}, stored...)
	files, err := engine.RenderWithClientProvider(chart, all, cluster{client})
	return files["lockstep/templates/manifests.yaml"], err
}

func leaderWorkerSet(t *testing.T, spec string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	text := `{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: a, namespace: b}, spec: ` + spec + `}`
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

const templatePath = "spec.leaderWorkerTemplate.workerTemplate.spec"

// A definition in the cluster with more fields is not replaced.
func TestANewerDefinitionIsNotReplaced(t *testing.T) {
	newer := definition(t)
	add(t, newer, "spec", "placement")
	add(t, newer, "status", "spares")
	newerPods := definition(t)
	add(t, newerPods, templatePath, "novelty")
	uses := leaderWorkerSet(t, `{leaderWorkerTemplate: {workerTemplate: {spec: {novelty: x, containers: [{name: c, image: i}]}}}}`)
	usesNot := leaderWorkerSet(t, `{replicas: 1, leaderWorkerTemplate: {workerTemplate: {metadata: {labels: {any: thing}}, spec: {containers: [{name: c, image: i,
		resources: {limits: {cpu: 1}}}], nodeSelector: {a: b}}}}}`)
	for name, tt := range map[string]struct {
		cluster []*unstructured.Unstructured
		lost    []string
	}{
		"none":                    {nil, nil},
		"the same":                {[]*unstructured.Unstructured{definition(t)}, nil},
		"the same, with a set":    {[]*unstructured.Unstructured{definition(t), usesNot}, nil},
		"newer":                   {[]*unstructured.Unstructured{newer}, []string{"spec.placement", "status.spares"}},
		"newer templates, unused": {[]*unstructured.Unstructured{newerPods, usesNot}, nil},
		"newer templates, used":   {[]*unstructured.Unstructured{newerPods, uses}, []string{templatePath + ".novelty"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := renderOver(t, ``, tt.cluster...)
			if (err != nil) != (tt.lost != nil) {
				t.Fatal(err)
			}
			for _, path := range tt.lost {
				if !strings.Contains(err.Error(), "\n  "+path+"\n") {
					t.Errorf("%s is not named: %v", path, err)
				}
			}
		})
	}
}

// On request, the fields of the definition in the cluster stay in the one of the chart.
func TestFieldsAreKept(t *testing.T) {
	newer := definition(t)
	add(t, newer, "spec", "placement")
	add(t, newer, templatePath, "novelty")
	text, err := renderOver(t, `{crds: {keepFields: true}}`, newer)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(text, "\n---\n") {
		if u := decode(t, "manifests.yaml", document); u != nil && u.GetKind() == "CustomResourceDefinition" {
			if !hasProperty(u, "spec", "placement") || !hasProperty(u, templatePath, "novelty") || !hasProperty(u, "spec", "replicas") {
				t.Error("a field is lost")
			}
			return
		}
	}
	t.Error("no definition is rendered")
}

// Helm deletes what the previous chart of a release had and this one has not: with a definition
// all its objects.
func TestNoDefinitionIsDeleted(t *testing.T) {
	const name = "disaggregatedsets.disaggregatedset.x-k8s.io"
	for annotations, refuses := range map[string]bool{
		`{}`:                                    false,
		`{meta.helm.sh/release-name: lockstep}`: true,
		`{meta.helm.sh/release-name: other}`:    false,
		`{meta.helm.sh/release-name: lockstep, helm.sh/resource-policy: keep}`: false,
	} {
		u := &unstructured.Unstructured{}
		text := `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ` + name + `, annotations: ` + annotations + `}}`
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		_, err := renderOver(t, ``, u)
		if (err != nil) != refuses {
			t.Errorf("annotations %s: %v", annotations, err)
		}
		if refuses && !strings.Contains(err.Error(), name) {
			t.Errorf("the definition is not named: %v", err)
		}
	}
}
