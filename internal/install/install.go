package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/connect"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/version"
)

// pause is the time between two reads of an object that is to come or go.
const pause = 200 * time.Millisecond

// Options of an installation and of its removal.
type Options struct {
	// REST reaches the cluster.
	REST *rest.Config
	// WebhookURL is where the API server finds the webhooks; empty is the Service in the
	// operator's namespace.
	WebhookURL string
	// Image, if not empty, is run as the operator inside the cluster.
	Image string
	// Config is the text of the operator's configuration; empty is the defaults.
	Config []byte
	// ProtectOnly installs the protection of PVCs, and nothing for LeaderWorkerSets.
	ProtectOnly bool
	// NoProtection switches the protection of PVCs off, whatever Config says.
	NoProtection bool
	// KeepProtection makes a removal leave the protection of PVCs in force.
	KeepProtection bool
	// KeepChoices makes a removal leave the modes and holds that users wrote.
	KeepChoices bool
	// KeepSets makes a removal leave the definitions, and so every set and its objects.
	KeepSets bool
	// Print writes manifests to Out instead, as for an API server of today.
	Print bool
	// DryRun asks the API server what would happen, and writes nothing.
	DryRun bool
	// Timeout bounds every wait.
	Timeout time.Duration
	// Out takes one line per object.
	Out io.Writer
}

// cluster is where install and uninstall read and write.
type cluster struct {
	Options
	client client.Client
	// deleted counts deletions.
	deleted int
}

// Install makes the cluster hold exactly what this version needs. Run again, it changes
// nothing.
func Install(ctx context.Context, o Options) error {
	if o.Print {
		return o.print()
	}
	c, err := o.open()
	if err != nil {
		return err
	}
	s, err := o.shapeFor(c)
	if err != nil {
		return err
	}
	wanted, err := s.manifests()
	if err != nil {
		return err
	}
	r, err := s.stale(ctx, c)
	if err != nil {
		return err
	}
	if err := s.refuse(ctx, c, r, wanted); err != nil {
		return err
	}
	changes := map[change]int{}
	for _, u := range wanted {
		what, err := c.apply(ctx, u)
		if err == nil && u.GetKind() == "CustomResourceDefinition" && !c.DryRun {
			err = c.untilServed(ctx, u)
		}
		if err != nil {
			return err
		}
		changes[what]++
		c.say("%s %s", title(u), what)
	}
	s.reportLacks()
	if err := r.run(ctx); err != nil {
		return err
	}
	c.say("%s", o.summary(changes, c.deleted))
	return nil
}

// open checks that the cluster answers.
func (o Options) open() (*cluster, error) {
	if o.Timeout <= 0 {
		return nil, fmt.Errorf("--timeout %s: it must be more than nothing", o.Timeout)
	}
	if err := connect.Reach(context.Background(), o.REST); err != nil {
		return nil, err
	}
	unlimited := rest.CopyConfig(o.REST) // a cluster may have many PVCs to strip
	unlimited.QPS = -1
	c, err := client.New(unlimited, client.Options{Scheme: clientgoscheme.Scheme})
	return &cluster{Options: o, client: c}, err
}

// shapeFor returns what to install by what the API server serves.
func (o Options) shapeFor(c *cluster) (shape, error) {
	server, err := discovery.NewDiscoveryClientForConfig(c.REST)
	if err != nil {
		return shape{}, err
	}
	lacks, err := operator.Lacks(server)
	if err != nil {
		return shape{}, err
	}
	return o.shape(lacks)
}

// stale returns the removal of what install wrote and does not want any more: policies of
// another version or configuration, protection that is switched off, an installation of
// protection alone that this one replaces. An operator in the cluster stays.
func (s shape) stale(ctx context.Context, c *cluster) (*removal, error) {
	all := s
	if all.Image == "" {
		all.Image = "any"
	}
	wanted, err := all.manifests()
	if err != nil {
		return nil, err
	}
	found, err := c.installed(ctx)
	if err != nil {
		return nil, err
	}
	wanted = append(wanted, s.madeByOperator()...)
	r := c.removal(slices.DeleteFunc(slices.Clone(found), func(u *unstructured.Unstructured) bool {
		return s.ProtectOnly && !isStandalone(u) ||
			slices.ContainsFunc(wanted, func(w *unstructured.Unstructured) bool { return isSame(u, w) })
	}))
	r.found = found
	r.strips = !s.protects && slices.ContainsFunc(r.doomed, ofProtection)
	if r.strips && s.Image != "" {
		r.operators, r.except = append(r.operators, s.namespace()), s.mark()
	}
	return r, nil
}

// refuse refuses, before any write, an installation that would not go well.
func (s shape) refuse(ctx context.Context, c *cluster, r *removal, wanted []*unstructured.Unstructured) error {
	if err := s.refuseOthers(ctx, c, r.found); err != nil {
		return err
	}
	if r.strips {
		if err := r.refuse(ctx); err != nil {
			return err
		}
	}
	return c.refuseLoss(ctx, wanted)
}

func (s shape) refuseOthers(ctx context.Context, c *cluster, found []*unstructured.Unstructured) error {
	if !s.ProtectOnly {
		return errors.Join(c.refuseBeside(ctx), c.warnOfUnserved(ctx))
	}
	if !has(found, managerRole) {
		return nil
	}
	return errors.New("an installation for LeaderWorkerSets exists already, and protects PVCs as well; nothing was installed; " +
		"to go on with protection alone: lockstep uninstall --keep-protection, and run this again")
}

func (s shape) reportLacks() {
	if s.protects && slices.Contains(s.lacks, operator.ValidatingPolicy) {
		s.say("the API server has no ValidatingAdmissionPolicy (Kubernetes 1.30): modes observe and hold neither refuse nor warn; barrier works")
	}
	if s.protects && s.isOlder() {
		s.say("the API server has no MutatingAdmissionPolicy (Kubernetes 1.36): the operator adds the barrier after a PVC is created, and mode strict works as hold")
	}
}

// untilServed waits until the API server serves the new kind.
func (c *cluster) untilServed(ctx context.Context, crd *unstructured.Unstructured) error {
	return c.await(ctx, func(ctx context.Context) (string, error) {
		if _, err := c.list(ctx, setList, client.Limit(1)); err != nil {
			return fmt.Sprintf("%s is not served: %v; see its conditions: kubectl get %[1]s -o yaml", title(crd), err), nil
		}
		return "", nil
	})
}

// untilGone waits until an object is gone, or another has its name.
func (c *cluster) untilGone(ctx context.Context, u *unstructured.Unstructured) error {
	return c.await(ctx, func(ctx context.Context) (string, error) {
		live, err := c.get(ctx, u)
		if err != nil || live == nil || live.GetDeletionTimestamp() == nil {
			return "", err
		}
		return fmt.Sprintf("%s is still being deleted (finalizers: %q); see it with: kubectl get %[1]s -o yaml", title(u), live.GetFinalizers()), nil
	})
}

// untilStopped waits until no pod of the operator runs, except those of a configuration.
// An operator outside of the cluster is not seen here.
func (c *cluster) untilStopped(ctx context.Context, namespace, except string) error {
	return c.await(ctx, func(ctx context.Context) (string, error) {
		pods, err := c.list(ctx, corev1.SchemeGroupVersion.WithKind("PodList"),
			client.InNamespace(namespace), client.MatchingLabels{"control-plane": "controller-manager"})
		var names []string
		for _, pod := range pods {
			if except == "" || pod.Labels[configLabel] != except {
				names = append(names, pod.Name)
			}
		}
		if err != nil || len(names) == 0 {
			return "", err
		}
		return fmt.Sprintf("pods of the operator still run in namespace %q: %q; wait for them to end, and run this again", namespace, names), nil
	})
}

// await repeats a check until it names nothing that is missing.
func (c *cluster) await(ctx context.Context, check func(context.Context) (missing string, err error)) error {
	last := ""
	err := wait.PollUntilContextTimeout(ctx, pause, c.Timeout, true, func(ctx context.Context) (bool, error) {
		missing, err := check(ctx)
		if ctx.Err() == nil {
			last = missing
		}
		return err == nil && missing == "", err
	})
	if wait.Interrupted(err) && last != "" {
		return fmt.Errorf("%s (waited %s)", last, c.Timeout)
	}
	return err
}

var setList = lwsv1.GroupVersion.WithKind("LeaderWorkerSetList")

func (c *cluster) list(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	err := c.client.List(ctx, list, options...)
	return list.Items, err
}

// unknownKind reports whether an object, or its kind, does not exist.
func unknownKind(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || errors.As(err, new(*meta.NoKindMatchError))
}

func (o Options) say(format string, args ...any) {
	suffix := ""
	if o.DryRun {
		suffix = " (dry run)"
	}
	fmt.Fprintf(o.Out, format+suffix+"\n", args...)
}

func (o Options) summary(changes map[change]int, deleted int) string {
	is := "is"
	if o.DryRun {
		is = "would be"
	}
	if changes[created]+changes[configured]+deleted == 0 {
		return fmt.Sprintf("Lockstep %s is installed; nothing had to be changed", version.Get().Version)
	}
	text := fmt.Sprintf("Lockstep %s %s installed: %d created, %d configured, %d unchanged",
		version.Get().Version, is, changes[created], changes[configured], changes[unchanged])
	if deleted > 0 {
		text += fmt.Sprintf(", %d deleted", deleted)
	}
	return text
}
