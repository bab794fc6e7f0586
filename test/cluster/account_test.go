package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/scrape"
	"lockstep.dev/lockstep/internal/version"
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

// TestWebhookCertificateIsMadeAnew breaks the certificate in the Secret: the operator makes another,
// and no set is refused.
func TestWebhookCertificateIsMadeAnew(t *testing.T) {
	s := newScene(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "lws-system", Name: "lws-webhook-server-cert"}}
	s.Check("read the certificate", s.Read(secret))
	before := secret.Data[corev1.TLSCertKey]
	secret.Data[corev1.TLSCertKey] = []byte("broken")
	s.Check("break the certificate", s.Client.Update(t.Context(), secret))
	s.Eventually("there is another certificate", func() error {
		err := s.Read(secret)
		if now := secret.Data[corev1.TLSCertKey]; err == nil && (bytes.Equal(now, before) || string(now) == "broken") {
			return drill.ErrStill
		}
		return err
	})
	s.settled(s.newSet("a", 1, 2, imageA))
}
