package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/webhook/certs"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

func (c *cluster) secret(name string) *corev1.Secret {
	c.t.Helper()
	secret := &corev1.Secret{}
	c.read(secret, systemName, name)
	return secret
}

// authority writes an authority into a directory, with other files in place of some.
func authority(t *testing.T, others map[string][]byte) (dir string, data map[string][]byte) {
	t.Helper()
	data = expect.Value(certs.MakeAuthority(time.Now()))(t)
	maps.Copy(data, others)
	dir = t.TempDir()
	for name, text := range data {
		expect.OK(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return dir, data
}

// An authority that a user gives is checked before the first write, used, and kept by a later install. One that
// cannot be used is replaced.
func TestInstallTakesAGivenAuthority(t *testing.T) {
	c := newCluster(t)
	_, other := authority(t, nil)
	leaf, key, err := cert.GenerateSelfSignedCertKey("h", nil, nil)
	expect.OK(t, err)
	for name, tt := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"unreadable":         {map[string][]byte{certs.AuthorityCert: []byte("x")}, "ca.crt"},
		"the key of another": {map[string][]byte{certs.AuthorityKey: other[certs.AuthorityKey]}, "ca.key does not fit ca.crt"},
		"no authority":       {map[string][]byte{certs.AuthorityCert: leafOnly(leaf), certs.AuthorityKey: key}, "no authority"},
	} {
		dir, _ := authority(t, tt.files)
		c.refused(install.Install, func(o *install.Options) { o.WebhookCA = dir }, "--webhook-ca", tt.want)
		c.absent(&corev1.Namespace{}, systemName)
		expect.Must(t, !t.Failed(), "%v", name)
	}
	c.refused(install.Install, func(o *install.Options) { o.WebhookCA = t.TempDir() }, "--webhook-ca", "ca.crt")

	dir, data := authority(t, nil)
	c.install(func(o *install.Options) { o.WebhookCA = dir })
	c.wantAuthority(data)
	c.installAgain(nil)
	c.wantAuthority(data)

	c.part("a Secret of a user is kept as it is", func() {
		c.must(c.Delete(t.Context(), c.secret(certs.AuthoritySecret)))
		theirs := &corev1.Secret{Data: other}
		theirs.Namespace, theirs.Name = systemName, certs.AuthoritySecret
		c.create(theirs)
		c.install(nil)
		c.wantAuthority(other)
		expect.Equalf(t, theirs.ResourceVersion, c.secret(certs.AuthoritySecret).ResourceVersion, "install wrote it")
	})
	c.part("an unreadable one is replaced", func() {
		broken := c.secret(certs.AuthoritySecret)
		broken.Data = map[string][]byte{certs.AuthorityCert: []byte("x")}
		c.must(c.Update(t.Context(), broken))
		c.install(nil)
		now := c.secret(certs.AuthoritySecret).Data
		if _, err := certs.ReadAuthority(now, time.Now()); err != nil {
			t.Error(err)
		}
		c.wantAuthority(now)
	})
	c.uninstall(nil)
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: systemName, Name: certs.AuthoritySecret}, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("after uninstall the authority is there: %v", err)
	}
}

// leafOnly returns the first certificate of a file, which signs no other.
func leafOnly(file []byte) []byte {
	return append(bytes.SplitAfter(file, []byte("-----END CERTIFICATE-----"))[0], '\n')
}

// wantAuthority checks the Secret, and that every webhook trusts its authority first.
func (c *cluster) wantAuthority(data map[string][]byte) {
	c.t.Helper()
	expect.That(c.t, maps.EqualFunc(c.secret(certs.AuthoritySecret).Data, data, bytes.Equal),
		"the Secret has another authority")
	for i, bundle := range c.bundles() {
		expect.That(c.t, bytes.HasPrefix(bundle, data[certs.AuthorityCert]), "webhook %d trusts %s", i, bundle)
	}
}

func (c *cluster) bundles() (all [][]byte) {
	c.t.Helper()
	for _, hook := range c.mutating().Webhooks {
		all = append(all, hook.ClientConfig.CABundle)
	}
	return append(all, c.validating().Webhooks[0].ClientConfig.CABundle)
}

// watchWrites creates and changes sets, and dials each replica with what the webhooks trust.
func (c *cluster) watchWrites(replicas ...*replica) *drill.Writes {
	c.t.Helper()
	set := newSet("default", "watched")
	c.create(set)
	var dials []func(context.Context) error
	for _, r := range replicas {
		dials = append(dials, func(ctx context.Context) error { return c.dial(ctx, r) })
	}
	return drill.NewWrites(c.t.Context(), c, set, dials...)
}

// dial connects to a replica as an API server does, with what the first webhook trusts now.
func (c *cluster) dial(ctx context.Context, r *replica) error {
	roots := x509.NewCertPool()
	hooks := c.mutating()
	roots.AppendCertsFromPEM(hooks.Webhooks[0].ClientConfig.CABundle)
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(r.webhookURL(), "https://"))
	if err != nil {
		return err
	}
	return conn.Close()
}

// presented returns the certificate that a replica presents.
func (c *cluster) presented(r *replica) *x509.Certificate {
	c.t.Helper()
	address := strings.TrimPrefix(r.webhookURL(), "https://")
	conn := expect.Value(tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}))(c.t)
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0]
}

// TestARotationRefusesNoWrite deletes the authority and installs again: both replicas present a certificate of the
// new one, and the API server accepts each connection meanwhile. In the end nothing trusts the old authority.
func TestARotationRefusesNoWrite(t *testing.T) {
	c := newCluster(t)
	first, second := c.replica(nil), c.replica(nil)
	c.install(first.called)
	first.start().untilReady()
	second.start().untilReady()
	old, presented := c.secret(certs.AuthoritySecret), c.presented(second)
	writes := c.watchWrites(first, second)

	c.must(c.Delete(t.Context(), old))
	c.install(first.called)
	next := c.secret(certs.AuthoritySecret).Data
	expect.Must(t, !bytes.Equal(next[certs.AuthorityCert], old.Data[certs.AuthorityCert]),
		"install made no other authority")
	for i, bundle := range c.bundles() { // a replica may be slow
		err := certs.Verify(bundle, presented, "127.0.0.1", time.Now())
		expect.That(t, err == nil, "webhook %d refuses a replica that has not seen the rotation: %v", i, err)
	}
	signer := expect.Value(certs.ReadAuthority(next, time.Now()))(t)
	for _, r := range []*replica{first, second} {
		c.until("the replica presents a certificate of the new authority", func() bool {
			return c.presented(r).CheckSignatureFrom(signer.Leaf) == nil
		})
	}
	c.install(func(o *install.Options) { first.called(o); o.DropOlder = true })
	if slices.ContainsFunc(c.bundles(), func(b []byte) bool { return !bytes.Equal(b, next[certs.AuthorityCert]) }) {
		t.Error("a webhook still trusts the old authority")
	}
	made := writes.Rounds()
	c.until("writes follow the end of the rotation", func() bool { return writes.Rounds() > made+10 })
	writes.End(t)
}

// Beside a certificate of another program, a replica is ready without an authority, and its metrics name a webhook that no
// installer wrote.
func TestForeignWebhooksBesideAGivenCertificate(t *testing.T) {
	c, dir := newCluster(t), t.TempDir()
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	expect.OK(t, err)
	expect.OK(t, os.WriteFile(filepath.Join(dir, corev1.TLSCertKey), crt, 0o600))
	expect.OK(t, os.WriteFile(filepath.Join(dir, corev1.TLSPrivateKeyKey), key, 0o600))
	r := c.replica(func(o *operator.Options) { o.CertDir = dir })
	c.install(func(o *install.Options) {
		o.WebhookURL = r.webhookURL()
		o.Config = []byte("apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\ninternalCertManagement: {enable: false}\n")
	})
	m, v := c.mutating(), c.validating()
	for i := range m.Webhooks {
		m.Webhooks[i].ClientConfig.CABundle = crt
	}
	for i := range v.Webhooks {
		v.Webhooks[i].ClientConfig.CABundle = crt
	}
	theirs := *m.Webhooks[0].DeepCopy()
	theirs.Name, theirs.FailurePolicy, theirs.Rules = "beside.example.com", new(admissionv1.Ignore), nil
	m.Webhooks = append(m.Webhooks, theirs)
	c.must(c.Update(t.Context(), m))
	c.must(c.Update(t.Context(), v))
	r.start().untilReady()
	_, text := get(r.options.Config.Metrics.BindAddress + "/metrics")
	if want := `lockstep_foreign_webhooks{configuration="lws-mutating-webhook-configuration",webhook="beside.example.com"} 1`; strings.Count(text, "\nlockstep_foreign_webhooks{") != 1 || !strings.Contains(text, want) {
		t.Errorf("the metrics lack %s alone", want)
	}
}
