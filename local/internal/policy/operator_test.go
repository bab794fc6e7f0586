package policy

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/config"
)

// oldest is the first version of Kubernetes that is served.
var oldest = version.MajorMinor(1, 34)

// TestPoliciesOfTheOperatorReadMaps evaluates the policies as API servers before 1.37 do: in the language of that version, and with
// objects as maps. On others a drill sends the requests.
func TestPoliciesOfTheOperatorReadMaps(t *testing.T) {
	const (
		set      = `"leaderworkerset.sigs.k8s.io/name":"a"`
		owner    = `{"apiVersion":"leaderworkerset.x-k8s.io/v1","kind":"LeaderWorkerSet","name":"a","uid":"u","controller":true}`
		bySts    = `{"apiVersion":"apps/v1","kind":"StatefulSet","name":"a","uid":"u","controller":true}`
		space    = `{"metadata":{"name":"n","uid":"u","labels":{"l":"x"}},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}}`
		volume   = `{"metadata":{"name":"n","uid":"u","finalizers":["x"]},"spec":{"claimRef":{"name":"c"}}}`
		claim    = `{"metadata":{"name":"n","namespace":"s","uid":"u","finalizers":["x"]},"spec":{"volumeName":"v"},"status":{"phase":"Bound","conditions":[{"type":"Unused","status":"True"}]}}`
		pod      = `{"metadata":{"name":"n","namespace":"s","uid":"u","labels":{` + set + `},"ownerReferences":[` + bySts + `]},"spec":{"containers":[{"name":"c","image":"i"}],"schedulingGates":[{"name":"x"},{"name":"protection.lockstep.dev/use-recorded"}]},"status":{"phase":"Pending"}}`
		solo     = `{"metadata":{"name":"n","namespace":"s","uid":"u"},"spec":{"containers":[{"name":"c","image":"i"}],"schedulingGates":[{"name":"protection.lockstep.dev/use-recorded"}]}}`
		sts      = `{"metadata":{"name":"n","namespace":"s","uid":"u","labels":{` + set + `},"ownerReferences":[` + owner + `]},"spec":{"replicas":1,"template":{"spec":{}}}}`
		service  = `{"metadata":{"name":"n","namespace":"s","labels":{` + set + `},"ownerReferences":[` + owner + `]},"spec":{"clusterIP":"None"}}`
		unlabel  = `{"metadata":{"labels":null}}`
		recorded = `{"metadata":{"annotations":{"protection.lockstep.dev/used-by":"x"}}}`
	)
	for _, tt := range []struct {
		policy, resource, operation, old, patch, refused string
	}{
		{"namespaces", "namespaces", "UPDATE", space, `{"metadata":{"annotations":{"protection.lockstep.dev/held-claims":"1"}}}`, ""},
		{"namespaces", "namespaces", "UPDATE", space, unlabel, "metadata.labels"},
		{"namespaces", "namespaces", "UPDATE", space, `{"metadata":{"annotations":{"protection.lockstep.dev/release":"u"}}}`, "protection.lockstep.dev/release"},
		{"persistentvolumes", "persistentvolumes", "UPDATE", volume, `{"metadata":{"finalizers":["x","kubernetes.io/pv-protection"]}}`, ""},
		{"persistentvolumes", "persistentvolumes", "UPDATE", volume, `{"metadata":{"finalizers":null}}`, "metadata.finalizers"},
		{"persistentvolumes", "persistentvolumes", "UPDATE", volume, `{"spec":{"claimRef":null}}`, "spec"},
		{"persistentvolumeclaims", "persistentvolumeclaims", "UPDATE", claim, `{"metadata":{"finalizers":["kubernetes.io/pvc-protection","x"]}}`, ""},
		{"persistentvolumeclaims", "persistentvolumeclaims", "UPDATE", claim, recorded, ""},
		{"persistentvolumeclaims", "persistentvolumeclaims", "UPDATE", claim, `{"metadata":{"ownerReferences":[` + owner + `]}}`, "metadata.ownerReferences"},
		{"persistentvolumeclaims", "persistentvolumeclaims", "UPDATE", claim, `{"metadata":{"annotations":{"protection.lockstep.dev/mode":"off"}}}`, "protection.lockstep.dev/mode"},
		{"persistentvolumeclaims", "persistentvolumeclaims", "DELETE", claim, "", "deletes only a claim"},
		{"status", "persistentvolumeclaims/status", "UPDATE", claim, `{"status":{"conditions":null}}`, ""},
		{"status", "persistentvolumeclaims/status", "UPDATE", claim, `{"status":{"phase":"Lost"}}`, "status.phase"},
		{"status", "pods/status", "UPDATE", pod, `{"status":{"conditions":[{"type":"leaderworkerset.sigs.k8s.io/group-ready","status":"True"}]}}`, ""},
		{"status", "pods/status", "UPDATE", pod, `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status.conditions"},
		{"pods", "pods", "UPDATE", pod, `{"metadata":{"annotations":{"lockstep.dev/restart":"x"}},"spec":{"schedulingGates":[{"name":"x"}]}}`, ""},
		{"pods", "pods", "UPDATE", pod, `{"spec":{"schedulingGates":null}}`, "spec.schedulingGates"},
		{"pods", "pods", "UPDATE", pod, `{"spec":{"containers":[{"name":"c","image":"j"}]}}`, "spec.containers"},
		{"pods", "pods", "UPDATE", pod, unlabel, "metadata.labels"},
		{"pods", "pods", "UPDATE", solo, `{"spec":{"schedulingGates":null}}`, ""},
		{"pods", "pods", "UPDATE", solo, recorded, "metadata.annotations"},
		{"pods", "pods", "DELETE", pod, "", ""},
		{"pods", "pods", "DELETE", solo, "", "deletes only pods"},
		{"workloads", "statefulsets", "CREATE", sts, "{}", ""},
		{"workloads", "statefulsets", "UPDATE", sts, `{"spec":{"replicas":2}}`, ""},
		{"workloads", "statefulsets", "DELETE", sts, "", ""},
		{"workloads", "statefulsets", "UPDATE", sts, unlabel, "leaves no object"},
		{"workloads", "statefulsets", "UPDATE", sts, `{"metadata":{"ownerReferences":null}}`, "leaves no object"},
		{"workloads", "statefulsets", "CREATE", pod, "{}", "has another"},
		{"workloads", "statefulsets", "DELETE", solo, "", "has none"},
		{"workloads", "services", "CREATE", service, "{}", ""},
		{"workloads", "services", "CREATE", service, `{"spec":{"clusterIP":null}}`, "headless"},
		{"system_namespaces", "statefulsets", "UPDATE", sts, `{"spec":{"replicas":2}}`, ""},
		{"system_namespaces", "statefulsets", "UPDATE", sts, `{"spec":{"template":{"spec":{"hostNetwork":true}}}}`, "another namespace"},
		{"system_namespaces", "pods", "CREATE", pod, "{}", "another namespace"},
	} {
		got := strings.Join(denials(t, tt.policy, tt.resource, admission.Operation(tt.operation), tt.old, tt.patch), "; ")
		if (got == "") != (tt.refused == "") || !strings.Contains(got, tt.refused) {
			t.Errorf("%s: %s of %s with %s: got %q, want %q", tt.policy, tt.operation, tt.resource, tt.patch, got, tt.refused)
		}
	}
}

// denials returns why a policy refuses a request. A create is of the patched object.
func denials(t *testing.T, file, resource string, operation admission.Operation, old, patch string) (all []string) {
	t.Helper()
	var before, after *unstructured.Unstructured
	if operation != admission.Delete {
		after = object(t, old, patch)
	}
	if operation != admission.Create {
		before = object(t, old, "{}")
	}
	resource, subresource, _ := strings.Cut(resource, "/")
	record := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{Version: "v1"}, "s", "n",
		schema.GroupVersionResource{Version: "v1", Resource: resource}, subresource, operation, nil, false, &user.DefaultInfo{Name: "operator"})
	attributes := &admission.VersionedAttributes{Attributes: record}
	if after != nil {
		attributes.VersionedObject = admission.NewLazyObject(after)
	}
	if before != nil {
		attributes.VersionedOldObject = admission.NewLazyObject(before)
	}
	result := validator(t, file).Validate(t.Context(), record.GetResource(), attributes, nil, &corev1.Namespace{}, celconfig.RuntimeCELCostBudget, nil)
	for _, decision := range result.Decisions {
		if decision.Action == validating.ActionDeny {
			all = append(all, decision.Message)
		}
	}
	return all
}

func object(t *testing.T, text, patch string) *unstructured.Unstructured {
	t.Helper()
	merged, err := jsonpatch.MergePatch([]byte(text), []byte(patch))
	u := &unstructured.Unstructured{}
	if err == nil {
		err = json.Unmarshal(merged, &u.Object)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// validator compiles a policy as the API server does, without the condition about who sent the request.
func validator(t *testing.T, file string) validating.Validator {
	t.Helper()
	text, err := fs.ReadFile(config.Policy, "policy/"+file+".yaml")
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	if err == nil {
		first, _, _ := bytes.Cut(text, []byte("\n---\n"))
		err = yaml.UnmarshalStrict(first, policy)
	}
	if err != nil {
		t.Fatal(err)
	}
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(oldest))
	if err != nil {
		t.Fatal(err)
	}
	variables, validations, messages := []cel.NamedExpressionAccessor{}, []cel.ExpressionAccessor{}, []cel.ExpressionAccessor{}
	for _, v := range policy.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
		if v.MessageExpression == "" {
			messages[len(messages)-1] = nil
		}
	}
	compiler.CompileAndStoreVariables(variables, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	compile := func(all []cel.ExpressionAccessor) cel.ConditionEvaluator {
		evaluator := compiler.CompileCondition(all, cel.OptionalVariableDeclarations{}, environment.NewExpressions)
		for _, err := range evaluator.CompilationErrors() {
			t.Errorf("%s: %v", file, err)
		}
		return evaluator
	}
	return validating.NewValidator(compile(validations), nil, compile(nil), compile(messages), policy.Spec.FailurePolicy, nil)
}
