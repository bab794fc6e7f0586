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
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/scrape"
	"lockstep.dev/lockstep/internal/version"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
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
	expect.That(f, f.sent >= leastRequests, "only %d requests were sent", f.sent)
}

func (f *thief) tryAll(t *testing.T, what string, all []attempt) {
	t.Run(what, func(t *testing.T) {
		for _, a := range all {
			expect.Equalf(t, a.want, f.try(a), "%s %s %s %s", a.verb, a.path, a.as, a.body)
		}
	})
}

// TestTheOperatorsTokenIsBounded sends what a client with the operator's token may want to do. The roles or the policies
// refuse everything but what the operator does. What looks like that is admitted.
func TestTheOperatorsTokenIsBounded(t *testing.T) {
	s := newScene(t)
	s.victims()
	f := newThief(s)
	text, err := manifests.ReadFile("testdata/token.yaml")
	s.Check("read the requests", err)
	text = []byte(strings.NewReplacer("NAMESPACE", s.Namespace, "UID", string(s.Set("a").UID)).Replace(string(text)))
	var all []section
	s.Check("read the requests", yaml.UnmarshalStrict(text, &all))
	for _, section := range all {
		f.tryAll(t, section.What, section.attempts())
	}
	f.counted()
	s.awaitSettled(s.Set("a"))
}

// section is requests of a client with the token, by what they are about.
type section struct {
	What     string
	Requests []struct {
		Verbs, Paths, Users []string
		Bodies, Owners      []json.RawMessage
		Want                string
	}
}

// attempts returns an attempt for each verb, path, user, body and list of owners of a section.
func (s *section) attempts() (all []attempt) {
	for _, r := range s.Requests {
		users, bodies, owners := orNone(r.Users), orNone(r.Bodies), orNone(r.Owners)
		for _, verb := range r.Verbs {
			for _, path := range r.Paths {
				for _, user := range users {
					for _, body := range bodies {
						for _, owner := range owners {
							owned := strings.ReplaceAll(strings.Trim(string(body), `"`), `"OWNERS"`, string(owner))
							all = append(all, attempt{verb: verb, path: path, as: user, want: r.Want, body: owned})
						}
					}
				}
			}
		}
	}
	return all
}

// orNone returns all, or one empty element.
func orNone[T any](all []T) []T {
	if len(all) == 0 {
		return make([]T, 1)
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

// granted are the writes that the roles grant, or Kubernetes grants every user. Each has bounds in the drill above, or concerns nothing of
// others: "what cannot be told from the operator" names them.
var granted = map[string]string{
	"namespaces": "patch", "persistentvolumes": "patch", "persistentvolumeclaims": "patch delete", "persistentvolumeclaims/status": "patch",
	"pods": "patch delete", "pods/status": "patch", "services": "create patch delete",
	"statefulsets.apps": "create patch delete", "controllerrevisions.apps": "create patch delete", "deployments.apps": "create patch",
	"leaderworkersets.leaderworkerset.x-k8s.io": "create patch delete", "leaderworkersets.leaderworkerset.x-k8s.io/status": "patch",
	"disaggregatedsetrolescalers.disaggregatedset.x-k8s.io": "create delete", "disaggregatedsetrolescalers.disaggregatedset.x-k8s.io/status": "patch",
	"disaggregatedsets.disaggregatedset.x-k8s.io/status": "patch", "events.events.k8s.io": "create patch",
	"tokenreviews.authentication.k8s.io": "create", "subjectaccessreviews.authorization.k8s.io": "create",
	"selfsubjectreviews.authentication.k8s.io": "create", "selfsubjectaccessreviews.authorization.k8s.io": "create", "selfsubjectrulesreviews.authorization.k8s.io": "create",
	"poddisruptionbudgets.policy": "create patch delete",
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
		expect.Equalf(t, isGranted, f.try(a) != refusedByRoles, "%s %s is granted", verb, title)
	}
}

// TestSetsHaveNoPodsInNamespacesOfTheCluster creates sets where a forged pod would be most dangerous, and where an administrator binds the
// policy too. Each set says why it has no pods.
func TestSetsHaveNoPodsInNamespacesOfTheCluster(t *testing.T) {
	s := newScene(t)
	s.MayWrite("kube-system")
	s.MayWrite(s.Namespace)
	s.lendManifest("binding")
	f := newThief(s)
	owner, sts := s.newSet("a", 1, 2, imageA), foreignStatefulSet("a-7")
	owner.UID = "u"
	sts.Labels, sts.OwnerReferences = leaderLabels, ownerOf(owner, lwsv1.GroupVersion.String(), "LeaderWorkerSet")
	body, err := json.Marshal(sts)
	s.Check("encode a StatefulSet", err)
	s.Eventually("the binding is enforced", func() error {
		return drill.Lacking("answer", refusedByPolicy, f.try(attempt{
			want: admitted, verb: "create", path: "/apis/apps/v1/namespaces/" + s.Namespace + "/statefulsets", body: string(body)}))
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
		expect.Emptyf(t, pods.Items, "pods of the set")
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
		expect.Equalf(t, want, answer.Code, "a client with a token of %d characters", len(token))
	}
}
