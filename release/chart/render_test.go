package chart

import (
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/internal/webhook/certs"
	"lockstep.dev/lockstep/test/expect"
)

const (
	chartDir  = "../../charts/lockstep"
	namespace = "lws-system"
	image     = "registry.example/lockstep:v1"
)

// values are written as YAML. Each test names an image, unless it runs none, and has an authority, unless it says who
// makes the certificate: no test has a cluster.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	all := map[string]any{}
	expect.OK(t, yaml.Unmarshal([]byte(text), &all))
	if _, found := all["image"]; !found {
		all["image"] = map[string]any{"repository": "registry.example/lockstep", "tag": "v1"}
	}
	if _, found := all["certificates"]; !found {
		all["certificates"] = map[string]any{"caBundle": string(webhookCA[certs.AuthorityCert])}
	}
	return all
}

// webhookCA is what the releases of tests trust.
var webhookCA = func() map[string][]byte {
	data, err := certs.MakeAuthority(time.Now())
	if err != nil {
		panic(err)
	}
	return data
}()

func load(t *testing.T) *helmchart.Chart {
	t.Helper()
	return expect.Value(loader.Load(chartDir))(t)
}

// render returns the objects of a release in a namespace, by kind and name.
func render(t *testing.T, in string, set map[string]any) (map[string]*unstructured.Unstructured, error) {
	t.Helper()
	return renderOn(t, nil, in, set)
}

// renderOn renders against the objects of a cluster.
func renderOn(t *testing.T, server engine.ClientProvider, in string, set map[string]any) (map[string]*unstructured.Unstructured, error) {
	t.Helper()
	return renderAs(t, server, common.ReleaseOptions{Name: "lockstep", Namespace: in, Revision: 1, IsInstall: true}, set)
}

func renderAs(t *testing.T, server engine.ClientProvider, options common.ReleaseOptions, set map[string]any) (map[string]*unstructured.Unstructured, error) {
	t.Helper()
	chart := load(t)
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(capabilities.APIVersions, "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")
	all, err := util.ToRenderValues(chart, set, options, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := map[string]string(nil), error(nil)
	if server == nil {
		files, err = engine.Render(chart, all)
	} else {
		files, err = engine.RenderWithClientProvider(chart, all, server)
	}
	if err != nil {
		return nil, err
	}
	objects := map[string]*unstructured.Unstructured{}
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		for document := range strings.SplitSeq(text, "\n---\n") {
			u := decode(t, name, document)
			if u == nil {
				continue
			}
			expect.That(t, objects[title(u)] == nil, "%s is rendered twice", title(u))
			objects[title(u)] = u
		}
	}
	return objects, nil
}

func decode(t *testing.T, name, document string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, document)
	}
	if len(u.Object) == 0 {
		return nil
	}
	expect.Must(t, u.GetKind() != "" && u.GetName() != "", "%s: no object:\n%.500s", name, document)
	return u
}

func title(u *unstructured.Unstructured) string {
	return u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
}

func mustRender(t *testing.T, text string) map[string]*unstructured.Unstructured {
	t.Helper()
	return expect.Value(render(t, namespace, values(t, text)))(t)
}
