package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/scrape"
	"lockstep.dev/lockstep/internal/webhook"
	"lockstep.dev/lockstep/internal/webhook/certs"
)

const (
	tls12 = "VersionTLS12"
	tls13 = "VersionTLS13"
	// fieldOwner is the field manager of the operator's writes of its own configuration.
	fieldOwner = "lockstep"
)

// beginCertificates returns a keeper that has a certificate to present. It returns nil without
// webhooks, and if another program provides certificate and CA bundles.
func (o *Options) beginCertificates(ctx context.Context, scheme *runtime.Scheme) (*certs.Keeper, error) {
	if !o.Webhooks || o.certDir() != "" {
		return nil, nil
	}
	live, err := client.New(o.restConfig(), client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	internal := o.Config.InternalCertManagement
	keeper := certs.NewKeeper(certs.Options{
		Secret: client.ObjectKey{Namespace: o.Namespace, Name: *internal.WebhookSecretName},
		Hosts:  certs.ServiceHosts(*internal.WebhookServiceName, o.Namespace, o.Config.Webhook.Host),
		Client: client.WithFieldOwner(live, fieldOwner),
		Clock:  clock.RealClock{},
		Log:    o.Log.WithName("certificates"),

		MutatingConfiguration: webhook.MutatingConfiguration, ValidatingConfiguration: webhook.ValidatingConfiguration,
	})
	return keeper, keeper.Begin(ctx)
}

// webhookServer presents the keeper's certificate, or the one in a directory, which it reads
// again when it changes.
func (o *Options) webhookServer(keeper *certs.Keeper, secured []func(*tls.Config)) crwebhook.Server {
	if keeper != nil {
		secured = append(secured, func(t *tls.Config) { t.GetCertificate = keeper.GetCertificate })
	}
	return crwebhook.NewServer(crwebhook.Options{Host: o.Config.Webhook.Host, Port: int(*o.Config.Webhook.Port), CertDir: o.certDir(), TLSOpts: secured})
}

// certificateExpiry returns when the certificate that the webhook server presents expires: the keeper's, or the
// one in a directory.
func (o *Options) certificateExpiry(keeper *certs.Keeper) func() (time.Time, error) {
	presented := func() (*tls.Certificate, error) { return keeper.GetCertificate(nil) }
	if keeper == nil {
		presented = func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(filepath.Join(o.certDir(), "tls.crt"), filepath.Join(o.certDir(), "tls.key"))
			return &pair, err
		}
	}
	return func() (time.Time, error) {
		certificate, err := presented()
		if err != nil {
			return time.Time{}, err
		}
		return certificate.Leaf.NotAfter, nil
	}
}

// sets returns what the set webhook knows of other objects. The history is not in the cache.
func (o *Options) sets(mgr ctrl.Manager, starter *kinds.Starter) (webhook.Sets, error) {
	config := o.restConfig()                  // a rate limiter of its own: writes of controllers do not wait for admission
	config.WarningHandler = rest.NoWarnings{} // the object is created later
	asking, err := client.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	return webhook.Sets{
		Scheduling: o.scheduling(starter),
		Revisions: func(ctx context.Context, set *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error) {
			return lwscache.Revisions(ctx, mgr.GetAPIReader(), set)
		},
		DryRun: func(ctx context.Context, object client.Object) error {
			return client.NewDryRunClient(asking).Create(ctx, object)
		},
	}, err
}

// pods returns what the pod webhook knows of other objects. It reads the controllers' cache, or
// live where no controllers run.
func (o *Options) pods(mgr ctrl.Manager) webhook.Pods {
	kin := lwscache.NewKin(nil, mgr.GetAPIReader())
	if o.keepsSets() {
		kin = lwscache.NewKin(mgr.GetCache(), mgr.GetAPIReader())
	}
	return webhook.Pods{Kin: kin, Otherwise: o.gangProvider() == gang.Volcano, Scheduler: o.scheduler()}
}

// gangProvider is the gang scheduler of the configuration, or empty.
func (o *Options) gangProvider() string {
	if o.Config.GangSchedulingManagement == nil {
		return ""
	}
	return ptr.Deref(o.Config.GangSchedulingManagement.SchedulerProvider, "")
}

// scheduling returns what this operator can do for sets with spec.scheduling.
func (o *Options) scheduling(starter *kinds.Starter) admission.Scheduling {
	return admission.Scheduling{
		IsEnabled: o.Config.FeatureGates[v1alpha1.WorkloadAwareScheduling],
		Provider:  o.gangProvider(),
		Unserved: func(kind string) error {
			wanted := gang.WorkloadKind.GroupVersion().WithKind(kind)
			served, err := starter.Served(context.Background(), wanted)
			if err == nil && (served.Resource == "" || served.Version != wanted.Version) {
				return errors.New("the API server does not serve it")
			}
			return err
		},
	}
}

// scheduler is the one that places sets with spec.scheduling, or empty.
func (o *Options) scheduler() string {
	if !o.Config.FeatureGates[v1alpha1.WorkloadAwareScheduling] {
		return ""
	}
	return o.gangProvider()
}

// tlsOptions restrict a TLS server to what the configuration allows. HTTP/2 is off: a client
// can make one connection cost far more than it sends.
func tlsOptions(c *v1alpha1.TLS) ([]func(*tls.Config), error) {
	options := []func(*tls.Config){func(t *tls.Config) { t.NextProtos = []string{"http/1.1"} }}
	if c == nil {
		return options, nil
	}
	if c.MinVersion != "" {
		version, err := cliflag.TLSVersion(c.MinVersion)
		if err != nil {
			return nil, err
		}
		options = append(options, func(t *tls.Config) { t.MinVersion = version })
	}
	if len(c.CipherSuites) > 0 {
		suites, err := cliflag.TLSCipherSuites(c.CipherSuites)
		if err != nil {
			return nil, err
		}
		options = append(options, func(t *tls.Config) { t.CipherSuites = suites })
	}
	return options, nil
}

// metricsOptions serve metrics to all clients on a loopback address, and over HTTPS to
// authorised clients on any other.
func metricsOptions(address string, secured []func(*tls.Config)) metricsserver.Options {
	if address == off || onLoopback(address) {
		return metricsserver.Options{BindAddress: address}
	}
	return metricsserver.Options{BindAddress: address, SecureServing: true, FilterProvider: scrape.Readers, TLSOpts: secured}
}

func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}
