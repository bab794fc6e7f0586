package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const daylong = 24 * time.Hour

var (
	epoch     = time.Now() // authorities go by the time of the machine
	testHosts = ServiceHosts("lws-webhook-service", "lws-system", "10.0.0.7")
	secretKey = client.ObjectKey{Namespace: "lws-system", Name: "cert"}
)

// stage is a cluster with the two webhook configurations, and a clock.
type stage struct {
	t       *testing.T
	client  client.Client
	clock   *clocktesting.FakePassiveClock
	patches int
	refuses bool // patches
	// winner is the data of a Secret that another replica creates first.
	winner map[string][]byte
}

func newStage(t *testing.T) *stage {
	t.Helper()
	m := &admissionv1.MutatingWebhookConfiguration{Webhooks: []admissionv1.MutatingWebhook{{Name: "a"}, {Name: "b"}}}
	v := &admissionv1.ValidatingWebhookConfiguration{Webhooks: []admissionv1.ValidatingWebhook{{Name: "c"}}}
	m.Name, v.Name = "m", "v"
	service := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "lws-system", Name: "lws-webhook-service"}, CABundle: []byte("\n")}
	m.Webhooks[0].ClientConfig, m.Webhooks[1].ClientConfig = service, service
	v.Webhooks[0].ClientConfig.URL = new("https://10.0.0.7:9443/v")
	s := &stage{t: t, clock: clocktesting.NewFakePassiveClock(epoch)}
	s.client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(m, v).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if s.patches++; s.refuses {
				return errors.New("refused")
			}
			return c.Patch(ctx, o, p, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if s.winner != nil {
				other := o.DeepCopyObject().(*corev1.Secret)
				other.Data, s.winner = s.winner, nil
				if err := c.Create(ctx, other); err != nil {
					return err
				}
			}
			return c.Create(ctx, o, opts...)
		},
	}).Build()
	return s
}

func (s *stage) keeper(hosts ...string) *Keeper {
	return NewKeeper(Options{
		Secret: secretKey, Hosts: append(hosts, testHosts...), Client: s.client, Clock: s.clock, Log: logr.Discard(),
		MutatingConfiguration: "m", ValidatingConfiguration: "v",
	})
}

// keep makes a pass. Afterwards each caller must accept what the keeper presents.
func (s *stage) keep(k *Keeper) time.Duration {
	s.t.Helper()
	next, err := k.keep(s.t.Context())
	if lostRace(err) {
		next, err = k.keep(s.t.Context())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.mustAccept(k)
	return next
}

func (s *stage) mustAccept(k *Keeper) {
	s.t.Helper()
	for i, bundle := range s.bundles() {
		if !trusts(bundle, s.presented(k), "", s.clock.Now()) {
			s.t.Fatalf("at %s caller %d refuses the server", s.clock.Now().Sub(epoch), i)
		}
	}
}

func (s *stage) bundles() (all [][]byte) {
	s.t.Helper()
	for _, c := range (Options{MutatingConfiguration: "m", ValidatingConfiguration: "v"}).configurations() {
		if err := s.client.Get(s.t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			s.t.Fatal(err)
		}
		for _, to := range clientConfigs(c) {
			all = append(all, to.CABundle)
		}
	}
	return all
}

func (s *stage) presented(k *Keeper) *tls.Certificate {
	s.t.Helper()
	c, err := k.GetCertificate(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func issued(t *testing.T, hosts []string) map[string][]byte {
	t.Helper()
	data, err := issue(epoch, hosts)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestTheFirstPassMakesAllAgreeAndTheNextWritesNothing(t *testing.T) {
	s := newStage(t)
	a, b := s.keeper(), s.keeper()
	if _, err := a.GetCertificate(nil); err == nil {
		t.Error("a certificate is presented before the first pass")
	}
	if next := s.keep(a); next != recheck {
		t.Errorf("next pass in %s", next)
	}
	s.keep(a)
	s.keep(b)
	if s.patches != 2 || !s.presented(a).Leaf.Equal(s.presented(b).Leaf) {
		t.Errorf("%d configurations written", s.patches)
	}
}

func TestTheLoserOfTheCreationTakesTheWinnersCertificate(t *testing.T) {
	s := newStage(t)
	winner := issued(t, testHosts)
	s.winner = winner
	k := s.keeper()
	s.keep(k)
	if !s.presented(k).Leaf.Equal(offerOf(winner).serving.Leaf) {
		t.Error("the loser presents a certificate of its own")
	}
}

// A new authority is trusted before its certificate is presented, and the old one stays
// for replicas that present the old certificate.
func TestANewAuthorityLeavesNoGap(t *testing.T) {
	for _, late := range []bool{false, true} { // bundles are patched at once, or a minute after the certificate
		renewedWithoutGap(t, late)
	}
}

func renewedWithoutGap(t *testing.T, late bool) {
	s := newStage(t)
	a, b := s.keeper(), s.keeper()
	s.keep(a)
	s.keep(b)
	old := s.presented(a)
	s.clock.SetTime(epoch.Add(servingTerm - renewBefore + daylong))
	if s.refuses = late; late {
		if _, err := a.keep(t.Context()); err == nil {
			t.Fatal("the patch is not refused")
		}
		s.refuses = false
		s.clock.SetTime(s.clock.Now().Add(time.Minute))
	}
	if next := s.keep(a); next != settle || !s.presented(a).Leaf.Equal(old.Leaf) {
		t.Fatalf("presented at once, next pass in %s", next)
	}
	s.clock.SetTime(s.clock.Now().Add(time.Second)) // the event of the patch
	if next := s.keep(a); next > settle || !s.presented(a).Leaf.Equal(old.Leaf) {
		t.Fatalf("presented after its own patch, next pass in %s", next)
	}
	s.clock.SetTime(s.clock.Now().Add(settle - 3*time.Second))
	if next := s.keep(a); next > 2*time.Second || !s.presented(a).Leaf.Equal(old.Leaf) {
		t.Fatalf("presented too early, next pass in %s", next)
	}
	s.clock.SetTime(s.clock.Now().Add(2 * time.Second))
	s.keep(a)
	s.mustAccept(b)
	if s.presented(a).Leaf.Equal(old.Leaf) {
		t.Error("the old certificate is still presented")
	}
	for _, bundle := range s.bundles() {
		if count := bytes.Count(bundle, []byte("BEGIN")); count != 2 {
			t.Errorf("a bundle has %d authorities", count)
		}
	}
}

func TestABundleKeepsOlderAuthorities(t *testing.T) {
	authority := func() []byte { return issued(t, nil)[keyAuthority] }
	ours, old, older, oldest := authority(), authority(), authority(), authority()
	for name, tt := range map[string]struct {
		now          time.Time
		before, want []byte
	}{
		"none":          {epoch, nil, ours},
		"a placeholder": {epoch, []byte("\n"), ours},
		"two":           {epoch, slices.Concat(old, older), slices.Concat(ours, old, older)},
		"bounded":       {epoch, slices.Concat(old, older, oldest), slices.Concat(ours, old, older)},
		"expired":       {epoch.Add(servingTerm + daylong), old, ours},
	} {
		if got := withOlder(tt.now, ours, tt.before); !bytes.Equal(got, tt.want) {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestReadiness(t *testing.T) {
	s := newStage(t)
	k := s.keeper()
	mustSay := func(want string) {
		t.Helper()
		if err := k.Trusted(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	mustSay("not been read")
	s.keep(k)
	if err := k.Trusted(); err != nil {
		t.Error(err)
	}
	v := &admissionv1.ValidatingWebhookConfiguration{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Name: "v"}, v); err != nil {
		t.Fatal(err)
	}
	v.Webhooks[0].ClientConfig.URL = new("https://elsewhere.example.com")
	if err := s.client.Update(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	s.keep(k)
	mustSay("elsewhere.example.com")
	if err := s.client.Delete(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if _, err := k.keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustSay("lockstep install")
}

func TestWhatIsFitIsKept(t *testing.T) {
	data, other := issued(t, testHosts), issued(t, testHosts)
	changed := func(key string, value []byte) map[string][]byte {
		c := maps.Clone(data)
		c[key] = value
		return c
	}
	for name, tt := range map[string]struct {
		now   time.Time
		data  map[string][]byte
		hosts []string
		kept  bool
	}{
		"fit":                     {epoch, data, testHosts, true},
		"fewer hosts":             {epoch, data, testHosts[:1], true},
		"another's key is there":  {epoch, changed(keyAuthorityKey, []byte("x")), testHosts, true},
		"before the renewal":      {epoch.Add(servingTerm - renewBefore - daylong), data, testHosts, true},
		"empty":                   {epoch, nil, testHosts, false},
		"no certificate":          {epoch, changed(keyServingCert, nil), testHosts, false},
		"unreadable certificate":  {epoch, changed(keyServingCert, []byte("x")), testHosts, false},
		"no authority":            {epoch, changed(keyAuthority, nil), testHosts, false},
		"signed by another":       {epoch, changed(keyAuthority, other[keyAuthority]), testHosts, false},
		"the key of another":      {epoch, changed(keyServingKey, other[keyServingKey]), testHosts, false},
		"a further host":          {epoch, data, []string{"example.com"}, false},
		"the certificate expires": {epoch.Add(servingTerm - renewBefore + daylong), data, testHosts, false},
		"made in the future":      {epoch.Add(-daylong), data, testHosts, false},
	} {
		if why := offerOf(tt.data).unfit(tt.now, tt.hosts); (why == "") != tt.kept {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// Replicas with different hosts share one certificate.
func TestHostsAreAdded(t *testing.T) {
	s := newStage(t)
	s.keep(s.keeper())
	k := s.keeper("second.example.com", "10.0.0.8")
	s.keep(k)
	k.options.Hosts = []string{"third.example.com", "10.0.0.9"}
	s.keep(k)
	s.keep(k)
	s.clock.SetTime(epoch.Add(settle))
	s.keep(k)
	for _, host := range slices.Concat(testHosts, []string{"second.example.com", "10.0.0.8", "third.example.com", "10.0.0.9"}) {
		if err := s.presented(k).Leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	secret := &corev1.Secret{}
	if err := s.client.Get(t.Context(), secretKey, secret); err != nil || len(secret.Data) != 3 {
		t.Errorf("%d keys, %v", len(secret.Data), err)
	}
	if err := offerOf(issued(t, []string{"0.0.0.0", ""})).serving.Leaf.VerifyHostname("0.0.0.0"); err == nil {
		t.Error("the unspecified address names no host")
	}
}
