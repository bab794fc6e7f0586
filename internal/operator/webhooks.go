package operator

import (
	"context"
	"crypto/tls"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/webhook"
	"lockstep.dev/lockstep/internal/webhook/certs"
)

// beginCertificates returns a keeper that has a certificate to present, or nil without
// webhooks.
func (o *Options) beginCertificates(ctx context.Context, scheme *runtime.Scheme) (*certs.Keeper, error) {
	if !o.Webhooks {
		return nil, nil
	}
	live, err := client.New(o.restConfig(), client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	internal := o.Config.InternalCertManagement
	keeper, err := certs.NewKeeper(certs.Options{
		Dir:    o.certDir(),
		Secret: client.ObjectKey{Namespace: o.Namespace, Name: *internal.WebhookSecretName},
		Hosts:  certs.ServiceHosts(*internal.WebhookServiceName, o.Namespace, o.Config.Webhook.Host),
		Client: client.WithFieldOwner(live, fieldOwner),
		Clock:  clock.RealClock{},
		Log:    o.Log.WithName("certificates"),

		MutatingConfiguration: webhook.MutatingConfiguration, ValidatingConfiguration: webhook.ValidatingConfiguration,
	})
	if err != nil {
		return nil, err
	}
	return keeper, keeper.Begin(ctx)
}

func (o *Options) webhookServer(keeper *certs.Keeper, secured []func(*tls.Config)) crwebhook.Server {
	return crwebhook.NewServer(crwebhook.Options{
		Host:    o.Config.Webhook.Host,
		Port:    int(*o.Config.Webhook.Port),
		TLSOpts: append(secured, func(t *tls.Config) { t.GetCertificate = keeper.GetCertificate }),
	})
}

// gangs returns what the pod webhook knows of gangs. It reads the controllers' cache, or
// live where no controllers run.
func (o *Options) gangs(mgr ctrl.Manager) webhook.Gangs {
	kin := lwscache.NewKin(nil, mgr.GetAPIReader())
	if o.keepsSets() {
		kin = lwscache.NewKin(mgr.GetCache(), mgr.GetAPIReader())
	}
	return webhook.Gangs{Kin: kin, Otherwise: o.Config.GangSchedulingManagement != nil}
}
