//go:build drills

package helm

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/expect"
)

const (
	otherName  = "disaggregatedsets.disaggregatedset.x-k8s.io"
	definition = "../../config/crd/leaderworkerset.x-k8s.io_leaderworkersets.yaml"
)

// The chart is installed over the objects of another implementation's chart. Every set, pod and PVC
// stays.
func TestTakeover(t *testing.T) {
	for name, h := range tools() {
		for way, tt := range map[string]struct {
			// dir is where the other's chart has its definitions.
			dir, former, fullname string
			// upgrades its release, or installs beside it.
			upgrades bool
		}{
			"upgrade, definitions in crds":             {"crds", "lws", "lws", true},
			"upgrade, definitions in templates":        {"templates", "lws", "lws", true},
			"upgrade of another release":               {"crds", "serving", "serving-lws", true},
			"take ownership, definitions in crds":      {"crds", "lws", "lws", false},
			"take ownership, definitions in templates": {"templates", "lws", "lws", false},
		} {
			t.Run(name+"/"+way, func(t *testing.T) {
				cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
				must(t, "make the other's certificate", err)
				must(t, "install the other", h.install(tt.former, namespace, reference(t, tt.dir),
					map[string]any{"url": webhookURL(), "fullname": tt.fullname, "cert": string(cert), "key": string(key)}, options{wait: patience}))
				t.Cleanup(func() { clear(t, h, tt.former, release) })
				s := newScene(t, asAdministrator()...)
				disaggregated := object("disaggregatedset.x-k8s.io/v1", "DisaggregatedSet", s.Namespace, "kept")
				s.Create(disaggregated)

				set := merged(map[string]any{"names": map[string]any{"prefix": tt.fullname, "instance": tt.former}})
				if tt.upgrades {
					upgraded(t, h, tt.former, set)
				} else {
					installed(t, h, set)
				}
				s.wantAll("takeover")
				s.Want("the DisaggregatedSet is kept", s.Client.Get(t.Context(), client.ObjectKeyFromObject(disaggregated), disaggregated))
				if tt.fullname == "lws" { // the account of the operator that runs here
					must(t, "await the roles", bed.Operator.AwaitRoles())
					s.RestartOperator()
				} else {
					s.RestartOperator(asAdministrator()...)
				}
				s.Eventually("the groups are ready", s.unready)
				s.wantAll("after takeover")
				s.wantServed("new")
				taken(t, tt.fullname)
				onlyOurWebhooks(t)
				s.awaitSigned(bed.Operator.Webhooks)
				s.wantServed("signed")

				after := tt.former
				if !tt.upgrades {
					after = release
				}
				must(t, "uninstall", h.uninstall(after, namespace))
				s.wantAll("uninstall")
			})
		}
	}
}

// upgraded upgrades the other's release. Helm deletes no definition with it: the chart has the same ones.
func upgraded(t *testing.T, h tool, former string, set map[string]any) {
	must(t, "upgrade", h.upgrade(former, namespace, chartDir, set, options{takes: true, wait: patience}))
}

// installed installs beside the other's release. Helm would leave the other's webhooks, and the chart refuses until the user
// removes them.
func installed(t *testing.T, h tool, set map[string]any) {
	o := options{takes: true, wait: patience}
	err := h.install(release, namespace, chartDir, set, o)
	expect.Must(t, err != nil && strings.Contains(err.Error(), foreignWebhooks),
		"an install that leaves webhooks: %v", err)
	configuration := object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "lws-validating-webhook-configuration")
	must(t, "remove the other's webhooks", bed.Client.Patch(t.Context(), configuration, client.RawPatch(types.StrategicMergePatchType, []byte(foreignWebhooks))))
	o.forces = true // the other owns the bundles
	must(t, "install", h.install(release, namespace, chartDir, set, o))
}

const foreignWebhooks = `{"webhooks":[{"$patch":"delete","name":"vpod.kb.io"}]}`

// taken checks what became of objects under names that both have.
func taken(t *testing.T, fullname string) {
	t.Helper()
	deployment := get(t, "apps/v1", "Deployment", namespace, fullname+"-controller-manager")
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	expect.Equalf[any](t, []any{"/lockstep"}, containers[0].(map[string]any)["command"], "what the Deployment runs")
	expect.Must(t, crd(t, setsName) != nil && crd(t, otherName) != nil, "a definition is gone")
	strategy, _, _ := unstructured.NestedString(crd(t, setsName).Object, "spec", "conversion", "strategy")
	expect.Equalf(t, "None", strategy, "how the definition converts")
}

// onlyOurWebhooks checks that webhooks of the other are gone. Helm removes them only with the other's release.
func onlyOurWebhooks(t *testing.T) {
	t.Helper()
	var left []string
	hooks, _, _ := unstructured.NestedSlice(get(t, "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "lws-validating-webhook-configuration").Object, "webhooks")
	for _, hook := range hooks {
		left = append(left, hook.(map[string]any)["name"].(string))
	}
	expect.Equalf(t, []string{"vleaderworkerset.kb.io", "vdisaggregatedset.kb.io"}, left, "the webhooks")
}

// reference writes the other's chart with its definitions into a directory.
func reference(t *testing.T, definitions string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, "copy the chart", os.CopyFS(dir, os.DirFS("testdata/reference")))
	must(t, "make a directory", os.MkdirAll(filepath.Join(dir, definitions), 0o755))
	ours, err := os.ReadFile(definition)
	must(t, "read the definition", err)
	converts := "spec:\n  conversion:\n    strategy: Webhook\n    webhook:\n      conversionReviewVersions: [v1]\n      clientConfig: {service: {name: lws-webhook-service, namespace: lws-system, path: /convert}}\n"
	must(t, "write a definition", os.WriteFile(filepath.Join(dir, definitions, "leaderworkersets.yaml"), bytes.Replace(ours, []byte("spec:\n"), []byte(converts), 1), 0o644))
	others, err := os.ReadFile("testdata/disaggregatedsets.yaml")
	must(t, "read a definition", err)
	must(t, "write a definition", os.WriteFile(filepath.Join(dir, definitions, "disaggregatedsets.yaml"), others, 0o644))
	return dir
}

func object(apiVersion, kind, in, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	u.SetNamespace(in)
	u.SetName(name)
	return u
}
