package chart

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	certutil "k8s.io/client-go/util/cert"

	"lockstep.dev/lockstep/internal/webhook/certs"
	"lockstep.dev/lockstep/test/expect"
)

func secretOf(data map[string][]byte, release string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: certs.AuthoritySecret}, Data: data}
	if release != "" {
		secret.Annotations = map[string]string{"meta.helm.sh/release-name": release}
	}
	return secret
}

const authorityName = "Secret " + namespace + "/" + certs.AuthoritySecret

// authorityIn returns the data of the Secret that a chart renders, and nil if it renders none.
func authorityIn(t *testing.T, objects map[string]*unstructured.Unstructured) map[string][]byte {
	t.Helper()
	u := objects[authorityName]
	if u == nil {
		return nil
	}
	secret := &corev1.Secret{}
	expect.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, secret))
	return secret.Data
}

// bundleIn returns what the mutating webhooks trust.
func bundleIn(t *testing.T, objects map[string]*unstructured.Unstructured) (bundle string) {
	t.Helper()
	u := objects["MutatingWebhookConfiguration /lws-mutating-webhook-configuration"]
	hooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
	for _, hook := range hooks {
		encoded, _, _ := unstructured.NestedString(hook.(map[string]any), "clientConfig", "caBundle")
		text, err := base64.StdEncoding.DecodeString(encoded)
		expect.Must(t, err == nil && (bundle == "" || string(text) == bundle),
			"webhooks trust different certificates: %v", err)
		bundle = string(text)
	}
	return bundle
}

// trusting is the configuration of mutating webhooks in a cluster.
func trusting(bundle string) *admissionv1.MutatingWebhookConfiguration {
	live := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "lws-mutating-webhook-configuration"}}
	for _, hook := range []string{"mpod.kb.io", "mleaderworkerset.kb.io"} {
		client := admissionv1.WebhookClientConfig{CABundle: []byte(bundle)}
		live.Webhooks = append(live.Webhooks, admissionv1.MutatingWebhook{Name: hook, ClientConfig: client})
	}
	return live
}

const ownCertificates = `{certificates: {source: Operator}}`

// The chart makes an authority for a new release, and the operator can sign with it.
func TestTheChartMakesAnAuthority(t *testing.T) {
	objects := expect.Value(renderOn(t, clusterWith(), namespace, values(t, ownCertificates)))(t)
	data := authorityIn(t, objects)
	made := expect.Value(certs.ReadAuthority(data, time.Now()))(t)
	if soon, late := time.Now().AddDate(8, 0, 0), time.Now().AddDate(9, 1, 0); certs.IsDue(made.Leaf, soon) || !certs.IsDue(made.Leaf, late) {
		t.Errorf("%q ends on %s", made.Leaf.Subject, made.Leaf.NotAfter)
	}
	expect.Equalf(t, string(data[certs.AuthorityCert]), bundleIn(t, objects), "what the webhooks trust")
}

// A Secret of a user has the certificate that webhooks trust.
func TestTheAuthorityOfAUserHasACertificate(t *testing.T) {
	_, err := renderOn(t, clusterWith(secretOf(nil, "")), namespace, values(t, ownCertificates))
	expect.ErrorSays(t, err, "no ca.crt")
}

// An upgrade to an authority of the user does not have Helm delete its Secret. Helm keeps what has the annotation.
func TestTheChartLeavesTheAuthorityToTheUser(t *testing.T) {
	objects := expect.Value(renderOn(t, clusterWith(), namespace, values(t, ownCertificates)))(t)
	policy := objects[authorityName].GetAnnotations()["helm.sh/resource-policy"]
	expect.Equalf(t, "keep", policy, "the policy of the Secret")
	given := values(t, ownCertificates)
	given["certificates"].(map[string]any)["caBundle"] = string(webhookCA[certs.AuthorityCert])
	kept, recreated := secretOf(webhookCA, "lockstep"), secretOf(webhookCA, "")
	kept.Annotations["helm.sh/resource-policy"] = "keep"
	for name, tt := range map[string]struct {
		cluster cluster
		refuses bool
	}{
		"no Secret": {clusterWith(), false}, "kept": {clusterWith(kept), false}, "created again": {clusterWith(recreated), true},
		"of the release before": {clusterWith(secretOf(webhookCA, "lockstep")), true},
	} {
		objects, err := renderAs(t, tt.cluster, upgrade, given)
		if (err != nil) != tt.refuses || err != nil && !strings.Contains(err.Error(), "helm.sh/resource-policy=keep") {
			t.Errorf("%s: %v", name, err)
		}
		expect.That(t, objects[authorityName] == nil, "%s: the release has the Secret", name)
	}
	_, err := renderAs(t, clusterWith(recreated), upgrade, values(t, ownCertificates))
	expect.That(t, err != nil, "without certificates.caBundle, a Secret that was created again is deleted")
}

var upgrade = common.ReleaseOptions{Name: "lockstep", Namespace: namespace, Revision: 2, IsUpgrade: true}

// An upgrade keeps the authority of the release, and renders no Secret that is another's. In the last year of an
// authority of the chart it makes another, as install does, and trusts both.
func TestTheChartRenewsItsAuthority(t *testing.T) {
	ours := expect.Value(certs.MakeAuthority(time.Now()))(t)
	cert, key, err := certutil.GenerateSelfSignedCertKey("theirs", nil, nil)
	expect.OK(t, err)
	theirs := map[string][]byte{certs.AuthorityCert: cert, certs.AuthorityKey: key}
	old, young := time.Now().AddDate(-9, -1, 0), time.Now().AddDate(-8, -11, 0)
	for name, tt := range map[string]struct {
		data          map[string][]byte
		created, made time.Time
		owner         string
		renews        bool
		options       common.ReleaseOptions
	}{
		"old":                   {ours, old, old, "lockstep", true, upgrade},
		"young":                 {ours, young, young, "lockstep", false, upgrade},
		"renewed":               {ours, old, young, "lockstep", false, upgrade},
		"without an annotation": {ours, old, time.Time{}, "lockstep", true, upgrade},
		"of install":            {ours, old, old, "", false, upgrade},
		"of a user":             {theirs, old, old, "lockstep", false, upgrade},
		"installed":             {ours, young, time.Time{}, "lockstep", false, installation},
		"of another release":    {ours, young, time.Time{}, "other", false, installation},
		"given before":          {ours, young, time.Time{}, "", false, installation},
	} {
		secret := secretOf(tt.data, tt.owner)
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, "helm.sh/resource-policy", "keep")
		secret.CreationTimestamp = metav1.NewTime(tt.created)
		if !tt.made.IsZero() {
			secret.Annotations["lockstep.dev/made"] = tt.made.Format(time.DateOnly)
		}
		live := trusting(string(tt.data[certs.AuthorityCert]))
		live.Annotations = map[string]string{"meta.helm.sh/release-name": "lockstep"}
		objects, err := renderAs(t, clusterWith(live, secret), tt.options, values(t, ownCertificates))
		expect.OKf(t, err, "%s", name)
		before, bundle := string(tt.data[certs.AuthorityCert]), bundleIn(t, objects)
		expect.That(t, strings.Contains(bundle, strings.TrimSpace(before)) && (bundle != before) == tt.renews,
			"%s: the webhooks trust %s", name, bundle)
		data := authorityIn(t, objects)
		kept := string(data[certs.AuthorityCert]) == before && string(data[certs.AuthorityKey]) == string(tt.data[certs.AuthorityKey])
		expect.That(t, (data != nil) == (tt.owner == "lockstep") && (data == nil || kept != tt.renews),
			"%s: the Secret has %s", name, data[certs.AuthorityCert])
		if made := objects[authorityName]; data != nil && (made.GetAnnotations()["lockstep.dev/made"] == time.Now().UTC().Format(time.DateOnly)) != tt.renews {
			t.Errorf("%s: made %s", name, made.GetAnnotations())
		}
	}
}

// Helm leaves webhooks that another release, or no release, wrote into a configuration. The chart names the command that
// removes them.
func TestTheChartRefusesForeignWebhooks(t *testing.T) {
	for name, tt := range map[string]struct {
		hooks   []string
		release string
		options common.ReleaseOptions
		refuses bool
	}{
		"of another implementation":      {[]string{"vleaderworkerset.kb.io", "vpod.kb.io"}, "", installation, true},
		"of another release":             {[]string{"vpod.kb.io"}, "other", upgrade, true},
		"of a release that is forgotten": {[]string{"vpod.kb.io"}, "lockstep", installation, true},
		"of the release":                 {[]string{"vleaderworkerset.kb.io", "vpod.kb.io"}, "lockstep", upgrade, false},
		"ours alone":                     {[]string{"vleaderworkerset.kb.io"}, "", installation, false},
	} {
		live := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "lws-validating-webhook-configuration"}}
		for _, hook := range tt.hooks {
			live.Webhooks = append(live.Webhooks, admissionv1.ValidatingWebhook{Name: hook})
		}
		if tt.release != "" {
			live.Annotations = map[string]string{"meta.helm.sh/release-name": tt.release}
		}
		_, err := renderAs(t, clusterWith(live), tt.options, values(t, ownCertificates))
		expect.That(t, (err != nil) == tt.refuses, "%s: %v", name, err)
		want := `--patch '{"webhooks":[{"$patch":"delete","name":"vpod.kb.io"}]}'`
		expect.That(t, err == nil || strings.Contains(err.Error(), want), "%s: %v lacks %s", name, err, want)
	}
}

var installation = common.ReleaseOptions{Name: "lockstep", Namespace: namespace, Revision: 1, IsInstall: true}

// Webhooks trust what they trusted before as well, until the end of a rotation.
func TestTheChartKeepsOlderAuthorities(t *testing.T) {
	var all []string
	for range 4 {
		data := expect.Value(certs.MakeAuthority(time.Now()))(t)
		all = append(all, string(data[certs.AuthorityCert]))
	}
	for name, tt := range map[string]struct {
		values string
		before []string
		want   int
	}{
		"none":        {ownCertificates, []string{"\n"}, 0},
		"one":         {ownCertificates, all[:1], 1},
		"bounded":     {ownCertificates, all, 2},
		"with itself": {ownCertificates, []string{string(webhookCA[certs.AuthorityCert]), all[0]}, 1},
		"given":       {``, all[:1], 1},
		"dropped":     {`{certificates: {dropOlder: true}}`, all, 0},
	} {
		live := clusterWith(trusting(strings.Join(tt.before, "")), secretOf(webhookCA, "lockstep"))
		objects := expect.Value(renderOn(t, live, namespace, values(t, tt.values)))(t)
		bundle := bundleIn(t, objects)
		if !strings.HasPrefix(bundle, string(webhookCA[certs.AuthorityCert])) || strings.Count(bundle, "BEGIN") != 1+tt.want {
			t.Errorf("%s: got %s", name, bundle)
		}
		if kept := slices.DeleteFunc(slices.Clone(all), func(c string) bool { return !strings.Contains(bundle, strings.TrimSpace(c)) }); len(kept) != tt.want {
			t.Errorf("%s: %d are kept", name, len(kept))
		}
	}
}

// Without a cluster the chart would make another authority each time, and refuses.
func TestWithoutAClusterTheChartMakesNoAuthority(t *testing.T) {
	_, err := render(t, namespace, values(t, ownCertificates))
	expect.That(t, err != nil && strings.Contains(err.Error(), "certificates.caBundle"), "got %v", err)
	for _, text := range []string{`{certificates: {source: CertManager}}`, `{certificates: {source: Operator}, protectOnly: true}`} {
		expect.That(t, mustRender(t, text)[authorityName] == nil, "%s renders an authority", text)
	}
}
