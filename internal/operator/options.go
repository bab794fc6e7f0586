package operator

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/controller"
	"lockstep.dev/lockstep/internal/version"
)

// off is the address that turns a server off.
const off = "0"

// Options are everything one operator needs to know.
type Options struct {
	// REST reaches the API server. Rate and user agent are set by Run.
	REST *rest.Config

	// Config has its defaults filled in.
	Config v1alpha1.Configuration

	// Namespace is the operator's own: of the lease and the certificate.
	Namespace string

	// ConfigFile is where Config was read, or empty: a fault in it is told with that.
	ConfigFile string

	// Controllers are the names of those to run; none is allowed.
	Controllers []string

	// Webhooks says whether admission requests are answered.
	Webhooks bool

	// CertDir, if not empty, holds the webhook certificate. Empty: the operator
	// makes its own, unless Config says otherwise.
	CertDir string

	// Pprof is the address of profiles, on loopback; "0" for none.
	Pprof string

	Log logr.Logger
}

func (o *Options) validate() error {
	if faults := ValidateConfig(&o.Config); len(faults) > 0 {
		if o.ConfigFile == "" {
			return faults.ToAggregate()
		}
		return fmt.Errorf("configuration %q, with the flags on top: %w", o.ConfigFile, faults.ToAggregate())
	}
	for _, name := range o.Controllers {
		if !slices.Contains(controller.Names(), name) {
			return fmt.Errorf("--controllers: there is no controller %q, only: %s", name, strings.Join(controller.Names(), ", "))
		}
	}
	if o.Pprof != off && o.Pprof != "" && !onLoopback(o.Pprof) {
		return fmt.Errorf("--pprof-bind-address %q: profiles are for this machine only; give a loopback address such as 127.0.0.1:6060", o.Pprof)
	}
	if !o.Webhooks && !o.controls() {
		return errors.New(`nothing to run: --webhooks=false, --controllers and --protection leave nothing over; drop one of them`)
	}
	return nil
}

// certDir is where somebody else puts the certificate, or empty.
func (o *Options) certDir() string {
	if o.CertDir == "" && !*o.Config.InternalCertManagement.Enable {
		return o.Config.Webhook.CertDir
	}
	return o.CertDir
}

// elects says whether replicas must agree on a leader. One without controllers
// does nothing that a second could do as well, and must not keep the lease from
// one that has them.
func (o *Options) elects() bool {
	return *o.Config.LeaderElection.LeaderElect && o.controls()
}

// pprofAddress is where profiles are served, or empty for nowhere.
func (o *Options) pprofAddress() string {
	if o.Pprof == off {
		return ""
	}
	return o.Pprof
}

func (o *Options) restConfig() *rest.Config {
	c := rest.CopyConfig(o.REST)
	c.UserAgent = version.UserAgent()
	c.QPS, c.Burst = *o.Config.ClientConnection.QPS, int(*o.Config.ClientConnection.Burst)
	c.DisableCompression = true // each event of a watch would be packed and unpacked by itself, at both ends
	return c
}

const (
	namespaceFile    = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	defaultNamespace = "lws-system"
)

// ownNamespace is the namespace of the pod this runs in, or the usual one.
func ownNamespace() string {
	if text, err := os.ReadFile(namespaceFile); err == nil && len(strings.TrimSpace(string(text))) > 0 {
		return strings.TrimSpace(string(text))
	}
	return defaultNamespace
}
