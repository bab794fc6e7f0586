package operator

import (
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"

	"lockstep.dev/lockstep/internal/controller"
	"lockstep.dev/lockstep/internal/webhook"
	"lockstep.dev/lockstep/internal/webhook/certs"
)

// The kinds of admission policies that not every API server knows.
const (
	MutatingPolicy   = "MutatingAdmissionPolicy"   // since 1.36
	ValidatingPolicy = "ValidatingAdmissionPolicy" // since 1.30
)

// Lacks returns which kinds of admission policies the API server does not know.
func Lacks(server discovery.ServerResourcesInterface) ([]string, error) {
	served, err := server.ServerResourcesForGroupVersion(admissionv1.SchemeGroupVersion.String())
	if apierrors.IsNotFound(err) {
		served, err = &metav1.APIResourceList{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask which policies the API server knows: %w", err)
	}
	var lacks []string
	for _, kind := range []string{MutatingPolicy, ValidatingPolicy} {
		if !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }) {
			lacks = append(lacks, kind)
		}
	}
	return lacks, nil
}

// learnBirths finds out whether claims get their finalizers from us when they are
// created: where no policy can give them. Protection by itself then answers
// admission requests, which it does not otherwise.
func (o *Options) learnBirths() error {
	if !*o.Config.Protection.Enabled {
		return nil
	}
	server, err := discovery.NewDiscoveryClientForConfig(o.restConfig())
	if err != nil {
		return err
	}
	lacks, err := Lacks(server)
	o.births = slices.Contains(lacks, MutatingPolicy)
	if o.births && o.protectsOnly() {
		o.Webhooks = true
	}
	return err
}

// protectsOnly tells whether protection is all that runs.
func (o *Options) protectsOnly() bool {
	return slices.Equal(o.Controllers, []string{controller.Protection})
}

// trusting names the configurations by which the API server calls us. Where we do
// nothing but protect, those of LeaderWorkerSets are somebody else's.
func (o *Options) trusting(options certs.Options) certs.Options {
	switch {
	case o.protectsOnly() && o.births:
		options.MutatingConfiguration = webhook.ProtectionConfiguration
		return options
	case o.births:
		options.Further = webhook.ProtectionConfiguration
	}
	options.MutatingConfiguration = webhook.MutatingConfiguration
	options.ValidatingConfiguration = webhook.ValidatingConfiguration
	return options
}

// registerWebhooks puts what is asked for on the paths of the webhook server.
func (o *Options) registerWebhooks(mgr ctrl.Manager) {
	if !o.protectsOnly() {
		webhook.Register(mgr.GetWebhookServer(), o.gangs(mgr))
	}
	if o.births {
		webhook.RegisterProtection(mgr.GetWebhookServer())
	}
}
