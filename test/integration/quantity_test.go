package integration

import (
	"encoding/json"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
)

// decimalTemplate has a decimal in each place of a pod template that has a quantity.
const decimalTemplate = `
    metadata: {labels: {a: b}}
    spec:
      overhead: {cpu: 0.25}
      resources: {requests: {cpu: 3.5}, limits: {cpu: 4.5, hugepages-2Mi: 2097152.0}}
      containers:
      - name: c
        image: i
        resources: {requests: {cpu: 0.5, memory: 1073741824.0, example.com/gpu: 1}, limits: {cpu: 1.5, ephemeral-storage: 1e9, example.com/gpu: 1}}
        env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 0.001}}}]
      initContainers:
      - {name: i, image: i, resources: {requests: {cpu: 0.5}, limits: {cpu: 0.75}}}
      - {name: s, image: i, restartPolicy: Always, resources: {requests: {cpu: 0.125}}}
      volumes:
      - {name: e, emptyDir: {sizeLimit: 1000000000.5}}
      - name: p
        ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1000000000.5}}}}}
      - name: d
        downwardAPI: {items: [{path: cpu, resourceFieldRef: {containerName: c, resource: limits.cpu, divisor: 0.001}}]}
      - name: q
        projected: {sources: [{downwardAPI: {items: [{path: cpu, resourceFieldRef: {containerName: c, resource: limits.cpu, divisor: 0.001}}]}}]}
`

// decimalSet has such templates, and claims with decimals.
func decimalSet(name string) *unstructured.Unstructured {
	text := `
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: ` + name + `, namespace: default}
spec:
  leaderWorkerTemplate:
    size: 2
    volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1000000000.5}, limits: {storage: 1.5e+10}}}
    leaderTemplate:` + strings.ReplaceAll(decimalTemplate, "\n", "\n  ") + `
    workerTemplate:` + strings.ReplaceAll(decimalTemplate, "\n", "\n  ")
	set := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &set.Object); err != nil {
		panic(err)
	}
	return set
}

// A Deployment takes a quantity as a decimal without quotes. So does a set, whatever the verb.
func TestUnquotedDecimalQuantitiesAreTaken(t *testing.T) {
	c := newCluster(t)
	r := c.replica(nil)
	c.install(func(o *install.Options) { o.WebhookURL = r.webhookURL() })
	r.start().untilReady()

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
	text, err := json.Marshal(set.Object["spec"])
	c.must(err)
	for _, want := range []string{`"sizeLimit":"1000000000500m"`, `"divisor":"1m"`, `"example.com/gpu":1`, `"storage":"1000000000500m"`} {
		if !strings.Contains(string(text), want) {
			c.t.Errorf("the set lacks %s: %s", want, text)
		}
	}
	var decimals func(value any, path string)
	decimals = func(value any, path string) {
		switch value := value.(type) {
		case map[string]any:
			for key, inner := range value {
				decimals(inner, path+"."+key)
			}
		case []any:
			for _, inner := range value {
				decimals(inner, path+"[]")
			}
		case float64:
			c.t.Errorf("%s is stored as the number %v", path, value)
		}
	}
	decimals(set.Object, "")
	typed := &lwsv1.LeaderWorkerSet{}
	c.must(c.Get(c.t.Context(), client.ObjectKeyFromObject(set), typed))
	if cpu := typed.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Requests.Cpu(); cpu.MilliValue() != 500 {
		c.t.Errorf("cpu is %s", cpu)
	}
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
	if first.GetGeneration() != again.GetGeneration() || !sameManagers(first, again) {
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

// sameManagers reports whether two incarnations have fields of the same owners.
func sameManagers(a, b *unstructured.Unstructured) bool {
	is, was := a.GetManagedFields(), b.GetManagedFields()
	if len(is) != len(was) {
		return false
	}
	for i := range is {
		if is[i].Manager != was[i].Manager || is[i].FieldsV1.GetRawString() != was[i].FieldsV1.GetRawString() {
			return false
		}
	}
	return true
}

// kubectlAppliesDecimals sends what kubectl apply sends: field validation, and a merge patch with the last file.
func (c *cluster) kubectlAppliesDecimals(name string) {
	file := decimalSet(name)
	text, err := json.Marshal(file.Object)
	c.must(err)
	file.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": string(text)})
	c.must(c.Create(c.t.Context(), file, client.FieldValidation("Strict")))
	c.hasNoDecimals(file)
	was := file.GetGeneration()
	patch, err := json.Marshal(map[string]any{"spec": decimalSet(name).Object["spec"]})
	c.must(err)
	c.must(c.Patch(c.t.Context(), file, client.RawPatch(types.MergePatchType, patch), client.FieldValidation("Strict")))
	c.hasNoDecimals(file)
	if file.GetGeneration() != was {
		c.t.Errorf("the second apply made generation %d", file.GetGeneration())
	}
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
	if err := c.Create(c.t.Context(), negative); err == nil || !strings.Contains(err.Error(), "workerTemplate.spec.containers[0].resources.requests") {
		c.t.Errorf("a negative cpu: %v", err)
	}
}
