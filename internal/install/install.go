package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// Install makes the cluster hold exactly what this version needs. Run again, it changes
// nothing.
func Install(ctx context.Context, o Options) error {
	if err := checkURL(o.WebhookURL); err != nil {
		return err
	}
	if o.Print {
		return o.print()
	}
	a, err := o.open()
	if err != nil {
		return err
	}
	s, objects, err := o.prepare(ctx, a)
	if err != nil {
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
	s.reportLacks()
	if err := s.prune(ctx, a, objects); err != nil {
		return err
	}
	o.say("%s", o.summary(changes, *a.removed))
	return nil
}

// prepare renders the manifests, and refuses what would not go well before any write.
func (o Options) prepare(ctx context.Context, a applier) (shape, []*unstructured.Unstructured, error) {
	server, err := discovery.NewDiscoveryClientForConfig(o.REST)
	if err != nil {
		return shape{}, nil, err
	}
	lacks, err := operator.Lacks(server)
	if err != nil {
		return shape{}, nil, err
	}
	s, err := o.shape(lacks)
	if err != nil {
		return s, nil, err
	}
	objects, err := s.manifests()
	if err != nil {
		return s, nil, err
	}
	if err := s.refuse(ctx, a); err != nil {
		return s, nil, err
	}
	return s, objects, a.refuseLoss(ctx, objects)
}

// open checks that the cluster answers.
func (o Options) open() (applier, error) {
	if o.Timeout <= 0 {
		return applier{}, fmt.Errorf("--timeout %s: it must be more than nothing", o.Timeout)
	}
	if err := connect.Reach(o.REST); err != nil {
		return applier{}, err
	}
	unlimited := rest.CopyConfig(o.REST) // a cluster may have many PVCs to strip
	unlimited.QPS = -1
	c, err := client.New(unlimited, client.Options{Scheme: clientgoscheme.Scheme})
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
	if err == nil && u.GetKind() == "CustomResourceDefinition" && !o.DryRun {
		err = o.untilServed(ctx, a, u)
	}
	return what, err
}

// prune deletes what is not wanted any more: policies of another version or configuration,
// an installation of protection alone that this one replaces, protection switched off.
func (s shape) prune(ctx context.Context, a applier, wanted []*unstructured.Unstructured) error {
	w, err := s.withdrawal(ctx, a)
	if err != nil {
		return err
	}
	if !s.protects {
		if len(w.found) == 0 {
			return nil
		}
		return w.run(ctx, func() error {
			if s.Image == "" {
				return nil
			}
			return s.awaitPods(ctx, a, s.namespace(), s.mark())
		})
	}
	stale := slices.DeleteFunc(w.found, func(u *unstructured.Unstructured) bool {
		return slices.ContainsFunc(wanted, func(w *unstructured.Unstructured) bool { return title(w) == title(u) })
	})
	if err := s.removeAll(ctx, a, stale); err != nil {
		return err
	}
	doomed := obsolete()
	if !s.ProtectOnly {
		isAlone, err := s.installed(ctx, a, standalone["lws-proxy-role"])
		if err != nil || !isAlone {
			return err
		}
		if doomed, err = everything(alone); err != nil {
			return err
		}
	}
	if doomed, err = a.removable(ctx, doomed); err != nil {
		return err
	}
	return s.removeAll(ctx, a, doomed)
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
func (o Options) untilServed(ctx context.Context, a applier, crd *unstructured.Unstructured) error {
	return o.await(ctx, func(ctx context.Context) (string, error) {
		if _, _, err := o.sets(ctx, a); err != nil {
			return fmt.Sprintf("%s is not served: %v; see its conditions: kubectl get %[1]s -o yaml", title(crd), err), nil
		}
		return "", nil
	})
}

// await repeats a check until it names nothing that is missing.
func (o Options) await(ctx context.Context, check func(context.Context) (missing string, err error)) error {
	last := ""
	err := wait.PollUntilContextTimeout(ctx, pause, o.Timeout, true, func(ctx context.Context) (bool, error) {
		missing, err := check(ctx)
		if ctx.Err() == nil {
			last = missing
		}
		return err == nil && missing == "", err
	})
	if wait.Interrupted(err) && last != "" {
		return fmt.Errorf("%s (waited %s)", last, o.Timeout)
	}
	return err
}

// untilGone waits until an object is gone, or another has its name.
func (o Options) untilGone(ctx context.Context, a applier, u *unstructured.Unstructured) error {
	return o.await(ctx, func(ctx context.Context) (string, error) {
		live, err := a.get(ctx, u)
		if err != nil || live == nil || live.GetDeletionTimestamp() == nil {
			return "", err
		}
		return fmt.Sprintf("%s is still being deleted (finalizers: %q); see it with: kubectl get %[1]s -o yaml", title(u), live.GetFinalizers()), nil
	})
}

// fewSets is how many sets an error names.
const fewSets = 5

// sets names the first LeaderWorkerSets of the cluster and counts the rest.
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
