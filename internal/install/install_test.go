package install

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"lockstep.dev/lockstep/internal/operator"
)

// clusterOf is a cluster without controllers.
func clusterOf(t *testing.T) (*cluster, client.WithWatch) {
	t.Helper()
	if err := apiextensionsv1.AddToScheme(clientgoscheme.Scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithReturnManagedFields().Build()
	return &cluster{Options: Options{Out: io.Discard, Timeout: time.Second}, client: c}, c
}

// An object with the labels of protection is found if it is a policy or a ClusterRole.
func TestCopiedLabelsMakeNothingOurs(t *testing.T) {
	c, _ := clusterOf(t)
	for kind, group := range map[string]string{
		"ConfigMap": "v1", "Service": "v1", "ServiceAccount": "v1", "Deployment": "apps/v1", "RoleBinding": "rbac.authorization.k8s.io/v1",
		"ClusterRole": "rbac.authorization.k8s.io/v1", "ValidatingAdmissionPolicy": "admissionregistration.k8s.io/v1",
	} {
		u := Bare(group, kind, "prod", "mine")
		if kind == "ClusterRole" || kind == "ValidatingAdmissionPolicy" {
			u.SetNamespace("")
		}
		u.SetLabels(map[string]string{nameLabel: standaloneLabel, componentLabel: "protection"})
		if err := c.client.Create(t.Context(), u, client.FieldOwner("kubectl")); err != nil {
			t.Fatal(err)
		}
	}
	found := titles(must(c.installed(t.Context())))
	if slices.Sort(found); !slices.Equal(found, []string{"clusterrole.rbac.authorization.k8s.io/mine", "validatingadmissionpolicy.admissionregistration.k8s.io/mine"}) {
		t.Errorf("found %q", found)
	}
}

// A user gives the operator memory for a large cluster. Another install keeps it, and takes none away from the manifest.
func TestInstallKeepsMoreMemory(t *testing.T) {
	deployment := func(requests, limits any) *unstructured.Unstructured {
		u := Bare("apps/v1", "Deployment", namespaceName, deploymentName)
		resources := map[string]any{"requests": map[string]any{"cpu": "1", "memory": requests}, "limits": map[string]any{"memory": limits}}
		container := map[string]any{"name": "manager", "resources": resources}
		u.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{container}}}}
		return u
	}
	for name, tt := range map[string]struct{ requests, limits, wantRequests, wantLimits any }{
		"the same":       {"1Gi", "1Gi", "1Gi", "1Gi"},
		"more":           {"2Gi", "4Gi", "2Gi", "4Gi"},
		"a higher limit": {"1Gi", "2Gi", "1Gi", "2Gi"},
		"less":           {"512Mi", "512Mi", "1Gi", "1Gi"},
		"no limit":       {"1Gi", "0", "1Gi", "1Gi"},
	} {
		c, live := clusterOf(t)
		before := deployment(tt.requests, tt.limits)
		if err := live.Create(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		if _, err := c.apply(t.Context(), deployment("1Gi", "1Gi")); err != nil {
			t.Fatal(err)
		}
		resources := operatorIn(must(Live(t.Context(), c.client, before)))["resources"]
		want := map[string]any{"requests": map[string]any{"cpu": "1", "memory": tt.wantRequests}, "limits": map[string]any{"memory": tt.wantLimits}}
		if diff := cmp.Diff(want, resources); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// Two installs at once: the loser of a race reads again.
func TestAnotherInstallAtTheSameTime(t *testing.T) {
	for name, race := range map[string]func(*cluster, *unstructured.Unstructured) error{
		"creates the object first": func(c *cluster, u *unstructured.Unstructured) error { return c.create(t.Context(), u) },
		"changes the object first": func(c *cluster, u *unstructured.Unstructured) error {
			u.SetLabels(map[string]string{"theirs": "yes"})
			if err := c.create(t.Context(), u.DeepCopy()); err != nil {
				return err
			}
			return apierrors.NewConflict(schema.GroupResource{}, u.GetName(), nil)
		},
	} {
		other, store := clusterOf(t)
		c, raced := *other, false
		c.client = interceptor.NewClient(store, interceptor.Funcs{
			Create: func(ctx context.Context, to client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if u := o.(*unstructured.Unstructured); !raced {
					raced = true
					if err := race(other, u.DeepCopy()); err != nil {
						return err
					}
				}
				return to.Create(ctx, o, options...)
			},
		})
		u := Bare("v1", "ServiceAccount", "prod", "lws")
		u.SetLabels(map[string]string{"ours": "yes"})
		if _, err := c.apply(t.Context(), u); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if live := must(Live(t.Context(), c.client, u)); live == nil || live.GetLabels()["ours"] != "yes" {
			t.Errorf("%s: got %v", name, live)
		}
	}
}

// What is wrong with an address is said before anything is written, by install and by --print.
func TestAWebhookURLIsCheckedFirst(t *testing.T) {
	for address, isRight := range map[string]bool{
		"https://10.0.0.1:9443": true, "https://[::1]:9443/": true, "https://host.example.com/a": true, "HTTPS://h:1": true,
		"http://10.0.0.1:9443": false, "10.0.0.1:9443": false, "host:9443": false, "https:host": false, "https://": false, "https://:9443": false,
		"https://h:99999": false, "https://h:0": false, "https://h:port": false, "https://h h:1": false, "https://u:secret@h:1": false,
		"https://h:1?a=b": false, "https://h:1?": false, "https://h:1#a": false, "https://h:1#": false, "lws-webhook-service.lws-system": false,
	} {
		_, err := Options{WebhookURL: address}.shape(nil)
		if (err == nil) != isRight || err != nil && (!strings.Contains(err.Error(), "--webhook-url") || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: got %v", address, err)
		}
	}
	var out strings.Builder
	if err := Install(t.Context(), Options{WebhookURL: "http://h", Print: true, Out: &out}); err == nil || out.Len() > 0 {
		t.Errorf("--print: got %v, printed %q", err, out.String())
	}
}

// Without an operator, the last line says that no set can be created.
func TestAnInstallationWithoutAnOperatorSaysSo(t *testing.T) {
	for name, tt := range map[string]struct {
		options Options
		runs    bool
		want    bool
	}{
		"no operator":              {want: true},
		"an operator stays":        {runs: true},
		"an operator is installed": {options: Options{Image: "i"}},
		"an address":               {options: Options{WebhookURL: "https://h"}},
		"protection alone":         {options: Options{ProtectOnly: true}},
	} {
		c, live := clusterOf(t)
		if tt.runs {
			u := Bare("apps/v1", "Deployment", namespaceName, deploymentName)
			u.SetLabels(map[string]string{"control-plane": "controller-manager"})
			if err := live.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
		}
		var out strings.Builder
		c.Out = &out
		s := must(tt.options.shape(nil))
		if err := s.sayUnattended(t.Context(), c); err != nil || (out.Len() > 0) != tt.want {
			t.Errorf("%s: got %v, said %q", name, err, out.String())
		}
	}
}

func TestTheConfigurationOfAnotherImplementation(t *testing.T) {
	for name, tt := range map[string]struct {
		text, kept string
		dropped    []string
	}{
		"as it is": {
			header + "leaderElection: {leaderElect: true}\ninternalCertManagement: {enable: true}\n", "leaderElect: true", nil,
		},
		"of the next version": {
			"apiVersion: config.lws.x-k8s.io/v1\nkind: Configuration\nclientConnection: {qps: 50}\nfeatureGates: {WorkloadAwareScheduling: true}\n", "WorkloadAwareScheduling: true", nil,
		},
		"with what this version lacks": {
			header + "gangSchedulingManagement: {schedulerProvider: volcano}\nwebhook: {port: 9444, speed: 3}\nfeatureGates: {Unheard: true}\n" +
				"internalCertManagement: {enable: false}\n",
			"schedulerProvider: volcano",
			[]string{"featureGates.Unheard", "internalCertManagement.enable", "webhook.port", "webhook.speed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			config, dropped, err := applicable(tt.text)
			if err != nil || !strings.Contains(string(config), tt.kept) {
				t.Fatalf("%v, kept:\n%s", err, config)
			}
			if diff := cmp.Diff(tt.dropped, dropped); diff != "" {
				t.Errorf("left out (-want +got)\n%s", diff)
			}
			c, err := operator.ParseConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			if faults := operator.ValidateConfig(c); len(faults) > 0 || len(unfit(c)) > 0 {
				t.Errorf("what is kept is refused: %v, %v", faults, unfit(c))
			}
		})
	}
	for _, text := range []string{"{", "apiVersion: v1\nkind: ConfigMap\n"} {
		if _, _, err := applicable(text); err == nil {
			t.Errorf("%q is taken over", text)
		}
	}
}
