package policy

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
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
	"lockstep.dev/lockstep/test/expect"
)

// oldest is the first version of Kubernetes that is served.
var oldest = version.MajorMinor(1, 34)

// TestPoliciesOfTheOperatorReadMaps evaluates the policies as API servers before 1.37 do: in the language of that version, and with
// objects as maps. On others a drill sends the requests.
func TestPoliciesOfTheOperatorReadMaps(t *testing.T) {
	var all struct {
		Objects  []any
		Requests []struct {
			Policy, Resource, Operation, Refused string
			Old, Patch                           json.RawMessage
		}
	}
	text, err := os.ReadFile("testdata/requests.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(text, &all)
	}
	expect.Must(t, err == nil && len(all.Requests) >= 30, "%d requests, %v", len(all.Requests), err)
	for _, r := range all.Requests {
		got := strings.Join(denials(t, r.Policy, r.Resource, admission.Operation(r.Operation), r.Old, r.Patch), "; ")
		expect.That(t, (got == "") == (r.Refused == "") && strings.Contains(got, r.Refused),
			"%s: %s of %s with %s: got %q, want %q", r.Policy, r.Operation, r.Resource, r.Patch, got, r.Refused)
	}
}

// denials returns why a policy refuses a request. A create is of the patched object.
func denials(t *testing.T, file, resource string, operation admission.Operation, old, patch []byte) (all []string) {
	t.Helper()
	var before, after *unstructured.Unstructured
	if operation != admission.Delete {
		after = object(t, old, patch)
	}
	if operation != admission.Create {
		before = object(t, old, []byte("{}"))
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

func object(t *testing.T, text, patch []byte) *unstructured.Unstructured {
	t.Helper()
	merged, err := jsonpatch.MergePatch(text, patch)
	u := &unstructured.Unstructured{}
	if err == nil {
		err = json.Unmarshal(merged, &u.Object)
	}
	expect.OK(t, err)
	return u
}

// validator compiles a policy as the API server does, without the condition about who sent the request.
func validator(t *testing.T, file string) validating.Validator {
	t.Helper()
	text, err := fs.ReadFile(config.Files, "policy/"+file+".yaml")
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	if err == nil {
		first, _, _ := bytes.Cut(text, []byte("\n---\n"))
		err = yaml.UnmarshalStrict(first, policy)
	}
	expect.OK(t, err)
	compiler := expect.Value(cel.NewCompositedCompiler(environment.MustBaseEnvSet(oldest)))(t)
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
