package install

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/file"
	"lockstep.dev/lockstep/internal/webhook/certs"
)

// signs reports whether the operator signs the certificate of the webhooks.
func (s shape) signs() bool { return *s.config.InternalCertManagement.Enable && !s.ProtectOnly }

// authorise finds or makes the authority of the webhooks, and returns the Secrets to write for it.
func (s *shape) authorise(ctx context.Context, c *cluster) (write []*unstructured.Unstructured, err error) {
	if !s.signs() {
		return nil, nil
	}
	live, err := s.dataOf(ctx, c, certs.AuthoritySecret)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	data, err := s.chooseAuthority(now, live)
	if err != nil {
		return nil, err
	}
	if data != nil {
		write = append(write, s.secret(certs.AuthoritySecret, data))
	}
	former, err := s.dataOf(ctx, c, v1alpha1.DefaultWebhookSecretName)
	if err != nil || len(former[certs.AuthorityCert]) == 0 || len(former[certs.AuthorityKey]) > 0 {
		return write, err
	}
	// An operator of an earlier version copies this bundle into the configurations.
	former[certs.AuthorityCert] = certs.Bundle(now, s.authority, former[certs.AuthorityCert])
	return append(write, s.secret(v1alpha1.DefaultWebhookSecretName, former)), nil
}

// chooseAuthority takes the authority of a directory, else that of the Secret, else a new one: also where that of the
// Secret cannot be used, or is install's own and ends within a year. It returns what is to be written.
func (s *shape) chooseAuthority(now time.Time, live map[string][]byte) (write map[string][]byte, err error) {
	if s.WebhookCA != "" {
		return s.readAuthority(now)
	}
	if found, err := certs.ReadAuthority(live, now); err == nil && !certs.IsDue(found.Leaf, now) {
		s.authority = certs.Normal(live[certs.AuthorityCert])
		return nil, nil
	}
	if write, err = certs.MakeAuthority(now); err != nil {
		return nil, fmt.Errorf("make a certificate authority: %w", err)
	}
	s.authority = write[certs.AuthorityCert]
	return write, nil
}

// readAuthority reads the authority of a directory. Manifests that are printed have no key, and need none.
func (s *shape) readAuthority(now time.Time) (map[string][]byte, error) {
	data := map[string][]byte{}
	for _, name := range []string{certs.AuthorityCert, certs.AuthorityKey} {
		text, err := file.Read(filepath.Join(s.WebhookCA, name), 1) // MiB, as a Secret holds
		if isKeyless := s.Print && name == certs.AuthorityKey && errors.Is(err, os.ErrNotExist); err != nil && !isKeyless {
			return nil, fmt.Errorf("--webhook-ca: %w", err)
		}
		data[name] = text
	}
	_, err := certs.ReadAuthorityCert(data[certs.AuthorityCert], now)
	if err == nil && data[certs.AuthorityKey] != nil {
		_, err = certs.ReadAuthority(data, now)
	}
	if err != nil {
		return nil, fmt.Errorf("--webhook-ca %s: %w", s.WebhookCA, err)
	}
	s.authority = certs.Normal(data[certs.AuthorityCert])
	return data, nil
}

// printAuthority says what is missing in printed manifests: they would have another authority each time, and no
// manifest has a key.
func (s *shape) printAuthority() error {
	if !s.signs() {
		return nil
	}
	if s.WebhookCA == "" {
		fmt.Fprint(s.Out, "# These manifests have no certificate authority. Until the webhook configurations trust one, the API server\n"+
			"# refuses every LeaderWorkerSet. Print them with --webhook-ca DIR, or run \"lockstep install\" instead.\n")
		return nil
	}
	if _, err := s.readAuthority(time.Now()); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "# The key of the certificate authority is not printed. Create its Secret in the namespace, with ca.crt and ca.key:\n"+
		"#   kubectl -n %s create secret generic %s --from-file=ca.crt --from-file=ca.key\n", s.namespace(), certs.AuthoritySecret)
	return nil
}

// dataOf returns the data of a Secret, which is empty if there is none.
func (s *shape) dataOf(ctx context.Context, c *cluster, name string) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	err := c.client.Get(ctx, client.ObjectKey{Namespace: s.namespace(), Name: name}, secret)
	return secret.Data, client.IgnoreNotFound(err)
}

// secret returns a Secret that the chart leaves alone.
func (s *shape) secret(name string, data map[string][]byte) *unstructured.Unstructured {
	labels := map[string]string{nameLabel: setsLabel, "app.kubernetes.io/instance": setsLabel}
	return &unstructured.Unstructured{Object: must(runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace(), Name: name, Labels: labels, Annotations: map[string]string{"helm.sh/resource-policy": "keep"}}, Data: data,
	}))}
}

// keepBundles makes webhooks trust what they trusted before as well: replicas present certificates of an older
// authority for a while. Without an authority of install, another program writes the bundles.
func (c *cluster) keepBundles(to, from *unstructured.Unstructured) {
	bundles := map[any]string{}
	for _, hook := range Webhooks(from) {
		bundles[hook["name"]] = string(bundleOf(hook))
	}
	for _, hook := range Webhooks(to) { // a new one trusts what the first one does: a replica of an earlier version serves both
		ours, before := bundleOf(hook), []byte(cmp.Or(bundles[hook["name"]], bundles[Webhooks(to)[0]["name"]]))
		switch {
		case len(ours) == 0:
			setBundle(hook, before)
		case !c.DropOlder:
			setBundle(hook, certs.Bundle(time.Now(), ours, before))
		}
	}
}

func bundleOf(hook map[string]any) []byte {
	text, _, _ := unstructured.NestedString(hook, "clientConfig", "caBundle")
	bundle, _ := base64.StdEncoding.DecodeString(text)
	return bundle
}

func setBundle(hook map[string]any, bundle []byte) {
	if connection, ok := hook["clientConfig"].(map[string]any); ok && len(bundle) > 0 {
		connection["caBundle"] = base64.StdEncoding.EncodeToString(bundle)
	}
}
