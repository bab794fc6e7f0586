//go:build drills

package helm

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/webhook/certs"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

const release = "lockstep"

// A release is installed, upgraded from the chart of an earlier commit, fails to upgrade, is rolled
// back, and is uninstalled. Sets, pods and PVCs stay throughout.
func TestLifecycle(t *testing.T) {
	for name, h := range tools() {
		t.Run(name, func(t *testing.T) { lifecycle(t, h) })
	}
}

func lifecycle(t *testing.T, h tool) {
	t.Cleanup(func() { clear(t, h, release) })
	wait := options{wait: patience}
	must(t, "install", h.install(release, namespace, from(t), merged(nil), wait))
	must(t, "await the roles", bed.Operator.AwaitRoles())
	s := upgradeFromFormer(t, h)
	s.wantAll("upgrade")
	s.wantServed("upgraded")
	authority := authorityOf(t)

	unschedulable := merged(map[string]any{"nodeSelector": map[string]any{"no": "such-node"}, "replicas": 3})
	expect.That(t, h.upgrade(release, namespace, chartDir, unschedulable, options{wait: 10 * time.Second}) != nil,
		"an upgrade whose operator cannot run is reported as well")
	s.wantAll("failed upgrade")
	must(t, "rollback", h.rollback(release, namespace, 2))
	s.wantAll("rollback")
	s.wantServed("rolled-back")

	newerDefinition(t, h, s)
	expect.That(t, bytes.Equal(authorityOf(t), authority), "an upgrade made another authority")
	rotated(t, h, s)
	ownAuthority(t, h, s)

	authority = authorityOf(t)
	must(t, "uninstall", h.uninstall(release, namespace))
	expect.Must(t, crd(t, setsName) != nil, "uninstall deleted the definition")
	expect.That(t, bytes.Equal(authorityOf(t), authority), "uninstall deleted the authority")
	s.wantAll("uninstall")
	for kind, name := range map[string]string{
		"MutatingWebhookConfiguration": "lws-mutating-webhook-configuration", "ValidatingAdmissionPolicy": "lockstep-labels",
	} {
		expect.That(t, get(t, "admissionregistration.k8s.io/v1", kind, "", name) == nil, "uninstall left %s %s", kind, name)
	}

	must(t, "install again", h.install(release, namespace, chartDir, merged(nil), wait))
	must(t, "await the roles", bed.Operator.AwaitRoles())
	s.RestartOperator()
	s.Eventually("the groups are ready", s.unready)
	s.wantAll("second install")
	s.wantServed("installed-again")
	freed(t, h, s)
}

// upgradeFromFormer upgrades the former chart, while a client writes ten times a second. Replicas of both versions stand
// behind one address, as behind a Service. In the end there is one of the present version.
func upgradeFromFormer(t *testing.T, h tool) *scene {
	present := bed.Operator.Program
	t.Cleanup(func() { bed.Operator.Program = present })
	ports, err := drill.FreePorts(3)
	must(t, "find ports", err)
	front, err := drill.NewFront(bed.Operator.Webhooks, ports[0])
	must(t, "stand in for the Service", err)
	t.Cleanup(func() { _ = front.Close() })
	bed.Operator.Program = former()
	s := newScene(t, "--leader-elect", "--webhook-port", strconv.Itoa(ports[0]))
	writes := drill.NewWrites(t.Context(), bed.Client, s.Set("plain"))

	values, o := merged(map[string]any{"replicas": 3}), options{wait: patience}
	if err := h.upgrade(release, namespace, chartDir, values, o); err != nil {
		expect.Must(t, h.is4 && strings.Contains(err.Error(), "caBundle"), "%v", err)
		o.forces = true // the former operator owns the bundles
		must(t, "upgrade", h.upgrade(release, namespace, chartDir, values, o))
	}
	next := &drill.Operator{Program: present, Kubeconfig: bed.Operator.Kubeconfig, Reaper: bed.Reaper, Log: bed.Operator.Log + ".next", Webhooks: ports[1], Probes: ports[2]}
	must(t, "start a replica", next.Start("--leader-elect"))
	front.To(ports[0], ports[1])
	s.awaitSigned(ports[1])
	front.To(ports[1])
	must(t, "end the former replica", bed.Operator.End())
	made := writes.Rounds()
	s.Until("writes follow the upgrade", func() bool { return writes.Rounds() > made+10 })
	writes.End(t)

	must(t, "free the address", front.Close())
	must(t, "end the replica", next.End())
	bed.Operator.Program = present
	must(t, "start the operator", bed.Operator.Start())
	return s
}

// rotated deletes the authority and upgrades, while a client writes.
func rotated(t *testing.T, h tool, s *scene) {
	before := authorityOf(t)
	writes := drill.NewWrites(t.Context(), bed.Client, s.Set("plain"))
	must(t, "delete the authority", bed.Client.Delete(t.Context(), authoritySecret()))
	must(t, "upgrade", h.upgrade(release, namespace, chartDir, merged(nil), options{wait: patience}))
	expect.Must(t, !bytes.Equal(authorityOf(t), before), "the authority is the same")
	s.awaitSigned(bed.Operator.Webhooks)
	must(t, "end the rotation", h.upgrade(release, namespace, chartDir, merged(map[string]any{"certificates": map[string]any{"dropOlder": true}}), options{wait: patience}))
	hooks, _, _ := unstructured.NestedSlice(get(t, "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "", "lws-mutating-webhook-configuration").Object, "webhooks")
	bundle, _, _ := unstructured.NestedString(hooks[0].(map[string]any), "clientConfig", "caBundle")
	expect.Equalf(t, base64.StdEncoding.EncodeToString(authorityOf(t)), bundle, "what the webhooks trust")
	made := writes.Rounds()
	s.Until("writes follow the rotation", func() bool { return writes.Rounds() > made+10 })
	writes.End(t)
}

// ownAuthority replaces the authority by one of the user, and upgrades. Helm does not delete it.
func ownAuthority(t *testing.T, h tool, s *scene) {
	must(t, "delete the authority", bed.Client.Delete(t.Context(), authoritySecret()))
	secret, err := authoritySecret(), error(nil)
	secret.Data, err = certs.MakeAuthority(time.Now())
	must(t, "make an authority", err)
	must(t, "create the authority", bed.Client.Create(t.Context(), secret))
	given := merged(map[string]any{"certificates": map[string]any{"caBundle": string(secret.Data[certs.AuthorityCert])}})
	err = h.upgrade(release, namespace, chartDir, given, options{wait: patience})
	expect.Must(t, err != nil && strings.Contains(err.Error(), "helm.sh/resource-policy=keep"),
		"an upgrade that deletes the authority: %v", err)
	keep := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"helm.sh/resource-policy":"keep"}}}`))
	must(t, "keep the authority", bed.Client.Patch(t.Context(), authoritySecret(), keep))
	must(t, "upgrade", h.upgrade(release, namespace, chartDir, given, options{wait: patience}))
	expect.Must(t, bytes.Equal(authorityOf(t), secret.Data[certs.AuthorityCert]), "the upgrade changed the authority")
	s.awaitSigned(bed.Operator.Webhooks)
}

func authoritySecret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: certs.AuthoritySecret}}
}

// authorityOf returns the certificate of the authority.
func authorityOf(t *testing.T) []byte {
	t.Helper()
	secret := authoritySecret()
	must(t, "read the authority", bed.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	return secret.Data[certs.AuthorityCert]
}

// awaitSigned waits until a replica presents a certificate of the authority.
func (s *scene) awaitSigned(port int) {
	s.Helper()
	authority, err := certs.ReadAuthorityCert(authorityOf(s.T), time.Now())
	s.Check("read the authority", err)
	s.Eventually("the replica presents a certificate of the authority", func() error {
		conn, err := tls.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].CheckSignatureFrom(authority)
	})
}

// newerDefinition upgrades over a definition with one field more, and takes the field away again.
func newerDefinition(t *testing.T, h tool, s *scene) {
	editVersion(t, func(version map[string]any) error {
		return unstructured.SetNestedMap(version, map[string]any{"type": "string"}, newField...)
	})
	err := h.upgrade(release, namespace, chartDir, merged(nil), options{})
	expect.ErrorSays(t, err, "spec.placement")
	expect.That(t, hasNewField(t), "the refused upgrade removed the field")
	keep := merged(map[string]any{"crds": map[string]any{"keepFields": true}})
	must(t, "upgrade that keeps fields", h.upgrade(release, namespace, chartDir, keep, options{wait: patience}))
	expect.That(t, hasNewField(t), "the upgrade removed the field that it was to keep")
	s.wantAll("upgrade over a newer definition")
	editVersion(t, func(version map[string]any) error {
		unstructured.RemoveNestedField(version, newField...)
		return nil
	})
}

var newField = []string{"schema", "openAPIV3Schema", "properties", "spec", "properties", "placement"}

func editVersion(t *testing.T, edit func(map[string]any) error) {
	t.Helper()
	live := crd(t, setsName)
	versions, _, _ := unstructured.NestedSlice(live.Object, "spec", "versions")
	must(t, "edit the definition", edit(versions[0].(map[string]any)))
	must(t, "edit the definition", unstructured.SetNestedSlice(live.Object, versions, "spec", "versions"))
	must(t, "write the definition", bed.Client.Update(t.Context(), live))
}

func hasNewField(t *testing.T) bool {
	versions, _, _ := unstructured.NestedSlice(crd(t, setsName).Object, "spec", "versions")
	_, found, _ := unstructured.NestedMap(versions[0].(map[string]any), newField...)
	return found
}

// freed removes the sets and the release, and then the finalizers that protection left on PVCs.
func freed(t *testing.T, h tool, s *scene) {
	for _, name := range []string{"plain", "data"} {
		s.Remove(s.Set(name))
	}
	s.Until("the sets are gone", func() bool { return len(s.Pods()) == 0 && s.Set("plain") == nil && s.Set("data") == nil })
	must(t, "uninstall", h.uninstall(release, namespace))
	must(t, "stop the operator", bed.Operator.Kill())
	must(t, "lockstep uninstall", lockstep("uninstall", "--keep-sets"))
	claims := s.Claims()
	expect.That(t, len(claims) > 0, "no PVC is left to check")
	for name, claim := range claims {
		s.Want("finalizers of "+name, drill.Lacking("barrier", false, strings.Contains(strings.Join(claim.Finalizers, " "), "protection.lockstep.dev")))
	}
}
