package chart

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/test/expect"
)

// "kubectl lockstep check" expects only what the chart installs, wherever the release is.
func TestCheckExpectsWhatTheChartInstalls(t *testing.T) {
	for name, tt := range map[string]struct{ in, values string }{
		"defaults":                   {namespace, ``},
		"another namespace":          {"elsewhere", ``},
		"without protection":         {"elsewhere", `{protection: {enabled: false}}`},
		"names of another chart":     {"elsewhere", `{names: {prefix: old-lws, instance: old}}`},
		"names that begin with ours": {namespace, `{names: {prefix: lockstep, instance: old}}`},
		"cert-manager":               {namespace, `{certificates: {source: CertManager}}`},
		"own certificates":           {"elsewhere", `{certificates: {source: Secret, caBundle: PEM}}`},
		"logs of crashes":            {"elsewhere", `{crashLogLines: 20, names: {prefix: old-lws, instance: old}}`},
		"protection alone":           {"elsewhere", `{protectOnly: true, protection: {alone: true}}`},
	} {
		t.Run(name, func(t *testing.T) {
			rendered := expect.Value(render(t, tt.in, values(t, tt.values)))(t)
			server := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme)
			for _, u := range rendered {
				if clientgoscheme.Scheme.Recognizes(u.GroupVersionKind()) {
					served := u.DeepCopy()
					served.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "Helm"})
					server.WithRuntimeObjects(served)
				}
			}
			expected := expect.Value(install.Expect(t.Context(), server.Build(), nil))(t)
			expect.That(t, expected.Namespace == tt.in && expected.Command == "helm upgrade" && expected.ConfigRead,
				"namespace %q, command %q, configuration read: %t", expected.Namespace, expected.Command, expected.ConfigRead)
			for _, want := range expected.Objects {
				got := rendered[title(want)]
				switch {
				case want.GetKind() == "Namespace", want.GetKind() == "Secret": // it is given
				case got == nil:
					t.Errorf("%s is expected, and not in the chart", title(want))
				default:
					compareContent(t, want, got)
				}
			}
		})
	}
}

// compareContent compares what check compares.
func compareContent(t *testing.T, want, got *unstructured.Unstructured) {
	t.Helper()
	switch want.GetKind() {
	case "Deployment", "Service", "ConfigMap", "CustomResourceDefinition":
		return
	}
	pattern := plain(t, want)
	delete(pattern, "metadata")
	expect.Equalf[any](t, pattern, part(plain(t, got), pattern), "%s", title(want))
}

// plain returns an object as JSON has it.
func plain(t *testing.T, u *unstructured.Unstructured) (fields map[string]any) {
	t.Helper()
	text, err := u.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	expect.OK(t, err)
	return fields
}
