package chart

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"lockstep.dev/lockstep/test/expect"
)

// cluster is what templates look up.
type cluster struct{ client dynamic.Interface }

func (c cluster) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	resource, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(apiVersion, kind))
	return c.client.Resource(resource), strings.Contains(kind, "Set") || kind == "Secret", nil
}

// clusterWith has a namespace and more objects.
func clusterWith(objects ...runtime.Object) cluster {
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	return cluster{fake.NewSimpleDynamicClientWithCustomListKinds(clientgoscheme.Scheme, map[schema.GroupVersionResource]string{
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}:        "CustomResourceDefinitionList",
		{Group: "leaderworkerset.x-k8s.io", Version: "v1", Resource: "leaderworkersets"}:             "LeaderWorkerSetList",
		{Group: "disaggregatedset.x-k8s.io", Version: "v1", Resource: "disaggregatedsets"}:           "DisaggregatedSetList",
		{Group: "disaggregatedset.x-k8s.io", Version: "v1", Resource: "disaggregatedsetrolescalers"}: "DisaggregatedSetRoleScalerList",
	}, objects...)}
}

// definition is a copy of ours, in the cluster.
func definition(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	return definitionOf(t, "leaderworkerset.x-k8s.io_leaderworkersets")
}

func definitionOf(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	file := "../../config/crd/" + name + ".yaml"
	return decode(t, file, string(readFile(t, file)))
}

// propertyAt is where a version of a definition has a property. A list has "[]" after its name.
func propertyAt(path string) []string {
	at := []string{"schema", "openAPIV3Schema"}
	for field := range strings.SplitSeq(path, ".") {
		name, isList := strings.CutSuffix(field, "[]")
		if at = append(at, "properties", name); isList {
			at = append(at, "items")
		}
	}
	return at
}

// add adds properties to a definition.
func add(t *testing.T, u *unstructured.Unstructured, paths ...string) *unstructured.Unstructured {
	t.Helper()
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	for _, path := range paths {
		expect.OK(t, unstructured.SetNestedMap(versions[0].(map[string]any), map[string]any{"type": "string"}, propertyAt(path)...))
	}
	expect.OK(t, unstructured.SetNestedSlice(u.Object, versions, "spec", "versions"))
	return u
}

func hasProperty(u *unstructured.Unstructured, path string) bool {
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	_, found, _ := unstructured.NestedMap(versions[0].(map[string]any), propertyAt(path)...)
	return found
}

func leaderWorkerSet(t *testing.T, spec string) *unstructured.Unstructured {
	t.Helper()
	return decode(t, "a set", `{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: a, namespace: b}, spec: `+spec+`}`)
}

const templatePath = "spec.leaderWorkerTemplate.workerTemplate.spec"

// A definition in the cluster with more fields is not replaced.
func TestANewerDefinitionIsNotReplaced(t *testing.T) {
	newer := add(t, definition(t), "spec.placement", "status.spares")
	newerPods := add(t, definition(t), templatePath+".novelty")
	uses := leaderWorkerSet(t, `{leaderWorkerTemplate: {workerTemplate: {spec: {novelty: x, containers: [{name: c, image: i}]}}}}`)
	usesNot := leaderWorkerSet(t, `{replicas: 1, leaderWorkerTemplate: {workerTemplate: {metadata: {labels: {any: thing}}, spec: {containers: [{name: c, image: i,
		resources: {limits: {cpu: 1}}}], nodeSelector: {a: b}}}}}`)
	for name, tt := range map[string]struct {
		cluster []runtime.Object
		lost    []string
	}{
		"none":                    {nil, nil},
		"the same":                {[]runtime.Object{definition(t)}, nil},
		"the same, with a set":    {[]runtime.Object{definition(t), usesNot}, nil},
		"newer":                   {[]runtime.Object{newer}, []string{"spec.placement", "status.spares"}},
		"newer templates, unused": {[]runtime.Object{newerPods, usesNot}, nil},
		"newer templates, used":   {[]runtime.Object{newerPods, uses}, []string{templatePath + ".novelty"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := renderAs(t, clusterWith(tt.cluster...), upgrade, values(t, ``))
			expect.Must(t, (err != nil) == (tt.lost != nil), "%v", err)
			for _, path := range tt.lost {
				expect.Says(t, err.Error(), "\n  "+path+"\n", path)
			}
		})
	}
}

// The same holds for roles, whose templates are those of sets.
func TestANewerDefinitionOfRolesIsNotReplaced(t *testing.T) {
	const file, pods = "disaggregatedset.x-k8s.io_disaggregatedsets", "spec.roles[].spec.leaderWorkerTemplate.workerTemplate.spec"
	uses := decode(t, "a set", `{apiVersion: disaggregatedset.x-k8s.io/v1, kind: DisaggregatedSet, metadata: {name: a, namespace: b},
		spec: {roles: [{name: r, spec: {leaderWorkerTemplate: {workerTemplate: {spec: {novelty: x, containers: [{name: c, image: i}]}}}}}]}}`)
	for name, tt := range map[string]struct {
		cluster []runtime.Object
		lost    string
	}{
		"the same":                {[]runtime.Object{definitionOf(t, file)}, ""},
		"newer":                   {[]runtime.Object{add(t, definitionOf(t, file), "spec.roles[].subRoles")}, "spec.roles[].subRoles"},
		"newer templates, unused": {[]runtime.Object{add(t, definitionOf(t, file), pods+".novelty")}, ""},
		"newer templates, used":   {[]runtime.Object{add(t, definitionOf(t, file), pods+".novelty"), uses}, pods + ".novelty"},
	} {
		_, err := renderAs(t, clusterWith(tt.cluster...), upgrade, values(t, ``))
		expect.Must(t, (err != nil) == (tt.lost != ""), "%s: %v", name, err)
		if err != nil {
			expect.Says(t, err.Error(), "\n  "+tt.lost+"\n", name)
		}
	}
}

// On request, the fields of the definition in the cluster stay in the one of the chart.
func TestFieldsAreKept(t *testing.T) {
	newer := add(t, definition(t), "spec.placement", templatePath+".novelty")
	objects := expect.Value(renderAs(t, clusterWith(newer), upgrade, values(t, `{crds: {keepFields: true}}`)))(t)
	u := objects["CustomResourceDefinition /leaderworkersets.leaderworkerset.x-k8s.io"]
	if !hasProperty(u, "spec.placement") || !hasProperty(u, templatePath+".novelty") || !hasProperty(u, "spec.replicas") {
		t.Error("a field is lost")
	}
}

// Helm deletes what the previous chart of a release had and protection alone has not: with a definition
// all its objects.
func TestNoDefinitionIsDeleted(t *testing.T) {
	const name = "disaggregatedsets.disaggregatedset.x-k8s.io"
	for annotations, refuses := range map[string]bool{
		`{}`:                                    false,
		`{meta.helm.sh/release-name: lockstep}`: true,
		`{meta.helm.sh/release-name: other}`:    false,
		`{meta.helm.sh/release-name: lockstep, helm.sh/resource-policy: keep}`: false,
	} {
		u := decode(t, name, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: `+name+`, annotations: `+annotations+`}}`)
		_, err := renderAs(t, clusterWith(u), upgrade, values(t, `{protectOnly: true}`))
		expect.That(t, (err != nil) == refuses, "annotations %s: %v", annotations, err)
		expect.That(t, !refuses || strings.Contains(err.Error(), name), "the definition is not named: %v", err)
	}
}
