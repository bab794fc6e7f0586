// Package install is "lockstep install" and "lockstep uninstall": it puts Lockstep into a
// cluster and takes it out again.
//
// It knows the embedded manifests, the order in which they are applied and deleted, and
// what another implementation may have left under the same names. It refuses to know what
// the installed objects do. It never writes a set: sets block an uninstall.
package install

import (
	"cmp"
	"context"
	_ "embed" // the helps
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/connect"
	"lockstep.dev/lockstep/internal/file"
	"lockstep.dev/lockstep/internal/help"
	"lockstep.dev/lockstep/internal/install/place"
	"lockstep.dev/lockstep/internal/lease"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/terminal"
	"lockstep.dev/lockstep/internal/version"
)

// Options of an installation and of its removal.
type Options struct {
	// REST reaches the cluster.
	REST *rest.Config
	// WebhookURL is where the API server finds the webhooks; empty is the Service in the operator's namespace.
	WebhookURL string
	// Image, if not empty, is run as the operator inside the cluster.
	Image string
	// Config is the text of the operator's configuration; empty is the defaults.
	Config []byte
	// ProtectOnly installs the protection of PVCs, and nothing for LeaderWorkerSets.
	ProtectOnly bool
	// NoProtection switches the protection of PVCs off, whatever Config says.
	NoProtection bool
	// CrashLogLines is how many lines of the log of a failed container the operator keeps. Above zero it may read logs.
	CrashLogLines int64
	// NoLeaseReader keeps the lease from users, to whom kubectl lockstep then does not say that no operator runs.
	NoLeaseReader bool
	// KeepProtection makes a removal leave the protection of PVCs in force.
	KeepProtection bool
	// KeepSets makes a removal leave the definitions, and so every set and its objects.
	KeepSets bool
	// KeepFields keeps the fields of definitions in the cluster that this version lacks.
	KeepFields bool
	// WebhookCA is a directory with the authority of the webhooks, ca.crt and ca.key. Empty is that of the cluster, or a new one.
	WebhookCA string
	// DropOlder ends a rotation of the authority: webhooks trust no other any more.
	DropOlder bool
	// Print writes manifests to Out instead, as for an API server of today.
	Print bool
	// DryRun asks the API server what would happen, and writes nothing.
	DryRun bool
	// Timeout bounds every wait.
	Timeout time.Duration
	// Out takes one line per object.
	Out io.Writer
	// place is where the chart installed the operator; empty is as install does.
	place place.Place
}

// Install makes the cluster hold exactly what this version needs. Run again, it changes nothing.
func Install(ctx context.Context, o Options) error {
	if o.Print {
		return o.print()
	}
	c, err := o.open()
	if err != nil {
		return err
	}
	if err := c.inherit(ctx); err != nil {
		return err
	}
	lacks, err := operator.Lacks(c.typed.Discovery())
	if err != nil {
		return err
	}
	s, err := c.shape(lacks)
	if err != nil {
		return err
	}
	secrets, err := s.authorise(ctx, c)
	if err != nil {
		return err
	}
	wanted := slices.Insert(s.manifests(), 1, secrets...) // after the namespace
	r, err := s.stale(ctx, c)
	if err != nil {
		return err
	}
	if err := s.refuse(ctx, r, wanted); err != nil {
		return err
	}
	changes := map[change]int{}
	for _, u := range wanted {
		what, err := c.apply(ctx, u)
		if err == nil && isDefinition(u) && !c.DryRun {
			err = c.untilServed(ctx, u)
		}
		if err != nil {
			return err
		}
		changes[what]++
		c.say("%s %s", title(u), what)
	}
	for _, kind := range s.lacks {
		if s.protects {
			c.say("the API server has no %s: %s", kind, operator.Without[kind])
		}
	}
	if err := r.run(ctx); err != nil {
		return err
	}
	c.say("%s", c.summary(changes))
	return s.sayUnattended(ctx, c)
}

// sayUnattended says that webhooks refuse sets where they call a Service without an operator.
func (s shape) sayUnattended(ctx context.Context, c *cluster) error {
	if s.Image != "" || s.WebhookURL != "" || s.ProtectOnly {
		return nil
	}
	found, err := c.list(ctx, appsv1.SchemeGroupVersion.WithKind("Deployment"), client.InNamespace(s.namespace()), client.MatchingLabels{"control-plane": "controller-manager"})
	if err == nil && len(found) == 0 {
		c.say("no operator was installed, and no set can be created until one runs: install again with --image IMAGE, " +
			"or with --webhook-url https://HOST:PORT for one that you run with: lockstep run")
	}
	return err
}

// checkURL refuses an address that no webhook configuration takes.
func checkURL(address string) error {
	u, err := url.Parse(address)
	if err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && !strings.ContainsAny(address, "?#") {
		if _, err := strconv.ParseUint(cmp.Or(u.Port(), "443"), 10, 16); err == nil && u.Port() != "0" {
			return nil
		}
	}
	return errors.New("--webhook-url: give https://HOST:PORT, without user, query and fragment: the API server calls webhooks at no other address")
}

// stale returns the removal of what install wrote and does not want any more: policies of
// another version or configuration, protection that is switched off, an installation of
// protection alone that this one replaces. An operator in the cluster stays.
func (s shape) stale(ctx context.Context, c *cluster) (*removal, error) {
	all := s
	all.Image = cmp.Or(s.Image, "any")
	found, err := c.installed(ctx)
	if err != nil {
		return nil, err
	}
	wanted := append(all.manifests(), s.besides()...)
	r := c.removal(found, func(u *unstructured.Unstructured) bool {
		return !isIn(u, wanted) && (!s.ProtectOnly || isStandalone(u))
	})
	r.strips = !s.protects && slices.ContainsFunc(r.toDelete, ofProtection)
	if r.strips && s.Image != "" {
		r.operators, r.except = append(r.operators, s.namespace()), s.mark()
	}
	return r, nil
}

// refuse refuses, before any write, an installation that would not go well. It adds the fields that --keep-fields keeps.
func (s shape) refuse(ctx context.Context, r *removal, wanted []*unstructured.Unstructured) error {
	switch {
	case !s.ProtectOnly:
		if err := r.refuseBeside(ctx); err != nil {
			return err
		}
	case has(r.found, managerRole):
		return errors.New("an installation for LeaderWorkerSets exists already, and protects PVCs as well; nothing was installed; " +
			"to go on with protection alone: lockstep uninstall --keep-protection, and run this again")
	}
	if err := r.fit(ctx, wanted); err != nil || !r.strips {
		return err
	}
	return r.refuse(ctx)
}

// refuseBeside refuses while another implementation runs: two sets of controllers undo each other's work. One whose
// Deployment this installation replaces may run until then: the lease keeps the two apart.
func (c *cluster) refuseBeside(ctx context.Context) error {
	holders, err := c.holders(ctx)
	if err != nil {
		return err
	}
	for _, other := range holders {
		switch {
		case other.Ours():
		case c.Image != "" && IsReplaced(other):
			c.say("deployment.apps/%s runs another implementation, %s, and is replaced; the lease passes on once that one is gone", deploymentName, other.Identity)
		default:
			return fmt.Errorf("another implementation runs in namespace %q: %s holds the lease; two would work against each other; "+
				"nothing was installed; stop it, and run install again 15 seconds later: %s", other.Namespace, other.Identity, other.Stop())
		}
	}
	return nil
}

// IsReplaced reports whether install replaces the Deployment of a holder of another implementation.
func IsReplaced(other lease.Holder) bool {
	return other.Namespace == namespaceName && other.Deployment() == deploymentName
}

// holders returns the holders of the lease, in all namespaces.
func (c *cluster) holders(ctx context.Context) ([]lease.Holder, error) {
	return lease.Holders(ctx, c.typed, v1alpha1.DefaultResourceName, namespaceName, time.Now())
}

func (c *cluster) summary(changes map[change]int) string {
	text := "Lockstep " + version.Get().Version + map[bool]string{true: " would be", false: " is"}[c.DryRun] + " installed"
	if changes[created]+changes[configured]+c.deleted == 0 {
		return text + "; nothing had to be changed"
	}
	text += fmt.Sprintf(": %d created, %d configured, %d unchanged", changes[created], changes[configured], changes[unchanged])
	if c.deleted > 0 {
		text += fmt.Sprintf(", %d deleted", c.deleted)
	}
	return text
}

// texts are the helps of the commands, by their names.
//
//go:embed help.txt
var texts string

// NewCommand returns "install".
func NewCommand() *cobra.Command {
	o, protect, showLease, config := &Options{}, true, true, ""
	cmd := newCommand("install", o, func(ctx context.Context) (err error) {
		o.NoProtection, o.NoLeaseReader = !protect, !showLease
		if config != "" {
			if o.Config, err = file.Read(config, operator.MostConfig); err != nil {
				return fmt.Errorf("read the configuration: %w", err)
			}
		}
		return Install(ctx, *o)
	})
	fs := cmd.Flags()
	fs.StringVar(&o.WebhookURL, "webhook-url", "", "where the API server finds the webhooks, `https://HOST:PORT`; without, the Service lws-webhook-service")
	fs.StringVar(&config, "config", "", "`file` with the Configuration that the operator runs with: it sets the protection of PVCs, and goes to the operator that --image deploys")
	fs.BoolVar(&o.Print, "print", false, "write the manifests for a current API server, and send no request")
	fs.BoolVar(&o.ProtectOnly, "protect-only", false, "protect PVCs in use, and install nothing for LeaderWorkerSets")
	fs.BoolVar(&protect, "protection", true, "protect PVCs in use; if false, remove what an earlier install added for it")
	fs.BoolVar(&showLease, "lease-reader", true, "let every user read the operator's lease, so that kubectl lockstep says when no operator runs; if false, remove the role of an earlier install")
	fs.BoolVar(&o.KeepFields, "keep-fields", false, "keep the fields of the definition in the cluster that this version lacks; sets that use them are left alone")
	fs.Int64Var(&o.CrashLogLines, "crash-log-lines", 0, "grant the operator the logs of pods, and have the last `lines` of each failed container kept in the status of its set, for all who may read the set")
	fs.StringVar(&o.WebhookCA, "webhook-ca", "", "`directory` with ca.crt and ca.key, the authority that signs the certificates of the webhooks; without, the one in the cluster or a new one")
	fs.BoolVar(&o.DropOlder, "drop-older-authorities", false, "make the webhook configurations trust the present authority alone, at the end of its rotation")
	fs.StringVar(&o.Image, "image", "", "deploy the operator from this `image`, which holds the program at /lockstep")
	return cmd
}

// NewUninstallCommand returns "uninstall".
func NewUninstallCommand() *cobra.Command {
	o := &Options{}
	cmd := newCommand("uninstall", o, func(ctx context.Context) error { return Uninstall(ctx, *o) })
	fs := cmd.Flags()
	fs.BoolVar(&o.KeepSets, "keep-sets", false, "leave the definitions, all sets and the namespace")
	fs.BoolVar(&o.KeepProtection, "keep-protection", false, "leave PVCs protected; a PVC that is deleted stays until Lockstep is installed again")
	return cmd
}

// newCommand returns a command with the flags that both have.
func newCommand(name string, o *Options, do func(context.Context) error) *cobra.Command {
	var kubeconfig string
	cmd := help.Command(texts, name)
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.Out = cmd.OutOrStdout(); !o.Print {
			o.Out = terminal.Writer(o.Out)
			if o.REST, err = connect.Config(kubeconfig); err != nil {
				return err
			}
		}
		return do(cmd.Context())
	}
	fs := cmd.Flags()
	fs.StringVar(&kubeconfig, "kubeconfig", "", "`file` with the cluster to use; without, $KUBECONFIG, then the cluster this runs in, then ~/.kube/config")
	fs.BoolVar(&o.DryRun, "dry-run", false, "report what would be done, and write nothing")
	fs.DurationVar(&o.Timeout, "timeout", time.Minute, "how long to wait for objects that must appear or disappear")
	return cmd
}
