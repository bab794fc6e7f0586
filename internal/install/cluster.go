package install

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/connect"
	"lockstep.dev/lockstep/internal/terminal"
)

const (
	// fieldManager is the manager of everything that install writes. An object that has no
	// field of it is another implementation's, or a user's.
	fieldManager = "lockstep-install"
	// pause is the time between two reads of an object that is to come or go.
	pause = 200 * time.Millisecond
)

// cluster is where install and uninstall read and write.
type cluster struct {
	Options
	client client.Client
	// typed reads leases, and what the API server serves.
	typed kubernetes.Interface
	// deleted counts deletions.
	deleted int
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
	typed, err := kubernetes.NewForConfig(unlimited)
	if err != nil {
		return nil, err
	}
	c, err := client.New(unlimited, client.Options{Scheme: clientgoscheme.Scheme, DryRun: &o.DryRun})
	return &cluster{Options: o, client: c, typed: typed}, err
}

// change is what became of one object.
type change string

const (
	created    change = "created"
	configured change = "configured"
	unchanged  change = "unchanged"
)

// apply creates an object, or makes it what the manifest says. A second install may do the
// same at the same time: the object is read again.
func (c *cluster) apply(ctx context.Context, want *unstructured.Unstructured) (what change, err error) {
	err = retry.OnError(retry.DefaultBackoff, isRace, func() error {
		live, err := Live(ctx, c.client, want)
		if err == nil && live != nil && live.GetDeletionTimestamp() != nil && !c.DryRun {
			c.say("waiting for %s, which is being deleted", title(want))
			live, err = nil, c.untilGone(ctx, want)
		}
		if err != nil {
			return err
		}
		if live == nil {
			what = created
			return c.create(ctx, want.DeepCopy())
		}
		what, err = c.replace(ctx, live, want)
		return err
	})
	switch {
	case apierrors.IsInvalid(err):
		return what, fmt.Errorf("apply %s: %w; if another tool made it, delete it and run install again", title(want), err)
	case err != nil:
		return what, fmt.Errorf("apply %s: %w", title(want), err)
	}
	return what, nil
}

func isRace(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

func (c *cluster) create(ctx context.Context, u *unstructured.Unstructured) error {
	if u.GetKind() == "Namespace" {
		u.SetAnnotations(map[string]string{createdHere: "true"})
	}
	err := c.client.Create(ctx, u, client.FieldOwner(fieldManager))
	if c.DryRun && apierrors.IsNotFound(err) && u.GetNamespace() != "" {
		return nil // its namespace would have been created first
	}
	return err
}

// replace writes each field of a manifest as a whole, for the version that was read. Another implementation, or a user,
// may have written under our names. A merge would leave a Service beside a URL, a webhook on a path that is gone, a
// policy with one condition more. The API server writes nothing if nothing changes.
func (c *cluster) replace(ctx context.Context, live, want *unstructured.Unstructured) (change, error) {
	next := live.DeepCopy()
	for field, value := range want.DeepCopy().Object {
		if field != "metadata" {
			next.Object[field] = value
		}
	}
	next.SetLabels(labels.Merge(live.GetLabels(), want.GetLabels()))
	next.SetAnnotations(labels.Merge(live.GetAnnotations(), want.GetAnnotations()))
	c.keepAllocated(next, live)
	err := c.client.Update(ctx, next, client.FieldOwner(fieldManager))
	// What the API server writes does not count. A dry run leaves the resourceVersion.
	next.SetManagedFields(live.GetManagedFields())
	next.SetGeneration(live.GetGeneration())
	next.SetResourceVersion(live.GetResourceVersion())
	if err != nil || reflect.DeepEqual(next.Object, live.Object) {
		return unchanged, err
	}
	return configured, nil
}

// keepAllocated copies what others write into the fields of a manifest: the API server gives a Service its
// address, and a user gives the operator more memory.
func (c *cluster) keepAllocated(to, from *unstructured.Unstructured) {
	if to.GetKind() == "Deployment" {
		ours, live := operatorIn(to), operatorIn(from)
		if limit := memoryOf(live); limit.Cmp(memoryOf(ours)) > 0 {
			ours["resources"] = live["resources"]
		}
	}
	if to.GetKind() == "Service" {
		spec := maps.Clone(from.Object["spec"].(map[string]any))
		maps.Copy(spec, to.Object["spec"].(map[string]any))
		to.Object["spec"] = spec
	}
	c.keepBundles(to, from)
}

// memoryOf returns the limit of memory of a container.
func memoryOf(container map[string]any) resource.Quantity {
	text, _, _ := unstructured.NestedString(container, "resources", "limits", "memory")
	return resource.MustParse(cmp.Or(text, "0"))
}

// operatorIn returns the first container of a Deployment, which runs the operator.
func operatorIn(deployment *unstructured.Unstructured) map[string]any {
	containers, _, _ := unstructured.NestedFieldNoCopy(deployment.Object, "spec", "template", "spec", "containers")
	return containers.([]any)[0].(map[string]any)
}

// isOurs reports whether install wrote fields of an object.
func isOurs(u *unstructured.Unstructured) bool {
	return slices.ContainsFunc(u.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == fieldManager && e.Subresource == ""
	})
}

// Live returns the object in the cluster that has kind and name of another. It returns nil for one
// that does not exist, or whose kind the API server lacks.
func Live(ctx context.Context, c client.Reader, want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(want.GroupVersionKind())
	err := c.Get(ctx, client.ObjectKeyFromObject(want), live)
	if unknownKind(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", title(want), err)
	}
	return live, nil
}

// list returns the objects of a kind, and none if the API server lacks the kind.
func (c *cluster) list(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	if err := c.client.List(ctx, list, options...); err != nil && !unknownKind(err) {
		return nil, fmt.Errorf("list objects of kind %s: %w", kind.Kind, err)
	}
	return list.Items, nil
}

// each reads a list, and shows its objects one by one.
func (c *cluster) each(ctx context.Context, list client.ObjectList, see func(client.Object) error, options ...client.ListOption) error {
	if err := c.client.List(ctx, list, options...); err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	return meta.EachListItem(list, func(o runtime.Object) error { return see(o.(client.Object)) })
}

// unknownKind reports whether an object, or its kind, does not exist.
func unknownKind(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// untilGone waits until an object is gone, or another has its name.
func (c *cluster) untilGone(ctx context.Context, u *unstructured.Unstructured) error {
	return c.await(ctx, func(ctx context.Context) (string, error) {
		live, err := Live(ctx, c.client, u)
		if err != nil || live == nil || live.GetDeletionTimestamp() == nil {
			return "", err
		}
		return fmt.Sprintf("%s is still being deleted (finalizers: %q); see it with: kubectl get %[1]s -o yaml", title(u), live.GetFinalizers()), nil
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

// blocked returns an error that names some objects and counts the rest.
func blocked(what string, names []string, remedy string) error {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("%s: %s; %s", what, terminal.Few(names, 5), remedy)
}

func (o Options) say(format string, args ...any) {
	if o.DryRun {
		format += " (dry run)"
	}
	fmt.Fprintf(o.Out, format+"\n", args...)
}
