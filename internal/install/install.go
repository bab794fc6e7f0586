package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/connect"
	"lockstep.dev/lockstep/internal/version"
)

// glance is the pause between two looks at something that is to come or go.
const glance = 200 * time.Millisecond

// Options of an installation and of its removal.
type Options struct {
	// REST reaches the cluster.
	REST *rest.Config

	// WebhookURL is where the API server finds the webhooks; empty is the Service
	// in the operator's namespace.
	WebhookURL string

	// Image, if not empty, is run as the operator inside the cluster.
	Image string

	// Config is the text of the operator's configuration; empty is the defaults.
	Config []byte

	// ProtectOnly installs the protection of claims, and nothing for
	// LeaderWorkerSets.
	ProtectOnly bool

	// NoProtection switches the protection of claims off, whatever Config says.
	NoProtection bool

	// KeepProtection has a removal leave what protects claims: they stay protected
	// until an operator is there again.
	KeepProtection bool

	// KeepChoices has a removal leave the modes and holds that people wrote.
	KeepChoices bool

	// KeepSets has a removal leave the definitions, and with them every set and
	// all that is a set's.
	KeepSets bool

	// Print writes manifests to Out instead, and asks no API server: they are those for
	// one of today.
	Print bool

	// StaticPolicies, if not empty, is the directory to write the policies into as files
	// that API servers load at their start. No API server is asked.
	StaticPolicies string

	// DryRun asks the API server what would happen, and writes nothing.
	DryRun bool

	// Timeout bounds every wait.
	Timeout time.Duration

	// Out takes one line per object.
	Out io.Writer
}

// Install makes the cluster hold exactly what this version needs. Run again it
// changes nothing, and says so.
func Install(ctx context.Context, o Options) error {
	if o.WebhookURL != "" {
		if err := checkURL(o.WebhookURL); err != nil {
			return err
		}
	}
	if o.Print {
		return o.print()
	}
	if o.StaticPolicies != "" {
		return o.writeStatic()
	}
	a, err := o.open()
	if err != nil {
		return err
	}
	lacks, err := o.lacking()
	if err != nil {
		return err
	}
	s, err := o.shape(lacks)
	if err != nil {
		return err
	}
	objects, err := s.manifests()
	if err != nil {
		return err
	}
	if err := s.refuse(ctx, a); err != nil {
		return err
	}
	if err := a.refuseLoss(ctx, objects); err != nil {
		return err
	}
	changes := map[change]int{}
	for _, u := range objects {
		what, err := o.install(ctx, a, u)
		if err != nil {
			return err
		}
		changes[what]++
		o.say("%s %s", title(u), what)
	}
	if err := s.replace(ctx, a, objects); err != nil {
		return err
	}
	o.say("%s", o.summary(changes, *a.removed))
	return nil
}

// open checks that there is a cluster to talk to, and time to do so.
func (o Options) open() (applier, error) {
	if o.Timeout <= 0 {
		return applier{}, fmt.Errorf("--timeout %s: it must be more than nothing", o.Timeout)
	}
	if err := connect.Reach(o.REST); err != nil {
		return applier{}, err
	}
	c, err := client.New(o.REST, client.Options{Scheme: runtime.NewScheme()})
	return applier{client: c, dryRun: o.DryRun, removed: new(int)}, err
}

func (o Options) install(ctx context.Context, a applier, u *unstructured.Unstructured) (change, error) {
	live, err := a.get(ctx, u)
	if err != nil {
		return "", err
	}
	if live != nil && live.GetDeletionTimestamp() != nil && !o.DryRun {
		o.say("waiting for %s, which is being deleted", title(u))
		if err := o.untilGone(ctx, a, u); err != nil {
			return "", err
		}
		live = nil
	}
	if u.GetKind() == "Namespace" && (live == nil || live.GetAnnotations()[createdHere] != "") {
		u.SetAnnotations(map[string]string{createdHere: "true"})
	}
	what, err := a.apply(ctx, u)
	if err != nil {
		return "", err
	}
	if u.GetKind() == "CustomResourceDefinition" && !o.DryRun {
		err = o.untilServed(ctx, a, u)
	}
	return what, err
}

// untilServed waits until the API server answers for the new kind.
func (o Options) untilServed(ctx context.Context, a applier, crd *unstructured.Unstructured) error {
	reason := "no word of it yet"
	err := wait.PollUntilContextTimeout(ctx, glance, o.Timeout, true, func(ctx context.Context) (bool, error) {
		live, err := a.get(ctx, crd)
		if err != nil || live == nil {
			return false, err
		}
		if reason, err = notEstablished(live); reason != "" || err != nil {
			return false, err
		}
		_, _, err = o.sets(ctx, a)
		if err != nil {
			reason = err.Error()
		}
		return err == nil, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("%s is not served after %s: %s", title(crd), o.Timeout, reason)
	}
	return err
}

// notEstablished returns why a definition is not in force, or nothing if it is.
func notEstablished(live *unstructured.Unstructured) (string, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, crd); err != nil {
		return "", err
	}
	for _, c := range crd.Status.Conditions {
		wanted := c.Type == apiextensionsv1.Established || c.Type == apiextensionsv1.NamesAccepted
		if wanted && c.Status != apiextensionsv1.ConditionTrue {
			return c.Message, nil
		}
		if c.Type == apiextensionsv1.Established {
			return "", nil
		}
	}
	return "it is not established yet", nil
}

// untilGone waits for an object to be gone, or replaced by another.
func (o Options) untilGone(ctx context.Context, a applier, u *unstructured.Unstructured) error {
	var held []string
	err := wait.PollUntilContextTimeout(ctx, glance, o.Timeout, true, func(ctx context.Context) (bool, error) {
		live, err := a.get(ctx, u)
		if err != nil || live == nil {
			return err == nil, err
		}
		held = live.GetFinalizers()
		return live.GetDeletionTimestamp() == nil, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("%s is still being deleted after %s (finalizers: %q); look at it with: kubectl get %s -o yaml", title(u), o.Timeout, held, title(u))
	}
	return err
}

// fewSets is how many sets are named where not all need be.
const fewSets = 5

// sets names the first few LeaderWorkerSets of the cluster and counts the rest.
// A cluster that does not know the kind has none; the error then says so too.
func (o Options) sets(ctx context.Context, a applier) (names []string, more int64, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSetList"))
	if err := a.client.List(ctx, list, client.Limit(fewSets)); err != nil {
		return nil, 0, err
	}
	for _, set := range list.Items {
		names = append(names, set.Namespace+"/"+set.Name)
	}
	if list.RemainingItemCount != nil {
		more = *list.RemainingItemCount
	}
	return names, more, nil
}

// unknownKind is true for the answers of a cluster without the definition.
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

func (o Options) summary(changes map[change]int, removed int) string {
	is := "is"
	if o.DryRun {
		is = "would be"
	}
	if changes[created]+changes[configured]+removed == 0 {
		return fmt.Sprintf("Lockstep %s is installed; nothing had to be changed", version.Get().Version)
	}
	text := fmt.Sprintf("Lockstep %s %s installed: %d created, %d configured, %d unchanged",
		version.Get().Version, is, changes[created], changes[configured], changes[unchanged])
	if removed > 0 {
		text += fmt.Sprintf(", %d deleted", removed)
	}
	return text
}
