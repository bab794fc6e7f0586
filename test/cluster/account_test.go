package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/scrape"
	"lockstep.dev/lockstep/internal/version"
	"lockstep.dev/lockstep/internal/webhook/certs"
	"lockstep.dev/lockstep/test/drill"
)

// TestLeaderElection runs the operator with leader election: its account may write the lease, which
// names the version.
func TestLeaderElection(t *testing.T) {
	s := newScene(t)
	s.Check("stop the operator", bed.Operator.Kill())
	t.Cleanup(func() { must(t, errors.Join(bed.Operator.Kill(), bed.Operator.Start())) })
	s.Check("start the operator", bed.Operator.Start("--leader-elect"))
	lease := &coordinationv1.Lease{}
	s.Eventually("the operator leads and renews its lease", func() error {
		if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: "lws-system", Name: "b8b2488c.x-k8s.io"}, lease); err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || !lease.Spec.RenewTime.After(lease.Spec.AcquireTime.Time) {
			return drill.ErrStill
		}
		return nil
	})
	if lease.Labels["app.kubernetes.io/version"] == "" {
		t.Errorf("the lease has the labels %v", lease.Labels)
	}
	s.settled(s.newSet("a", 1, 2, imageA))
}

// TestUsersLearnThatNoOperatorRuns kills the leader: who may only view sets reads so beside conditions that are old.
func TestUsersLearnThatNoOperatorRuns(t *testing.T) {
	s := newScene(t)
	s.Check("stop the operator", bed.Operator.Kill())
	t.Cleanup(func() { must(t, bed.Operator.Start()) })
	s.Check("start the operator", bed.Operator.Start("--leader-elect"))
	s.settled(s.newSet("a", 1, 2, imageA))
	s.Create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lws-leaderworkerset-viewer-role"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "viewer"}},
	})
	for _, command := range []string{"status", "plan"} {
		s.Eventually(command+" answers the viewer", func() error {
			_, errOut, err := s.Plugin("", command, "a", "--as", "viewer", "--as-group", "system:authenticated")
			return drill.Lacking("errors", "<nil>", fmt.Sprint(errOut, err))
		})
		if why := s.ask("", command, "a", "--as", "viewer", "--as-group", "system:authenticated").Unattended.Reason; why != "" {
			t.Errorf("%s beside an operator: got %s", command, why)
		}
	}
	s.Check("kill the operator", bed.Operator.Kill())
	for _, command := range []string{"status", "plan"} {
		s.Eventually(command+" says that no operator runs", func() error { // once the lease has expired
			why := s.ask("", command, "a", "--as", "viewer", "--as-group", "system:authenticated").Unattended.Reason
			return drill.Lacking("reason", clilws.CodeNoOperator, why)
		})
	}
	out, _, err := s.Plugin("", "rollout", "status", "a", "--as", "viewer", "--as-group", "system:authenticated")
	if err != nil || !strings.Contains(out, "b8b2488c.x-k8s.io") {
		t.Errorf("rollout status: got %q, %v", out, err)
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

// TestTheOperatorWritesNoWebhookAndNoSecret tries with the operator's account what a stolen token would: a webhook that
// reads all Secrets, a token of another account, another authority. Roles refuse each.
func TestTheOperatorWritesNoWebhookAndNoSecret(t *testing.T) {
	s := asideScene(t)
	config := drill.AsAccount(bed.Rest)
	config.UserAgent = "stolen"
	stolen, err := client.New(config, client.Options{Scheme: s.Client.Scheme()})
	s.Check("make a client", err)
	mutating, validating := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	s.Check("read the configuration", stolen.Get(t.Context(), client.ObjectKey{Name: "lws-mutating-webhook-configuration"}, mutating))
	s.Check("read the configuration", stolen.Get(t.Context(), client.ObjectKey{Name: "lws-validating-webhook-configuration"}, validating))
	theirs := *mutating.Webhooks[0].DeepCopy()
	theirs.Name, theirs.Rules[0].APIGroups, theirs.Rules[0].Resources = "theirs.example.com", []string{""}, []string{"secrets"}
	mutating.Webhooks = append(mutating.Webhooks, theirs)
	other := mutating.DeepCopy()
	other.Name, other.ResourceVersion = "theirs", ""
	in := func(namespace, name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	token := in("kube-system", "token")
	token.Type, token.Annotations = corev1.SecretTypeServiceAccountToken, map[string]string{corev1.ServiceAccountNameKey: "default"}
	own := token.DeepCopy()
	own.Namespace = "lws-system"
	s.Check("read the authority", stolen.Get(t.Context(), client.ObjectKey{Namespace: "lws-system", Name: certs.AuthoritySecret}, in("", "")))
	for name, try := range map[string]error{
		"update the mutating configuration":   stolen.Update(t.Context(), mutating),
		"patch the mutating configuration":    stolen.Patch(t.Context(), mutating, drill.Merge(`{"webhooks":[]}`)),
		"patch the validating configuration":  stolen.Patch(t.Context(), validating, drill.Merge(`{"webhooks":[]}`)),
		"update the validating configuration": stolen.Update(t.Context(), validating),
		"delete the validating configuration": stolen.Delete(t.Context(), validating),
		"create a configuration":              stolen.Create(t.Context(), other),
		"create a token in its namespace":     stolen.Create(t.Context(), own),
		"create a token elsewhere":            stolen.Create(t.Context(), token),
		"patch the authority":                 stolen.Patch(t.Context(), in("lws-system", certs.AuthoritySecret), drill.Merge(`{"data":null}`)),
		"patch the former certificate":        stolen.Patch(t.Context(), in("lws-system", "lws-webhook-server-cert"), drill.Merge(`{"data":null}`)),
		"list Secrets":                        stolen.List(t.Context(), &corev1.SecretList{}, client.InNamespace("lws-system")),
		"read another Secret":                 stolen.Get(t.Context(), client.ObjectKey{Namespace: "lws-system", Name: "other"}, in("", "")),
	} {
		if !apierrors.IsForbidden(try) {
			t.Errorf("%s: want a 403, got %v", name, try)
		}
	}
}
