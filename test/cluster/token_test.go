package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/scrape"
	"lockstep.dev/lockstep/internal/version"
	"lockstep.dev/lockstep/test/drill"
)

// Answers to a client that has the token of the operator.
const (
	refusedByRoles  = "refused by the roles"
	refusedByPolicy = "refused by a policy about the operator"
	admitted        = "admitted"
)

// leastRequests is how many requests a drill with the operator's token sends.
const leastRequests = 200

// attempt is one request. One that is to be admitted is a dry run.
type attempt struct {
	verb, path, body, want string
	as                     string // the user to impersonate
}

// thief sends requests with the token of the operator.
type thief struct {
	*scene
	host string
	http *http.Client
	sent int
}

func newThief(s *scene) *thief {
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "lws-system", Name: "lws-controller-manager"}}
	s.Check("take the operator's token", s.Client.SubResource("token").Create(s.Context(), account, request))
	config := rest.AnonymousClientConfig(bed.Rest)
	config.BearerToken = request.Status.Token
	web, err := rest.HTTPClientFor(config)
	s.Check("make a client with the token", err)
	return &thief{scene: s, host: strings.TrimRight(config.Host, "/"), http: web}
}

var methods = map[string]string{
	"create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete, "get": http.MethodGet,
}

// try sends a request, and returns the answer.
func (f *thief) try(a attempt) string {
	address := f.host + a.path
	if a.want == admitted && a.verb != "get" {
		address += "?dryRun=All"
	}
	request, err := http.NewRequestWithContext(f.Context(), methods[a.verb], address, strings.NewReader(a.body))
	f.Check(a.path, err)
	request.Header.Set("Content-Type", "application/json")
	switch {
	case a.verb == "patch" && strings.HasPrefix(a.body, "["):
		request.Header.Set("Content-Type", "application/json-patch+json")
	case a.verb == "patch":
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if a.as != "" {
		request.Header.Set("Impersonate-User", a.as)
	}
	f.sent++
	answer, err := f.http.Do(request)
	f.Check(a.path, err)
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	answer.Body.Close()
	f.Check(a.path, err)
	switch {
	case answer.StatusCode < 300:
		return admitted
	case answer.StatusCode == http.StatusForbidden && bytes.Contains(text, []byte("ValidatingAdmissionPolicy 'lws-operator-")):
		return refusedByPolicy
	case answer.StatusCode == http.StatusForbidden && bytes.Contains(text, []byte(" cannot ")):
		return refusedByRoles
	}
	return fmt.Sprintf("%d %s", answer.StatusCode, text)
}

// counted checks that the drill sent requests.
func (f *thief) counted() {
	f.Logf("%d requests were sent", f.sent)
	if f.sent < leastRequests {
		f.Errorf("only %d requests were sent", f.sent)
	}
}

func (f *thief) tryAll(t *testing.T, what string, all []attempt) {
	t.Run(what, func(t *testing.T) {
		for _, a := range all {
			if got := f.try(a); got != a.want {
				t.Errorf("%s %s %s %s: got %s, want %s", a.verb, a.path, a.as, a.body, got, a.want)
			}
		}
	})
}

// TestTheOperatorsTokenIsBounded sends what a client with the operator's token may want to do. The roles or the policies
// refuse everything but what the operator does. What looks like that is admitted.
func TestTheOperatorsTokenIsBounded(t *testing.T) {
	s := newScene(t)
	s.victims()
	f := newThief(s)
	for _, section := range f.sections() {
		f.tryAll(t, section.What, section.attempts())
	}
	f.tryAll(t, "new objects", f.creations())
	f.tryAll(t, "namespaces of the cluster", f.systemNamespaces())
	f.tryAll(t, "what cannot be told from the operator", f.unbounded())
	f.counted()
	s.awaitSettled(s.Set("a"))
}

// section is requests by what they are about.
type section struct {
	What     string
	Requests []struct {
		Verbs, Paths, Users []string
		Bodies              []json.RawMessage
		Want                string
	}
}

// sections reads what a client with the token may send, and the answers.
func (f *thief) sections() (all []section) {
	text, err := manifests.ReadFile("testdata/token.yaml")
	f.Check("read the requests", err)
	text = []byte(strings.NewReplacer("NAMESPACE", f.Namespace, "UID", string(f.Set("a").UID)).Replace(string(text)))
	f.Check("read the requests", yaml.UnmarshalStrict(text, &all))
	return all
}

// attempts returns an attempt for each verb, path, user and body of a section.
func (s *section) attempts() (all []attempt) {
	for _, r := range s.Requests {
		users, bodies := slices.Concat(r.Users, []string{""}), slices.Concat(r.Bodies, []json.RawMessage{nil})
		for _, verb := range r.Verbs {
			for _, path := range r.Paths {
				for _, user := range users[:max(1, len(r.Users))] {
					for _, body := range bodies[:max(1, len(r.Bodies))] {
						all = append(all, attempt{verb: verb, path: path, as: user, want: r.Want, body: strings.Trim(string(body), `"`)})
					}
				}
			}
		}
	}
	return all
}

// victims creates a set, and objects of others.
func (s *scene) victims() {
	s.Patch(s.Itself(), `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`)
	s.Lend(s.podGroupDefinition())
	solo := s.lendManifest("solo")[0]
	s.lendManifest("victims", "UID", string(solo.GetUID()))
	s.settled(s.newSet("a", 1, 2, imageA, volumes(keepClaims, keepClaims), uniquePerReplica))
	s.awaitBound(3) // the spec of a PVC that is not bound is immutable
}

func (f *thief) core(namespace, of string) string {
	return "/api/v1/namespaces/" + namespace + "/" + of
}
func (f *thief) podGroupsPath() string {
	return "/apis/scheduling.volcano.sh/v1beta1/namespaces/" + f.Namespace + "/podgroups"
}
func (f *thief) apps(namespace, of string) string {
	return "/apis/apps/v1/namespaces/" + namespace + "/" + of
}

// tries makes one attempt of each body.
func tries(verb, path, want string, bodies ...string) (all []attempt) {
	for _, body := range bodies {
		all = append(all, attempt{verb: verb, path: path, body: body, want: want})
	}
	return all
}

// forged is an ownerReference to a LeaderWorkerSet, or to an object of another kind.
func (f *thief) forged(kind string) string {
	apiVersion, name, _ := strings.Cut(kind, " ")
	if kind == "" {
		apiVersion, name = lwsv1.GroupVersion.String(), string(identity.KindLeaderWorkerSet)
	}
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":"a","uid":%q,"controller":true}`, apiVersion, name, f.Set("a").UID)
}

// object is a new object of a collection, with labels and owners in JSON.
func object(collection, labels, owners, pod string) string {
	about := fmt.Sprintf(`"metadata":{"name":"a-7","labels":%s,"annotations":{%q:"1"},"ownerReferences":[%s]}`, labels, lwsv1.SizeAnnotationKey, owners)
	workload := fmt.Sprintf(`{%s,"spec":{"replicas":1,"serviceName":"a","selector":{"matchLabels":{"x":"y"}},"template":{"metadata":{"labels":{"x":"y"}},"spec":%s}}}`, about, pod)
	switch collection[strings.LastIndex(collection, "/")+1:] {
	case "statefulsets", "deployments":
		return workload
	case "pods":
		return fmt.Sprintf(`{%s,"spec":%s}`, about, pod)
	case "services":
		return fmt.Sprintf(`{%s,"spec":{"clusterIP":"None","selector":{"x":"y"}}}`, about)
	case "podgroups":
		return fmt.Sprintf(`{"apiVersion":"scheduling.volcano.sh/v1beta1","kind":"PodGroup",%s,"spec":{"minMember":1}}`, about)
	case "controllerrevisions":
		return fmt.Sprintf(`{%s,"revision":1,"data":{}}`, about)
	}
	return fmt.Sprintf(`{%s,"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`, about)
}

const (
	plain      = `{"containers":[{"name":"c","image":"i"}]}`
	privileged = `{"hostNetwork":true,"containers":[{"name":"c","image":"i","securityContext":{"privileged":true}}]}`
	ofSetA     = `{"` + lwsv1.SetNameLabelKey + `":"a","` + lwsv1.WorkerIndexLabelKey + `":"0"}`
)

func (f *thief) creations() (all []attempt) {
	workloads := []string{f.apps(f.Namespace, "statefulsets"), f.apps(f.Namespace, "deployments"), f.core(f.Namespace, "services"), f.apps(f.Namespace, "controllerrevisions"), f.podGroupsPath()}
	pods, claims := f.core(f.Namespace, "pods"), f.core(f.Namespace, "persistentvolumeclaims")
	foreign := []string{"apps/v1 Deployment", "apps/v1 DaemonSet", "batch/v1 Job", "v1 Node", "example.com/v1 LeaderWorkerSet"}
	for _, path := range []string{pods, claims} {
		for _, kind := range append(foreign, "", "apps/v1 StatefulSet", "apps/v1 ReplicaSet") {
			all = append(all, tries("create", path, refusedByRoles, object(path, ofSetA, f.forged(kind), plain), object(path, "{}", f.forged(kind), privileged))...)
		}
	}
	for _, path := range workloads {
		all = append(all, tries("create", path, refusedByPolicy, object(path, "{}", "", plain), object(path, "{}", f.forged(""), plain),
			object(path, ofSetA, "", plain),
			object(path, ofSetA, strings.Replace(f.forged(""), "true", "false", 1), plain))...)
		for _, kind := range foreign {
			all = append(all, tries("create", path, refusedByPolicy, object(path, ofSetA, f.forged(kind), plain))...)
		}
	}
	service := strings.Replace(object(workloads[2], ofSetA, f.forged(""), ""), `"clusterIP":"None"`, "%s", 1)
	for _, address := range []string{`"ports":[{"port":80}]`, `"ports":[{"port":80}],"externalIPs":["203.0.113.1"]`, `"type":"LoadBalancer","ports":[{"port":80}]`,
		`"type":"ExternalName","externalName":"example.com"`} {
		all = append(all, tries("create", workloads[2], refusedByPolicy, fmt.Sprintf(service, address))...)
	}
	return all
}

// systemNamespaces has objects that look like those of a set in namespaces of the cluster.
func (f *thief) systemNamespaces() (all []attempt) {
	for _, namespace := range []string{"kube-system", "kube-public", "kube-node-lease", "lws-system"} {
		for _, pod := range []string{plain, privileged} {
			pods, sets, deployments := f.core(namespace, "pods"), f.apps(namespace, "statefulsets"), f.apps(namespace, "deployments")
			all = append(all, tries("create", pods, refusedByRoles, object(pods, ofSetA, f.forged("apps/v1 StatefulSet"), pod))...)
			all = append(all, tries("create", sets, refusedByPolicy, object(sets, ofSetA, f.forged(""), pod), object(sets, ofSetA, f.forged("v1 Pod"), pod))...)
			all = append(all, tries("create", deployments, refusedByPolicy, object(deployments, ofSetA, f.forged(""), pod))...)
		}
	}
	return all
}

// unbounded is what a client with the token can do, because the operator does the same.
func (f *thief) unbounded() (all []attempt) {
	sets := f.apps(f.Namespace, "statefulsets")
	services, revisions, deployments := f.core(f.Namespace, "services"), f.apps(f.Namespace, "controllerrevisions"), f.apps(f.Namespace, "deployments")
	return append(all,
		attempt{verb: "create", path: sets, body: object(sets, ofSetA, f.forged(""), privileged), want: admitted},
		attempt{verb: "create", path: deployments, body: object(deployments, ofSetA, f.forged(""), privileged), want: admitted},
		attempt{verb: "create", path: services, body: object(services, ofSetA, f.forged(""), ""), want: admitted},
		attempt{verb: "create", path: revisions, body: object(revisions, ofSetA, f.forged(""), ""), want: admitted},
		attempt{verb: "patch", path: sets + "/a", body: `{"spec":{"replicas":0}}`, want: admitted},
		attempt{verb: "delete", path: sets + "/a", want: admitted},
		attempt{verb: "delete", path: f.core(f.Namespace, "pods/a-0"), want: admitted},
		attempt{verb: "patch", path: "/apis/" + lwsv1.GroupVersion.String() + "/namespaces/" + f.Namespace + "/leaderworkersets/a/status", body: `{"status":{"replicas":9}}`, want: admitted},
		attempt{verb: "create", path: "/apis/coordination.k8s.io/v1/namespaces/lws-system/leases", body: `{"metadata":{"name":"mine"}}`, want: admitted},
		attempt{verb: "create", path: "/apis/events.k8s.io/v1/namespaces/kube-system/events", want: admitted,
			body: `{"metadata":{"name":"mine","namespace":"kube-system"},"eventTime":"2026-01-01T00:00:00.000000Z","reportingController":"a.example/b","reportingInstance":"c","action":"d","reason":"e","type":"Normal","regarding":{"kind":"Pod","namespace":"kube-system","name":"p"}}`},
		attempt{verb: "get", path: "/api/v1/pods", want: admitted},
	)
}

// granted are the writes that the roles grant, or Kubernetes grants every user. Each has bounds in the drill above, or concerns nothing of
// others: "what cannot be told from the operator" names them.
var granted = map[string]string{
	"namespaces": "patch", "persistentvolumes": "patch", "persistentvolumeclaims": "patch delete", "persistentvolumeclaims/status": "patch",
	"pods": "patch delete", "pods/status": "patch", "services": "create patch delete",
	"statefulsets.apps": "create patch delete", "controllerrevisions.apps": "create patch delete", "deployments.apps": "create patch",
	"leaderworkersets.leaderworkerset.x-k8s.io/status": "patch", "events.events.k8s.io": "create patch",
	"tokenreviews.authentication.k8s.io": "create", "subjectaccessreviews.authorization.k8s.io": "create",
	"selfsubjectreviews.authentication.k8s.io": "create", "selfsubjectaccessreviews.authorization.k8s.io": "create", "selfsubjectrulesreviews.authorization.k8s.io": "create",
	"podgroups.scheduling.k8s.io": "create patch delete", "workloads.scheduling.k8s.io": "create patch",
	"podgroups.scheduling.volcano.sh": "create patch delete",
}

// TestTheOperatorsTokenWritesNoOtherKind sends each write of each kind that the API server serves.
func TestTheOperatorsTokenWritesNoOtherKind(t *testing.T) {
	s := newScene(t)
	f := newThief(s)
	server, err := discovery.NewDiscoveryClientForConfig(bed.Rest)
	s.Check("make a client of discovery", err)
	_, lists, err := server.ServerGroupsAndResources()
	s.Check("discover", err)
	for _, list := range lists {
		for _, kind := range list.APIResources {
			f.tryKind(t, list.GroupVersion, &kind)
		}
	}
	f.counted()
}

func (f *thief) tryKind(t *testing.T, version string, kind *metav1.APIResource) {
	group, _, hasGroup := strings.Cut(version, "/")
	path := "/api/" + version
	if hasGroup {
		path = "/apis/" + version
	} else {
		group = ""
	}
	if kind.Namespaced {
		path += "/namespaces/" + f.Namespace
	}
	resource, subresource, isSub := strings.Cut(kind.Name, "/")
	title := strings.TrimSuffix(resource+"."+group, ".")
	if isSub {
		title += "/" + subresource
	}
	for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection"} {
		if !slices.Contains(kind.Verbs, verb) {
			continue
		}
		a := attempt{verb: strings.TrimSuffix(verb, "collection"), path: path + "/" + resource, body: "{}", want: refusedByRoles}
		if verb != "create" && verb != "deletecollection" || isSub {
			a.path += "/nothing"
		}
		if isSub {
			a.path += "/" + subresource
		}
		a.path += "?dryRun=All"
		isGranted := slices.Contains(strings.Fields(granted[title]), verb)
		if got := f.try(a); (got != refusedByRoles) != isGranted {
			t.Errorf("%s %s: got %s, granted %v", verb, title, got, isGranted)
		}
	}
}

// TestSetsHaveNoPodsInNamespacesOfTheCluster creates sets where a forged pod would be most dangerous, and where an administrator binds the
// policy too. Each set says why it has no pods.
func TestSetsHaveNoPodsInNamespacesOfTheCluster(t *testing.T) {
	s := newScene(t)
	s.MayWrite("kube-system")
	s.Lend(&admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "no-sets." + s.Namespace},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "lws-operator-system", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Namespace}}},
		},
	})
	f := newThief(s)
	sets := f.apps(s.Namespace, "statefulsets")
	s.Eventually("the binding is enforced", func() error {
		return drill.Lacking("answer", refusedByPolicy, f.try(attempt{want: admitted, verb: "create", path: sets,
			body: object(sets, ofSetA, `{"apiVersion":"`+lwsv1.GroupVersion.String()+`","kind":"LeaderWorkerSet","name":"a","uid":"u","controller":true}`, plain)}))
	})
	for _, set := range []*lwsv1.LeaderWorkerSet{
		newSet("kube-system", "refused", 1, 2, imageA), newSet("kube-system", "refused-by-key", 1, 2, imageA, withKeys), s.newSet("refused", 1, 2, imageA),
	} {
		s.Lend(set)
		s.Eventually("the set says why it has no pods", func() error {
			now := &lwsv1.LeaderWorkerSet{}
			if err := s.Client.Get(s.Context(), client.ObjectKeyFromObject(set), now); err != nil {
				return err
			}
			text, err := json.Marshal(now.Status.Conditions)
			if err == nil && !strings.Contains(string(text), "create the set in another namespace") {
				err = fmt.Errorf("the conditions are %s", text)
			}
			return err
		})
		pods := &corev1.PodList{}
		s.Check("list the pods", s.Client.List(s.Context(), pods, client.InNamespace(set.Namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: set.Name}))
		if len(pods.Items) > 0 {
			t.Errorf("the set has %d pods", len(pods.Items))
		}
	}
}

// TestClientsOfMetricsAreReviewed reads metrics as the operator's account reviews their clients.
func TestClientsOfMetricsAreReviewed(t *testing.T) {
	s := asideScene(t)
	config := drill.AsAccount(bed.Rest)
	config.UserAgent = version.UserAgent()
	served, err := scrape.Readers(config, logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	s.Check("filter the metrics", err)
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "default"}}
	s.Check("ask for a token", s.Client.SubResource("token").Create(t.Context(), account, request))
	for token, want := range map[string]int{"": http.StatusUnauthorized, "wrong": http.StatusUnauthorized, request.Status.Token: http.StatusForbidden} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer := httptest.NewRecorder()
		served.ServeHTTP(answer, r)
		if answer.Code != want {
			t.Errorf("a client with a token of %d characters got %d, want %d", len(token), answer.Code, want)
		}
	}
}
