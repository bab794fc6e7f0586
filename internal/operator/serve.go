package operator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	_ "net/http/pprof" // on http.DefaultServeMux
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/internal/scrape"
	"lockstep.dev/lockstep/internal/webhook"
	"lockstep.dev/lockstep/internal/webhook/certs"
)

const (
	tls12 = "VersionTLS12"
	tls13 = "VersionTLS13"
)

// beginCertificates returns a keeper that made its first pass, so that the server has a certificate when it starts.
// It returns nil without webhooks.
func (o *Options) beginCertificates(ctx context.Context, scheme *runtime.Scheme) (*certs.Keeper, error) {
	if !o.Webhooks {
		return nil, nil
	}
	live, err := client.New(o.restConfig(), client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	internal := o.Config.InternalCertManagement
	keeper := certs.NewKeeper(certs.Options{
		Namespace: o.Namespace, Former: *internal.WebhookSecretName,
		Hosts:  certs.ServiceHosts(*internal.WebhookServiceName, o.Namespace, o.Config.Webhook.Host),
		Given:  o.certDir(),
		Client: live,
		Clock:  clock.RealClock{},
		Log:    o.Log.WithName("certificates"),
	})
	_, err = keeper.Keep(ctx)
	return keeper, err
}

// addServers adds the servers of the configuration to the manager. keeper and webhooks may be nil.
func (o *Options) addServers(mgr ctrl.Manager, keeper *certs.Keeper, webhooks, probes http.Handler) error {
	secured, err := tlsConfig(o.Config.TLS)
	if err != nil {
		return err
	}
	if webhooks != nil {
		called, err := o.webhookTLS(mgr, keeper, secured.Clone())
		if err != nil {
			return err
		}
		register(report.CertificateMetrics(expiryOf(called)))
		address := net.JoinHostPort(o.Config.Webhook.Host, strconv.Itoa(int(*o.Config.Webhook.Port)))
		if err := o.serve(mgr, "webhooks", address, webhooks, called); err != nil {
			return err
		}
	}
	figures := promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: mostScrapes})
	if address := o.Config.Metrics.BindAddress; address == off || onLoopback(address) {
		secured = nil
	} else if figures, err = o.guard(figures, secured); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", figures)
	return errors.Join(
		o.serve(mgr, "metrics", o.Config.Metrics.BindAddress, mux, secured),
		o.serve(mgr, "probes", o.Config.Health.HealthProbeBindAddress, probes, nil),
		o.serve(mgr, "pprof", o.Pprof, http.DefaultServeMux, nil),
	)
}

// webhookTLS presents the keeper's certificate, or the one in a directory, which it reads again when it changes.
func (o *Options) webhookTLS(mgr ctrl.Manager, keeper *certs.Keeper, config *tls.Config) (*tls.Config, error) {
	if authority := o.Config.Webhook.ClientCA; authority != "" {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		config.ClientCAs.AppendCertsFromPEM([]byte(authority))
	}
	if o.certDir() == "" {
		config.GetCertificate = keeper.GetCertificate
		return config, nil
	}
	watcher, err := certwatcher.New(filepath.Join(o.certDir(), "tls.crt"), filepath.Join(o.certDir(), "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("read the webhook certificate: %w", err)
	}
	config.GetCertificate = watcher.GetCertificate
	return config, mgr.Add(watcher)
}

// expiryOf returns when the certificate that a server presents expires.
func expiryOf(config *tls.Config) func() (time.Time, error) {
	return func() (time.Time, error) {
		certificate, err := config.GetCertificate(nil)
		if err != nil {
			return time.Time{}, err
		}
		return certificate.Leaf.NotAfter, nil
	}
}

// guard serves metrics to authorised clients, with a certificate made at each start.
func (o *Options) guard(figures http.Handler, config *tls.Config) (http.Handler, error) {
	certificate, key, err := certutil.GenerateSelfSignedCertKeyWithFixtures("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil, "")
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.X509KeyPair(certificate, key)
	}
	if err != nil {
		return nil, fmt.Errorf("make the certificate of the metrics: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return scrape.Readers(o.restConfig(), o.Log.WithName("metrics"), figures)
}

// webhooks answers admission requests until ending is closed, and a little longer. What it asks the API server has rate
// limiters of its own: any client can make it ask, and no controller waits for that.
func (o *Options) webhooks(mgr ctrl.Manager, starter *kinds.Starter, ending <-chan struct{}) (http.Handler, error) {
	config := o.restConfig()
	config.WarningHandler = rest.NoWarnings{} // of dry runs: the object is created later
	asking, err := client.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	kin := lwscache.NewKin(nil, asking, false) // reads live where no controllers fill a cache
	if o.keepsSets() {
		kin = lwscache.NewKin(mgr.GetCache(), asking, disruptionBudgets[o.Config.Disruption.Budget])
	}
	sets := webhook.Sets{
		Scheduling: o.scheduling(starter),
		Revisions: func(ctx context.Context, set *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error) {
			return lwscache.Revisions(ctx, asking, set) // the history is not in the cache
		},
		DryRun: func(ctx context.Context, object client.Object) error {
			return client.NewDryRunClient(asking).Create(ctx, object)
		},
	}
	if o.Config.Rollout.ProgressDeadline == "" { // sets from before this version keep none
		sets.ProgressDeadline = workload.UsualProgressDeadline
	}
	pods := webhook.Pods{Kin: kin, Otherwise: o.gangProvider() == gang.Volcano, Scheduler: o.scheduler()}
	mux := http.NewServeMux()
	webhook.Register(crwebhook.NewServer(crwebhook.Options{WebhookMux: mux}), sets, pods, ending)
	return mux, nil
}

// gangProvider is the gang scheduler of the configuration, or empty.
func (o *Options) gangProvider() string {
	return ptr.Deref(ptr.Deref(o.Config.GangSchedulingManagement, v1alpha1.GangSchedulingManagement{}).SchedulerProvider, "")
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

// tlsConfig returns TLS as the configuration restricts it. HTTP/2 is off: a client can make one connection cost far more
// than it sends.
func tlsConfig(c *v1alpha1.TLS) (*tls.Config, error) {
	settings := ptr.Deref(c, v1alpha1.TLS{})
	least, badVersion := cliflag.TLSVersion(settings.MinVersion) // TLS 1.2 if it is empty
	suites, badSuites := cliflag.TLSCipherSuites(settings.CipherSuites)
	if len(suites) == 0 {
		suites = aeadSuites()
	}
	return &tls.Config{MinVersion: least, CipherSuites: suites, NextProtos: []string{"http/1.1"}}, errors.Join(badVersion, badSuites)
}

// aeadSuites returns the suites of TLS 1.2 that authenticate what they encrypt. The others leak by their padding.
func aeadSuites() (ids []uint16) {
	for _, suite := range tls.CipherSuites() {
		if !isPlain(suite.Name) {
			ids = append(ids, suite.ID)
		}
	}
	return ids
}

// isPlain reports whether a suite does not authenticate what it encrypts.
func isPlain(suite string) bool {
	return !strings.Contains(suite, "_GCM_") && !strings.Contains(suite, "_CHACHA20_")
}

func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// What a client of a server can hold. An API server closes a connection that was idle for 90 s: a server that closed it
// earlier would lose the call that is just being sent.
const (
	headerPatience  = 5 * time.Second // a TLS handshake as well
	requestPatience = 10 * time.Second
	answerPatience  = 25 * time.Second
	idlePatience    = 2 * time.Minute
	mostConnections = 1000
	mostPlain       = 5 * mostConnections // without TLS: a kubelet that gets none restarts the operator
	mostScrapes     = 4
)

// serve adds a server to the manager, unless its address is none. Without secured it serves plain HTTP. All servers are
// made here: those of controller-runtime wait for a body as long as its client likes.
func (o *Options) serve(mgr ctrl.Manager, name, address string, handler http.Handler, secured *tls.Config) error {
	if address == "" || address == off {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve %s: %w", name, err)
	}
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: headerPatience, ReadTimeout: requestPatience, WriteTimeout: answerPatience, IdleTimeout: idlePatience,
		ErrorLog: stdlog.New(&serverLog{log: o.Log, server: name, handshakes: rate.Sometimes{Interval: time.Minute}}, "", 0),
	}
	if secured == nil {
		server.SetKeepAlivesEnabled(false) // connections that are idle would keep the kubelet out
		return mgr.Add(&manager.Server{Name: name, Listener: netutil.LimitListener(listener, mostPlain), Server: server})
	}
	listener = tls.NewListener(netutil.LimitListener(listener, mostConnections), secured)
	return mgr.Add(&manager.Server{Name: name, Listener: listener, Server: server})
}

// serverLog logs what a server reports. Any client can make handshakes fail: they have one line a minute.
type serverLog struct {
	log        logr.Logger
	server     string
	handshakes rate.Sometimes
	failed     atomic.Int64
}

// Write implements io.Writer, for a line of a log.
func (l *serverLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if !strings.HasPrefix(text, "http: TLS handshake error") {
		l.log.Error(nil, text, "server", l.server)
		return len(line), nil
	}
	report.HandshakeFailed(l.server)
	l.failed.Add(1)
	l.handshakes.Do(func() {
		l.log.Info("TLS handshakes failed", "server", l.server, "count", l.failed.Swap(0), "example", text)
	})
	return len(line), nil
}
