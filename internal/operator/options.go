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
	"lockstep.dev/lockstep/internal/controller/lws"
	"lockstep.dev/lockstep/internal/version"
)

// Names of the controllers that --controllers chooses from.
const (
	LeaderWorkerSet = lws.Name
	Protection      = "protection"
)

// Controllers returns the names of all controllers.
func Controllers() []string { return []string{LeaderWorkerSet, Protection} }

// off is the address that turns a server off.
const off = "0"

// Options are the settings of one operator.
type Options struct {
	// REST reaches the API server. Rate and user agent are set by Run.
	REST *rest.Config
	// Config has its defaults filled in.
	Config v1alpha1.Configuration
	// Namespace is that of the operator, its lease and its certificate.
	Namespace string
	// ConfigFile is the path of Config, or empty. Errors name it.
	ConfigFile string
	// Controllers are the names of those to run. It may be empty.
	Controllers []string
	// Webhooks reports whether admission requests are answered.
	Webhooks bool
	// CertDir, if not empty, has the webhook certificate. Without it, the operator signs
	// its own, unless Config has another directory.
	CertDir string
	// CrashLogLines is how many lines of the log of a failed container are kept in the status of its set.
	CrashLogLines int64
	// Pprof is the address of profiles, on loopback. "0" is none.
	Pprof string
	Log   logr.Logger
}

func (o *Options) validate() error {
	if faults := ValidateConfig(&o.Config); len(faults) > 0 {
		if o.ConfigFile == "" {
			return faults.ToAggregate()
		}
		return fmt.Errorf("configuration %q, with the flags on top: %w", o.ConfigFile, faults.ToAggregate())
	}
	for _, name := range o.Controllers {
		if !slices.Contains(Controllers(), name) {
			return fmt.Errorf("--controllers: there is no controller %q, only: %s", name, strings.Join(Controllers(), ", "))
		}
	}
	if o.Pprof != off && o.Pprof != "" && !onLoopback(o.Pprof) {
		return fmt.Errorf("--pprof-bind-address %q: profiles are for this machine only; use a loopback address such as 127.0.0.1:6060", o.Pprof)
	}
	if err := CheckCrashLogLines(o.CrashLogLines); err != nil {
		return err
	}
	if !o.Webhooks && !o.controls() {
		return errors.New(`nothing to run: --webhooks=false, --controllers and --protection leave nothing; drop one of them`)
	}
	return nil
}

// maxCrashLogLines bounds what the kubelet reads of a log of which 2 KiB are kept.
const maxCrashLogLines = 1000

// CheckCrashLogLines refuses a number of lines that cannot be meant.
func CheckCrashLogLines(lines int64) error {
	if lines < 0 || lines > maxCrashLogLines {
		return fmt.Errorf("--crash-log-lines %d: give 0 to %d", lines, maxCrashLogLines)
	}
	return nil
}

// protects reports whether PVCs are protected.
func (o *Options) protects() bool {
	return *o.Config.Protection.Enabled && slices.Contains(o.Controllers, Protection)
}

// keepsSets reports whether the controllers of LeaderWorkerSets run.
func (o *Options) keepsSets() bool { return slices.Contains(o.Controllers, LeaderWorkerSet) }

// controls reports whether any controller runs.
func (o *Options) controls() bool { return o.protects() || o.keepsSets() }

// elects reports whether this replica competes for the lease. One without controllers does
// not need it, and must not keep it from one with controllers.
func (o *Options) elects() bool {
	return *o.Config.LeaderElection.LeaderElect && o.controls()
}

// certDir returns the directory that another program fills, or nothing.
func (o *Options) certDir() string {
	if o.CertDir == "" && !*o.Config.InternalCertManagement.Enable {
		return o.Config.Webhook.CertDir
	}
	return o.CertDir
}

func (o *Options) restConfig() *rest.Config {
	c := rest.CopyConfig(o.REST)
	c.UserAgent = version.UserAgent()
	c.QPS, c.Burst = *o.Config.ClientConnection.QPS, int(*o.Config.ClientConnection.Burst)
	c.DisableCompression = true // each event of a watch would be compressed by itself
	return c
}

// ownNamespace returns the namespace of the pod that this runs in, or the default.
func ownNamespace() string {
	text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if namespace := strings.TrimSpace(string(text)); err == nil && namespace != "" {
		return namespace
	}
	return "lws-system"
}
