package install

import (
	"context"
	"fmt"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/install/place"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/webhook/certs"
)

// Expected is what this version would install in place of the installation in a cluster.
type Expected struct {
	Objects []*unstructured.Unstructured
	Config  *v1alpha1.Configuration
	// ConfigRead reports whether the configuration was read. Without it, it is the defaults, and
	// policies may have other parts.
	ConfigRead bool
	// Namespace is that of the operator, and Lease the name of its lease.
	Namespace, Lease string
	// ProtectOnly reports whether only PVCs are protected.
	ProtectOnly bool
	// Command is what writes the objects again.
	Command string
	// Unread are errors of reads that the user may not make. What they read counts as absent.
	Unread []error
}

// Expect returns what this version would install in place of the installation that a client
// reads. lacks are the kinds of policies that the API server does not serve.
func Expect(ctx context.Context, c client.Client, lacks []string) (e Expected, err error) {
	r := &reading{client: c}
	o := r.options(ctx)
	if r.err != nil {
		return e, r.err
	}
	e, err = o.expected(lacks)
	e.Unread = r.unread
	return e, err
}

// Plan is the same for a cluster that has nothing, with an operator. It reads nothing.
func Plan(_ context.Context, _ client.Client, lacks []string) (Expected, error) {
	return Options{Image: "any"}.expected(lacks)
}

func (o Options) expected(lacks []string) (Expected, error) {
	s, err := o.shape(lacks)
	if err != nil {
		return Expected{}, err
	}
	command := "lockstep install"
	if o.place.ByHelm {
		command = "helm upgrade"
	}
	objects := s.manifests()
	if s.signs() {
		objects = append(objects, Bare("v1", "Secret", o.namespace(), certs.AuthoritySecret))
	}
	return Expected{
		Command: command,
		Objects: objects, Config: s.config, ConfigRead: o.Config != nil,
		Namespace: o.namespace(), Lease: operator.LeaseName(s.config, o.ProtectOnly), ProtectOnly: o.ProtectOnly,
	}, nil
}

// reading reads one object after the other, until one read fails.
type reading struct {
	client client.Reader
	unread []error
	err    error
}

// options returns the choices that an installation shows.
func (r *reading) options(ctx context.Context) (o Options) {
	var err error
	o.place, err = place.Of(ctx, r.client)
	r.take(err)
	role := func(name string) bool { return r.read(ctx, Bare(rbac, "ClusterRole", "", name)) != nil }
	o.ProtectOnly = !role(o.prefix()+"-manager-role") && role(standaloneProxyRole)
	isUnprotected := !role(protectionRole) && r.read(ctx, Bare(policies, operator.ValidatingPolicy, "", guardPolicy)) == nil
	o.NoProtection = isUnprotected && !o.ProtectOnly && len(r.unread) == 0
	o.NoLeaseReader = r.read(ctx, Bare(rbac, "Role", o.namespace(), o.prefix()+"-lease-reader-role")) == nil && len(r.unread) == 0
	if u := r.read(ctx, Bare("apps/v1", "Deployment", o.namespace(), o.prefix()+"-controller-manager")); u != nil {
		o.Image = ImageOf(u)
	}
	if u := r.read(ctx, Bare("v1", "ConfigMap", o.namespace(), v1alpha1.InstalledName)); u != nil {
		text, _, _ := unstructured.NestedString(u.Object, "data", v1alpha1.InstalledKey)
		o.Config = []byte(text)
	}
	if u := r.read(ctx, Bare(policies, "MutatingWebhookConfiguration", "", certs.MutatingConfiguration)); u != nil {
		o.WebhookURL = addressOf(u)
	}
	return o
}

const (
	rbac        = "rbac.authorization.k8s.io/v1"
	policies    = "admissionregistration.k8s.io/v1"
	guardPolicy = "guard.protection.lockstep.dev"
)

// read returns nil for what does not exist, and for what the user may not read.
func (r *reading) read(ctx context.Context, want *unstructured.Unstructured) *unstructured.Unstructured {
	if r.err != nil {
		return nil
	}
	live, err := Live(ctx, r.client, want)
	r.take(err)
	return live
}

// take notes an error. What the user may not read ends nothing.
func (r *reading) take(err error) {
	if apierrors.IsForbidden(err) {
		r.unread = append(r.unread, err)
		return
	}
	r.err = err
}

// ImageOf returns the image of a Deployment that runs Lockstep, or nothing.
func ImageOf(deployment *unstructured.Unstructured) (image string) {
	container := operatorIn(deployment)
	if command, _, _ := unstructured.NestedStringSlice(container, "command"); len(command) > 0 && command[0] == "/lockstep" {
		image, _, _ = unstructured.NestedString(container, "image")
	}
	return image
}

// addressOf returns the URL of the server that webhooks call, or nothing if they call a Service.
func addressOf(webhooks *unstructured.Unstructured) string {
	for _, hook := range Webhooks(webhooks) {
		text, _, _ := unstructured.NestedString(hook, "clientConfig", "url")
		isOurs := slices.Contains(certs.Names(), fmt.Sprint(hook["name"]))
		if u, err := url.Parse(text); isOurs && err == nil && u.Host != "" {
			return u.Scheme + "://" + u.Host
		}
	}
	return ""
}
