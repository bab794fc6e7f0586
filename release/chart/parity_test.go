package chart

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/webhook/certs"
	"lockstep.dev/lockstep/test/expect"
)

// authority is a certificate in PEM.
var authority = func() []byte {
	certificate, _, err := certutil.GenerateSelfSignedCertKey("authority", nil, nil)
	if err != nil {
		panic(err)
	}
	return certificate
}()

// With the same choices, the chart and "lockstep install" give the same objects.
func TestTheChartIsWhatInstallApplies(t *testing.T) {
	for name, tt := range map[string]struct {
		values  string
		options install.Options
	}{
		"defaults":                            {``, install.Options{Image: image}},
		"outside the cluster":                 {`{operator: {enabled: false}, webhook: {url: "https://127.0.0.1:9443/"}}`, install.Options{WebhookURL: "https://127.0.0.1:9443/"}},
		"both":                                {`{webhook: {url: "https://127.0.0.1:9443"}}`, install.Options{Image: image, WebhookURL: "https://127.0.0.1:9443"}},
		"protection off":                      {`{protection: {enabled: false}}`, install.Options{Image: image}},
		"protection alone":                    {`{protectOnly: true}`, install.Options{Image: image, ProtectOnly: true}},
		"protection alone has no certificate": {`{protectOnly: true, certificates: {source: CertManager}}`, install.Options{Image: image, ProtectOnly: true}},
		"mode Off":                            {`{protection: {mode: "Off"}}`, install.Options{Image: image}},
		"mode Observe":                        {`{protection: {mode: Observe}}`, install.Options{Image: image}},
		"mode Hold":                           {`{protection: {mode: Hold, initialHold: Pending}}`, install.Options{Image: image}},
		"mode Strict":                         {`{protection: {mode: Strict, exemptNamespaces: [a, b]}}`, install.Options{Image: image}},
		"no exempt namespaces":                {`{protection: {exemptNamespaces: []}}`, install.Options{Image: image}},
		"without the built-in":                {`{protection: {alone: true, idle: Free, graceSeconds: 0}}`, install.Options{Image: image}},
		"kinds": {`{protection: {kinds: [{apiVersion: example.com/v1, kind: Shard, podTemplates: [spec.template]},
			{apiVersion: v1, kind: ReplicationController, podTemplates: [spec.template]}]}}`, install.Options{Image: image}},
		"crash logs": {`{crashLogLines: 20}`, install.Options{Image: image, CrashLogLines: 20}},
		"native gangs": {
			`{gangScheduler: kubernetes, featureGates: {WorkloadAwareScheduling: true}}`, install.Options{Image: image},
		},
		"gangs":               {`{gangScheduler: volcano}`, install.Options{Image: image}},
		"client certificates": {fmt.Sprintf(`{webhook: {clientCA: %q}}`, authority), install.Options{Image: image}},
	} {
		t.Run(name, func(t *testing.T) {
			in := namespace
			if tt.options.ProtectOnly {
				in = "lockstep-system"
			}
			got := expect.Value(render(t, in, values(t, tt.values)))(t)
			tt.options.Config = configuration(t, tt.values)
			if !tt.options.ProtectOnly {
				tt.options.WebhookCA = t.TempDir() // it has no key: neither renders the Secret
				certificate := filepath.Join(tt.options.WebhookCA, certs.AuthorityCert)
				expect.OK(t, os.WriteFile(certificate, webhookCA[certs.AuthorityCert], 0o600))
			}
			want := applied(t, tt.options)
			for name, u := range got {
				if u.GetKind() == "NetworkPolicy" { // of the chart alone
					delete(got, name)
				}
				annotations := u.GetAnnotations()
				if u.GetKind() == "CustomResourceDefinition" || annotations["lockstep.dev/protects-alone"] == "true" {
					expect.Equalf(t, "keep", annotations["helm.sh/resource-policy"], "the policy of %s", title(u))
					delete(annotations, "helm.sh/resource-policy")
					u.SetAnnotations(annotations)
				}
			}
			compareObjects(t, want, got)
		})
	}
}

// compareObjects compares the objects of install with those of another way.
func compareObjects(t *testing.T, want, got map[string]*unstructured.Unstructured) {
	t.Helper()
	expect.Equalf(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)), "objects")
	for name, u := range want {
		if other := got[name]; other != nil {
			expect.Equalf(t, u.Object, other.Object, "%s", name)
		}
	}
}

// configuration returns the Configuration that the chart makes of values.
func configuration(t *testing.T, text string) []byte {
	t.Helper()
	set := values(t, text)
	set["operator"] = map[string]any{"enabled": true}
	objects := expect.Value(render(t, namespace, set))(t)
	config, _, _ := unstructured.NestedString(objects["ConfigMap "+namespace+"/lockstep-configuration"].Object, "data", "config.yaml")
	return []byte(config)
}

// applied returns the objects of "lockstep install", without the namespace: Helm creates it.
func applied(t *testing.T, o install.Options) map[string]*unstructured.Unstructured {
	t.Helper()
	out := &bytes.Buffer{}
	o.Print, o.Out = true, out
	expect.OK(t, install.Install(t.Context(), o))
	objects := map[string]*unstructured.Unstructured{}
	for document := range strings.SplitSeq(out.String(), "---\n") {
		u := decode(t, "install --print", document)
		if u != nil && u.GetKind() != "Namespace" {
			objects[title(u)] = u
		}
	}
	return objects
}

// The default base is what "lockstep install" applies with the defaults.
func TestTheKustomizeBaseIsWhatInstallApplies(t *testing.T) {
	maker := krusty.MakeKustomizer(krusty.MakeDefaultOptions())
	built := expect.Value(maker.Run(filesys.MakeFsOnDisk(), "../../config/default"))(t)
	got := map[string]*unstructured.Unstructured{}
	for _, resource := range built.Resources() {
		text := expect.Value(resource.AsYAML())(t)
		u := decode(t, resource.GetName(), string(text))
		if len(u.GetAnnotations()) == 0 {
			u.SetAnnotations(nil)
		}
		if u.GetKind() != "Namespace" {
			got[title(u)] = u
		}
	}
	compareObjects(t, applied(t, install.Options{Image: "lockstep"}), got)
}
