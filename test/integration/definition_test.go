package integration

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	cli "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/expect"
)

// The tests of config/crd check every rule. This one checks a rule of each sort on a real API server.
func TestDefinitionRefusesInvalidSets(t *testing.T) {
	c := withDefinition(t)
	tests := []struct{ name, spec, text string }{
		{"startup policy", `{startupPolicy: Whenever}`, `spec.startupPolicy: Unsupported value: "Whenever": supported values: "LeaderCreated", "LeaderReady"`},
		{"termination policy", `{podTerminationPolicy: Serial}`, `spec.podTerminationPolicy: Unsupported value: "Serial": supported values: "Default", "Parallel"`},
		{"network without a policy", `{networkConfig: {}}`, `spec.networkConfig.subdomainPolicy: Required value`},
		{"size", `{leaderWorkerTemplate: {size: 0}}`, `spec.leaderWorkerTemplate.size: Invalid value: 0: size must be equal or greater than 1`},
		{"number beyond int32", `{rolloutStrategy: {rollingUpdateConfiguration: {maxSurge: 99999999999}}}`, `spec.rolloutStrategy.rollingUpdateConfiguration.maxSurge: Invalid value: 99999999999: spec.rolloutStrategy.rollingUpdateConfiguration.maxSurge in body should be less than or equal to 2147483647`},
		{"restart policy of pods", `{leaderWorkerTemplate: {workerTemplate: {spec: {restartPolicy: Never}}}}`,
			"workerTemplate.spec.restartPolicy: Invalid value: must be Always"},
		{"deadline of pods", `{leaderWorkerTemplate: {workerTemplate: {spec: {activeDeadlineSeconds: 60}}}}`,
			"workerTemplate.spec.activeDeadlineSeconds: Invalid value: the pods of a StatefulSet have no deadline"},
		{"subgroups", `{leaderWorkerTemplate: {size: 5, subGroupPolicy: {subGroupSize: 3}}}`, `spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize: Invalid value: size or size - 1 must be divisible by subGroupSize`},
		{"product of replicas and size", `{replicas: 100000, leaderWorkerTemplate: {size: 100000}}`, "the product of replicas and worker replicas must not exceed 2147483647"},
		{"costly quantity", `{leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c, resources: {limits: {cpu: "1e-2147483647"}}}]}}}}`, "should match"},
		{"costly quantity of a PVC", `{leaderWorkerTemplate: {volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: "1e2147483647"}}}}]}}`, "should match"},
	}
	set := newSet("default", "w")
	c.create(set)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			patch := expect.Value(yaml.YAMLToJSON([]byte("{spec: " + tt.spec + "}")))(t)
			wantError(t, c.Patch(t.Context(), set.DeepCopy(), merge(string(patch))), apierrors.IsInvalid, tt.text)
		})
	}
}

// A scaler that was written empty has a scale. The definition completes the roles of a set as it completes a set.
func TestDefinitionsOfDisaggregatedSets(t *testing.T) {
	c := withDefinition(t)
	of := func(kind, spec string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		c.must(yaml.Unmarshal([]byte(spec), &u.Object))
		u.SetGroupVersionKind(dsv1.GroupVersion.WithKind(kind))
		u.SetNamespace("default")
		u.SetName("s")
		return u
	}
	const template = `leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c, image: i}]}}}`
	err := c.Create(t.Context(), of("DisaggregatedSet", `spec: {roles: [{name: p, spec: {replicas: 0, `+template+`}}, {name: d, spec: {`+template+`}}]}`))
	wantError(t, err, apierrors.IsInvalid, "spec: Invalid value", "replicas must be zero for all non-External roles or non-zero for all non-External roles")
	set, typed := of("DisaggregatedSet", `spec: {roles: [{name: d, spec: {`+template+`}}]}`), dsv1.DisaggregatedSet{}
	c.create(set)
	c.must(runtime.DefaultUnstructuredConverter.FromUnstructured(set.Object, &typed))
	role := typed.Spec.Roles[0].Spec
	expect.Equalf(t, "1 1 LeaderCreated RecreateGroupOnPodRestart Ordinal 1\n", fmt.Sprintln(*role.Replicas, *role.LeaderWorkerTemplate.Size, role.StartupPolicy,
		role.LeaderWorkerTemplate.RestartPolicy, role.GroupIdentity, *typed.Spec.Slices), "defaults")

	c.create(of("DisaggregatedSetRoleScaler", `{}`))
	scaler := &dsv1.DisaggregatedSetRoleScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}}
	scale := &autoscalingv1.Scale{}
	c.must(c.SubResource("scale").Get(t.Context(), scaler, scale))
	expect.Equalf(t, 0, scale.Spec.Replicas, "replicas")
	scale.Spec.Replicas = 3
	c.must(c.SubResource("scale").Update(t.Context(), scaler, client.WithSubResourceBody(scale)))
	c.must(c.Get(t.Context(), client.ObjectKeyFromObject(scaler), scaler))
	expect.Equalf(t, 3, scaler.Spec.Replicas, "replicas after a scale")
}

// extend adds fields of a later version to the definition of sets.
func (c *cluster) extend() {
	c.t.Helper()
	c.editDefinition(func(spec, status map[string]apiextensionsv1.JSONSchemaProps) {
		spec["placement"] = apiextensionsv1.JSONSchemaProps{Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"Any"`)}}
		status["forecast"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	})
}

// raw returns a set with all of its fields.
func (c *cluster) raw(name string) *unstructured.Unstructured {
	c.t.Helper()
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSet"))
	c.must(c.Get(c.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, set))
	return set
}

// manifest returns a set as a user writes it.
func (c *cluster) manifest(set *lwsv1.LeaderWorkerSet) *unstructured.Unstructured {
	c.t.Helper()
	object := expect.Value(runtime.DefaultUnstructuredConverter.ToUnstructured(set))(c.t)
	delete(object, "status")
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSet"))
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return u
}

// createWith creates a set with more fields in its spec.
func (c *cluster) createWith(name string, more map[string]any) {
	c.t.Helper()
	set := c.manifest(newSet("default", name))
	for field, value := range more {
		c.must(unstructured.SetNestedField(set.Object, value, "spec", field))
	}
	c.eventually("the API server takes the set", func() error { return c.Create(c.t.Context(), set.DeepCopy()) })
}

// hasLeaders reports whether this incarnation of a set has a leader StatefulSet: nothing collects that of another.
func (c *cluster) hasLeaders(name string) func() bool {
	return func() bool {
		sts := &appsv1.StatefulSet{}
		return c.Get(c.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, sts) == nil && metav1.IsControlledBy(sts, c.raw(name))
	}
}

func (c *cluster) untilUnsupported(name string, status metav1.ConditionStatus) {
	c.t.Helper()
	set := &lwsv1.LeaderWorkerSet{}
	c.until("Unsupported is "+string(status), func() bool {
		err := c.Get(c.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, set)
		return err == nil && meta.IsStatusConditionPresentAndEqual(set.Status.Conditions, lws.CodeUnsupported, status)
	})
}

// The operator leaves a set alone that has what this version lacks, and a definition that comes to have
// more fields needs no restart. A field that no decision knows stays, in the spec and in the status.
func TestSetsOfALaterVersionAreLeftAlone(t *testing.T) {
	c := newCluster(t)
	c.serving()
	c.createWith("known", nil)
	c.until("a set of this version has leaders", c.hasLeaders("known"))

	c.extend()
	var racks *unstructured.Unstructured
	c.until("the API server stores the new field", func() bool {
		if racks != nil {
			c.must(c.Delete(c.t.Context(), racks))
		}
		c.createWith("racks", map[string]any{"placement": "Rack"})
		racks = c.raw("racks")
		stored, _, _ := unstructured.NestedString(racks.Object, "spec", "placement")
		return stored == "Rack" // a set that lost the field shows its default
	})
	c.untilUnsupported("racks", metav1.ConditionTrue)
	placement, _, _ := unstructured.NestedString(c.raw("racks").Object, "spec", "placement")
	expect.Equal(t, "Rack", placement)
	expect.That(t, !c.hasLeaders("racks")(), "a set with an unknown field got leaders")
	c.plansNothing("racks")

	known := c.raw("known")
	c.must(c.Status().Patch(t.Context(), known, merge(`{"status":{"forecast":"sun"}}`)))
	c.must(c.Patch(t.Context(), known, merge(`{"spec":{"replicas":3}}`)))
	c.until("a set with the default of the new field is scaled", func() bool {
		sts := &appsv1.StatefulSet{}
		return c.Get(c.t.Context(), client.ObjectKey{Namespace: "default", Name: "known"}, sts) == nil && *sts.Spec.Replicas == 3
	})
	c.until("the status is written", func() bool {
		observed, _, _ := unstructured.NestedInt64(c.raw("known").Object, "status", "observedGeneration")
		return observed == c.raw("known").GetGeneration()
	})
	forecast, _, _ := unstructured.NestedString(c.raw("known").Object, "status", "forecast")
	expect.Equalf(t, "sun", forecast, "the forecast of the status")

	c.collect("racks")
	c.must(c.Patch(t.Context(), c.raw("racks"), merge(`{"spec":{"placement":"Any"}}`)))
	c.until("the set has leaders once the field is gone", c.hasLeaders("racks"))
	c.untilUnsupported("racks", metav1.ConditionFalse)
	c.leftByADeployment()
}

// plansNothing checks that "kubectl lockstep plan" decides about a set as the operator does.
func (c *cluster) plansNothing(name string) {
	c.t.Helper()
	session := expect.Value(cli.Open(c.t.Context(), c.cfg, "default", io.Discard))(c.t)
	found := expect.Value(session.Set(c.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, time.Now()))(c.t)
	expect.That(c.t, found.Plan.IsUnsupported() && len(found.Plan.Actions) == 0,
		"the plan of a set that is left alone: %+v", found.Plan)
}

// collect deletes what earlier incarnations of a set left, as the garbage collector would, which does not run here.
func (c *cluster) collect(name string) {
	c.t.Helper()
	for _, left := range []client.Object{&appsv1.StatefulSet{}, &appsv1.ControllerRevision{}, &corev1.Service{}} {
		c.must(c.DeleteAllOf(c.t.Context(), left, client.InNamespace("default"), client.MatchingLabels{lwsv1.SetNameLabelKey: name}))
	}
}

// leftByADeployment checks a set whose field was removed: its Deployment says what it was.
func (c *cluster) leftByADeployment() {
	c.t.Helper()
	c.createWith("pruned", map[string]any{"placement": "Rack"})
	set, labels := c.raw("pruned"), workload.LeaderSelector("pruned")
	template := newSet("default", "pruned").Spec.LeaderWorkerTemplate.WorkerTemplate
	template.Labels = labels
	c.create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pruned", Labels: labels, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(set, lwsv1.GroupVersion.WithKind("LeaderWorkerSet")),
		}},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	})
	c.untilUnsupported("pruned", metav1.ConditionTrue)
	c.must(c.Patch(c.t.Context(), set, merge(`{"spec":{"placement":null}}`)))
	c.until("the Deployment is named", func() bool {
		conditions, _, _ := unstructured.NestedSlice(c.raw("pruned").Object, "status", "conditions")
		return len(conditions) == 3 && strings.Contains(fmt.Sprint(conditions), "deployment pruned") // Unsupported, Ready, Stalled
	})
	expect.That(c.t, !c.hasLeaders("pruned")(), "a set with a Deployment got leaders")
}

//go:embed testdata/decimals.yaml
var decimals []byte

// decimalSet has a decimal in each place that has a quantity.
func decimalSet(name string) *unstructured.Unstructured {
	set := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(decimals, &set.Object); err != nil {
		panic(err)
	}
	set.SetName(name)
	return set
}

// A Deployment takes a quantity as a decimal without quotes. So does a set, whatever the verb.
func TestUnquotedDecimalQuantitiesAreTaken(t *testing.T) {
	c := newCluster(t)
	c.serving()

	c.part("create", func() {
		set := decimalSet("created")
		c.must(c.Create(c.t.Context(), set))
		c.hasNoDecimals(set)
	})
	c.part("update", func() {
		set := c.raw("created")
		set.Object["spec"] = decimalSet("created").Object["spec"]
		unstructured.RemoveNestedField(set.Object, "spec", "leaderWorkerTemplate", "size")
		c.must(unstructured.SetNestedField(set.Object, int64(3), "spec", "leaderWorkerTemplate", "size"))
		c.must(c.Update(c.t.Context(), set))
		c.hasNoDecimals(set)
	})
	for what, kind := range map[string]types.PatchType{"merge patch": types.MergePatchType, "JSON patch": types.JSONPatchType} {
		c.part(what, func() {
			cpu := map[types.PatchType]string{
				types.MergePatchType: `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"overhead":{"cpu":0.75}}}}}}`,
				types.JSONPatchType:  `[{"op":"replace","path":"/spec/leaderWorkerTemplate/workerTemplate/spec/overhead/cpu","value":0.25}]`,
			}[kind]
			set := c.raw("created")
			c.must(c.Patch(c.t.Context(), set, client.RawPatch(kind, []byte(cpu))))
			c.hasNoDecimals(set)
		})
	}
	c.part("server-side apply", func() { c.appliesDecimals("applied") })
	c.part("client-side apply", func() { c.kubectlAppliesDecimals("by-kubectl") })
	c.part("rubbish", c.refusesRubbishQuantities)
}

// hasNoDecimals checks that a set is stored as Kubernetes stores a Deployment: typed clients of each language read it.
func (c *cluster) hasNoDecimals(set *unstructured.Unstructured) {
	c.t.Helper()
	text := expect.Value(json.Marshal(set.Object["spec"]))(c.t)
	for _, want := range []string{`"sizeLimit":"1000000000500m"`, `"divisor":"1m"`, `"example.com/gpu":1`, `"storage":"1000000000500m"`} {
		expect.Says(c.t, string(text), want)
	}
	var find func(value any, path string)
	find = func(value any, path string) {
		switch value := value.(type) {
		case map[string]any:
			for key, inner := range value {
				find(inner, path+"."+key)
			}
		case []any:
			for _, inner := range value {
				find(inner, path+"[]")
			}
		case float64:
			c.t.Errorf("%s is stored as the number %v", path, value)
		}
	}
	find(set.Object, "")
	typed := &lwsv1.LeaderWorkerSet{}
	c.must(c.Get(c.t.Context(), client.ObjectKeyFromObject(set), typed))
	cpu := typed.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Requests.Cpu()
	expect.That(c.t, cpu.MilliValue() == 500, "cpu is %s", cpu)
}

// appliesDecimals applies a set twice, and again with another value: an apply without a change writes nothing.
func (c *cluster) appliesDecimals(name string) {
	apply := func(set *unstructured.Unstructured, manager string) *unstructured.Unstructured {
		c.t.Helper()
		//nolint:staticcheck // a file of a user is no apply configuration
		c.must(c.Patch(c.t.Context(), set, client.Apply, client.FieldOwner(manager)))
		return set
	}
	first := apply(decimalSet(name), "user")
	c.hasNoDecimals(first)
	first = apply(decimalSet(name), "user") // after the operator's webhook and the definition have had their say
	again := apply(decimalSet(name), "user")
	of := func(set *unstructured.Unstructured) []metav1.ManagedFieldsEntry { // the operator writes the status meanwhile
		return slices.DeleteFunc(set.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Subresource == "status" })
	}
	if first.GetGeneration() != again.GetGeneration() || !equality.Semantic.DeepEqual(of(first), of(again)) {
		c.t.Errorf("the second apply made generation %d of %d", again.GetGeneration(), first.GetGeneration())
	}
	changed := decimalSet(name)
	c.must(unstructured.SetNestedField(changed.Object, 0.5, "spec", "leaderWorkerTemplate", "workerTemplate", "spec", "overhead", "cpu"))
	changed = apply(changed, "user")
	if cpu, _, _ := unstructured.NestedFieldNoCopy(changed.Object, "spec", "leaderWorkerTemplate", "workerTemplate", "spec", "overhead", "cpu"); cpu != "500m" {
		c.t.Errorf("the applied cpu is %v", cpu)
	}
	fewer := decimalSet(name)
	unstructured.RemoveNestedField(fewer.Object, "spec", "leaderWorkerTemplate", "workerTemplate", "spec", "overhead")
	fewer = apply(fewer, "user")
	if _, found, _ := unstructured.NestedMap(fewer.Object, "spec", "leaderWorkerTemplate", "workerTemplate", "spec", "overhead"); found {
		c.t.Error("a dropped quantity stays: its manager does not own it")
	}
}

// kubectlAppliesDecimals sends what kubectl apply sends: field validation, and a merge patch with the last file.
func (c *cluster) kubectlAppliesDecimals(name string) {
	file := decimalSet(name)
	text := expect.Value(json.Marshal(file.Object))(c.t)
	file.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": string(text)})
	c.must(c.Create(c.t.Context(), file, client.FieldValidation("Strict")))
	c.hasNoDecimals(file)
	was := file.GetGeneration()
	patch := expect.Value(json.Marshal(map[string]any{"spec": decimalSet(name).Object["spec"]}))(c.t)
	c.must(c.Patch(c.t.Context(), file, client.RawPatch(types.MergePatchType, patch), client.FieldValidation("Strict")))
	c.hasNoDecimals(file)
	expect.Equalf(c.t, was, file.GetGeneration(), "the second apply made generation")
}

// refusesRubbishQuantities sends what no type of Kubernetes reads: the answer is 422 and names the field.
func (c *cluster) refusesRubbishQuantities() {
	for _, rubbish := range []string{`"half"`, `true`, `{"a":1}`, `[1]`, `"0,5"`, `"1.5 Gi"`} {
		patch := `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"overhead":{"cpu":` + rubbish + `}}}}}}`
		err := c.Patch(c.t.Context(), c.raw("created"), merge(patch))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.leaderWorkerTemplate.workerTemplate.spec.overhead") {
			c.t.Errorf("cpu %s: %v", rubbish, err)
		}
	}
	negative := decimalSet("negative")
	templates := negative.Object["spec"].(map[string]any)["leaderWorkerTemplate"].(map[string]any)
	pod := templates["workerTemplate"].(map[string]any)["spec"].(map[string]any)
	pod["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{"requests": map[string]any{"cpu": -0.5}}
	expect.ErrorSays(c.t, c.Create(c.t.Context(), negative), "workerTemplate.spec.containers[0].resources.requests")
}
