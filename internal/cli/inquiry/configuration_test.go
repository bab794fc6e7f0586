package inquiry_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"lockstep.dev/lockstep/internal/cli/inquiry"
	"lockstep.dev/lockstep/internal/pvc"
)

// answers is an API server of few words: what it does not know is not there, and what
// is "?" may not be read.
func answers(t *testing.T, data *corev1.PersistentVolumeClaim, more map[string]string) *rest.Config {
	t.Helper()
	known := map[string]string{
		"/api/v1/namespaces/prod":      `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"prod"}}`,
		"/api/v1/namespaces/prod/pods": `{"kind":"PodList","apiVersion":"v1","items":[]}`,
	}
	text, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	known["/api/v1/namespaces/prod/persistentvolumeclaims/data-a"] = strings.Replace(string(text), "{", `{"kind":"PersistentVolumeClaim","apiVersion":"v1",`, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := more[r.URL.Path]
		if !ok {
			answer, ok = known[r.URL.Path]
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !ok:
			w.WriteHeader(http.StatusNotFound)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		case answer == "?":
			w.WriteHeader(http.StatusForbidden)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

const (
	installed = "/api/v1/namespaces/lws-system/configmaps/lockstep-configuration"
	byItself  = "/api/v1/namespaces/lockstep-system/configmaps/lockstep-configuration"
	group     = `{"kind":"APIGroup","apiVersion":"v1","name":%[1]q,"versions":[{"groupVersion":"%[1]s/v2","version":"v2"}],"preferredVersion":{"groupVersion":"%[1]s/v2","version":"v2"}}`
	resources = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/v2","resources":[{"name":%q,"kind":%q,"namespaced":true}]}`
)

func configured(namespace string) string {
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":%q,"name":"lockstep-configuration"},"data":{"config.yaml":%q}}`, namespace,
		"apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\nprotection: {kinds: [{apiVersion: example.com/v1, kind: Shard, claimTemplates: [spec.claims], claimName: '{template}-{name}'}]}\n")
}

// Workloads of kinds that only the configuration knows hold, in whatever version the
// cluster serves them.
func TestKindsOfTheConfigurationAreReadAsTheyAreServed(t *testing.T) {
	shards := map[string]string{
		"/apis/example.com":                           fmt.Sprintf(group, "example.com"),
		"/apis/example.com/v2":                        fmt.Sprintf(resources, "example.com", "shards", "Shard"),
		"/apis/example.com/v2/namespaces/prod/shards": `{"kind":"ShardList","apiVersion":"example.com/v2","items":[{"kind":"Shard","apiVersion":"example.com/v2","metadata":{"namespace":"prod","name":"a","uid":"s"},"spec":{"claims":[{"metadata":{"name":"data"}}]}}]}`,
	}
	jobSets := map[string]string{
		"/apis/jobset.x-k8s.io":                            fmt.Sprintf(group, "jobset.x-k8s.io"),
		"/apis/jobset.x-k8s.io/v2":                         fmt.Sprintf(resources, "jobset.x-k8s.io", "jobsets", "JobSet"),
		"/apis/jobset.x-k8s.io/v2/namespaces/prod/jobsets": `{"kind":"JobSetList","apiVersion":"jobset.x-k8s.io/v2","items":[{"kind":"JobSet","apiVersion":"jobset.x-k8s.io/v2","metadata":{"namespace":"prod","name":"a","uid":"s"},"spec":{"volumeClaimPolicies":[{"templates":[{"metadata":{"name":"data"}}]}]}}]}`,
	}
	with := func(base map[string]string, path, answer string) map[string]string {
		all := map[string]string{path: answer}
		for path, answer := range base {
			if _, ok := all[path]; !ok {
				all[path] = answer
			}
		}
		return all
	}
	for _, tt := range []struct {
		name    string
		answers map[string]string
		state   pvc.State
		unread  []string
	}{
		{"nothing installed", nil, pvc.Free, nil},
		{"not in the configuration", shards, pvc.Free, nil},
		{"in the configuration", with(shards, installed, configured("lws-system")), pvc.Held, nil},
		{"in that of protection by itself", with(shards, byItself, configured("lockstep-system")), pvc.Held, nil},
		{"not served", map[string]string{installed: configured("lws-system")}, pvc.Free, nil},
		{"not readable", with(with(shards, installed, configured("lws-system")), "/apis/example.com/v2/namespaces/prod/shards", "?"), pvc.Unknown, []string{"shards.example.com"}},
		{"nobody tells whether it is served", with(with(shards, installed, configured("lws-system")), "/apis/example.com/v1", "?"), pvc.Unknown, []string{"shards.example.com"}},
		{"JobSet in another version", jobSets, pvc.Held, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i, err := inquiry.Open(answers(t, claim("data-a"), tt.answers))
			if err != nil {
				t.Fatal(err)
			}
			found, err := i.Explain(t.Context(), ns, []corev1.PersistentVolumeClaim{*claim("data-a")})
			if err != nil {
				t.Fatal(err)
			}
			why := pvc.Why(found[0].Case)
			var unread []string
			for _, u := range why.Unread {
				if u.MayHold {
					unread = append(unread, u.What)
				}
			}
			if why.State != tt.state || !slices.Equal(unread, tt.unread) {
				t.Errorf("%s, unread %q; want %s, %q", why.State, unread, tt.state, tt.unread)
			}
		})
	}
}

// An overview asks for the kinds once, not for each namespace.
func TestKindsAreAskedForOnce(t *testing.T) {
	i, err := inquiry.Open(answers(t, claim("data-a"), map[string]string{installed: configured("lws-system")}))
	if err != nil {
		t.Fatal(err)
	}
	asked, ask := map[string]int{}, i.ServedAs
	i.ServedAs = func(ctx context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
		asked[kind.Kind]++
		return ask(ctx, kind)
	}
	for range 2 {
		if _, err := i.Explain(t.Context(), ns, []corev1.PersistentVolumeClaim{*claim("data-a")}); err != nil {
			t.Fatal(err)
		}
	}
	if want := map[string]int{"LeaderWorkerSet": 1, "Shard": 1, "JobSet": 1}; !maps.Equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
}

// That the configuration may not be read is said where Lockstep has a hand in it, and
// nowhere else.
func TestAConfigurationThatMayNotBeReadIsToldOf(t *testing.T) {
	for finalizer, told := range map[string]bool{pvc.PodsFinalizer: false, pvc.BarrierFinalizer: true} {
		data := claim("data-a")
		data.Finalizers = []string{finalizer}
		i, err := inquiry.Open(answers(t, data, map[string]string{installed: "?", byItself: "?"}))
		if err != nil {
			t.Fatal(err)
		}
		found, err := i.Explain(t.Context(), ns, []corev1.PersistentVolumeClaim{*data})
		if err != nil {
			t.Fatal(err)
		}
		says := slices.ContainsFunc(found[0].Unread, func(u pvc.Unread) bool {
			return strings.Contains(u.What, "configmap lws-system/lockstep-configuration") && u.Why == "you may not read it"
		})
		if says != told {
			t.Errorf("%s: %+v", finalizer, found[0].Unread)
		}
	}
}
