// Package pvc is what kubectl lockstep does with PersistentVolumeClaims: it reads what explains one, tries
// a DELETE as a dry run, and releases one.
//
// It reads live through the operator's reader, with the user's credentials, and needs no Lockstep in the
// cluster. What may not be read is listed as unread, and never taken for absent. It knows no flags, and not
// how results are shown.
package pvc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/install/place"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
	"lockstep.dev/lockstep/internal/pvccache"
)

// Reader reads what explains PVCs.
type Reader struct {
	Client source
	// Brief reads no volumes and nodes for PVCs that are not being deleted.
	Brief bool
	// Now is the time at which PVCs are explained. Zero: that of the read.
	Now time.Time
	// config is nil until it is read.
	config *configuration
}

// source is an API server that is not written to.
type source interface {
	client.Reader
	RESTMapper() meta.RESTMapper
}

// Found is one PVC, and all that explains it.
type Found struct {
	pvc.Case
	// ModeFrom says where the mode was read.
	ModeFrom string
}

// Explain reads all that explains PVCs of one namespace. The reads begin after the PVCs were read: a pod
// that is bound later cannot start on a terminating PVC.
func (r *Reader) Explain(ctx context.Context, namespace string, claims []corev1.PersistentVolumeClaim) (all []*Found, err error) {
	if len(claims) == 0 {
		return nil, nil
	}
	shared := pvc.Case{
		HoldView: pvc.HoldView{Now: cmp.Or(r.Now, time.Now())}, Pods: map[types.UID]*corev1.Pod{}, Nodes: map[string]*corev1.Node{},
	}
	config := r.configuration(ctx)
	reader := pvccache.Reader{Live: r.Client, Kinds: config.kinds, Started: restart.LargestStarted, Served: r.served}
	n := reader.Read(ctx, namespace, func(pod *corev1.Pod) {
		names := pvc.ClaimsOf(pod)
		if slices.ContainsFunc(claims, func(c corev1.PersistentVolumeClaim) bool { return slices.Contains(names, c.Name) }) {
			shared.Pods[pod.UID] = pod
		}
	})
	for _, u := range n.Unread {
		if err := missed(&shared, u.What, u.Err, u.What != pvccache.UnreadNamespace); err != nil {
			return nil, err
		}
	}
	shared.NamespaceEnding = n.Meta.DeletionTimestamp != nil
	for i := range claims {
		f := &Found{Case: shared}
		f.Claim, f.World, f.Unread = &claims[i], n.Of(&claims[i]), slices.Clone(shared.Unread)
		f.Mode, f.ModeFrom = config.modeOf(f.Claim, n.Meta.Labels)
		if config.unread != "" && bearsOurs(f.Claim) { // the operator may know kinds that this read lacks
			f.Unread = append(f.Unread, pvc.Unread{What: "kinds of workloads in " + configurationName, Why: config.unread})
		}
		if err := r.volumeAndNodes(ctx, &f.Case); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// served finds the resource of a kind in whatever version the API server serves.
func (r *Reader) served(_ context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	mapping, err := r.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		mapping, err = r.Client.RESTMapper().RESTMapping(kind.GroupKind())
	}
	switch {
	case meta.IsNoMatchError(err):
		return schema.GroupVersionResource{}, nil
	case err != nil:
		return schema.GroupVersionResource{}, fmt.Errorf("read the served versions: %w", err)
	}
	return mapping.Resource, nil
}

// bearsOurs reports whether a PVC has a finalizer or an annotation of Lockstep.
func bearsOurs(claim *corev1.PersistentVolumeClaim) bool {
	keys := slices.AppendSeq(slices.Clone(claim.Finalizers), maps.Keys(claim.Annotations))
	return slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, pvc.Prefix) })
}

// volumeAndNodes reads the volume of a PVC, and the nodes of the pods that hold it, each once.
func (r *Reader) volumeAndNodes(ctx context.Context, c *pvc.Case) error {
	if r.Brief && c.Claim.DeletionTimestamp == nil {
		return nil
	}
	if name := c.Claim.Spec.VolumeName; name != "" {
		volume := &corev1.PersistentVolume{}
		err := r.Client.Get(ctx, client.ObjectKey{Name: name}, volume)
		switch {
		case apierrors.IsNotFound(err):
			c.VolumeGone = true
		case err == nil:
			c.Volume = volume
		default:
			if err := missed(c, "persistentvolume "+name, err, false); err != nil {
				return err
			}
		}
	}
	for _, use := range c.World.Pods.Holding(c.Claim) {
		if _, known := c.Nodes[use.Node]; known {
			continue
		}
		node := &corev1.Node{}
		err := r.Client.Get(ctx, client.ObjectKey{Name: use.Node}, node)
		switch {
		case apierrors.IsNotFound(err):
			node = nil
		case err != nil:
			return missed(c, "node "+use.Node, err, false)
		}
		c.Nodes[use.Node] = node
	}
	return nil
}

// missed adds what could not be read. Without credentials, and after a timeout, the whole read fails.
func missed(c *pvc.Case, what string, err error, mayHold bool) error {
	if apierrors.IsUnauthorized(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	c.Unread = append(c.Unread, pvc.Unread{What: what, Why: why(err), MayHold: mayHold})
	return nil
}

func why(err error) string {
	if apierrors.IsForbidden(err) {
		return "you may not read it"
	}
	return err.Error()
}

const configurationName = "configmap " + v1alpha1.InstalledName + " of the operator"

// configuration is what the operator's configuration in the cluster says of PVCs.
type configuration struct {
	kinds []workloads.Kind
	// unread is why it could not be read, or empty.
	unread string
	// settings are nil where no configuration was read.
	settings *pvc.Settings
}

// configuration reads the configuration once. The operator's own namespace is exempt.
func (r *Reader) configuration(ctx context.Context) *configuration {
	if r.config != nil {
		return r.config
	}
	r.config = &configuration{}
	var described []v1alpha1.WorkloadKind
	namespaces, unplaced := place.Namespaces(ctx, r.Client)
	for _, namespace := range namespaces {
		found, parsed := &corev1.ConfigMap{}, &v1alpha1.Configuration{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.InstalledName}, found)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err == nil {
			err = yaml.Unmarshal([]byte(found.Data[v1alpha1.InstalledKey]), parsed)
		}
		if err != nil {
			r.config.unread = why(err)
			continue
		}
		v1alpha1.SetDefaults(parsed)
		described = append(described, parsed.Protection.Kinds...)
		mode, _ := pvc.ParseMode(strings.ToLower(string(parsed.Protection.Mode)))
		r.config.settings = &pvc.Settings{Mode: mode, Exempt: append(parsed.Protection.ExemptNamespaces, namespace)}
	}
	if unplaced != nil && r.config.settings == nil && r.config.unread == "" {
		r.config.unread = why(unplaced)
	}
	r.config.kinds = workloads.KindsOf(described)
	return r.config
}

// modeOf is the mode of a PVC and where it was read. Without a configuration, the annotations and
// finalizers of the PVC show the mode.
func (c *configuration) modeOf(claim *corev1.PersistentVolumeClaim, labels map[string]string) (pvc.Mode, string) {
	settings, from := c.settings, "configuration"
	if settings == nil {
		settings, from = shownBy(claim), "the annotations and finalizers of the PVC"
	}
	mode, chosen := settings.ModeOf(claim, labels), settings.Mode
	if m, ok := pvc.ParseMode(labels[pvc.ModeKey]); ok {
		chosen, from = m, "label of the namespace"
	}
	if m, ok := pvc.ParseMode(claim.Annotations[pvc.ModeKey]); ok {
		chosen, from = m, "annotation of the PVC"
	}
	switch {
	case slices.Contains(settings.Exempt, claim.Namespace):
		from = "exempt namespace"
	case mode != chosen:
		from = "ephemeral volume of a pod"
	}
	return mode, from
}

func shownBy(claim *corev1.PersistentVolumeClaim) *pvc.Settings {
	switch {
	case claim.Annotations[pvc.HoldersAnnotation] != "":
		return &pvc.Settings{Mode: pvc.Hold}
	case slices.Contains(claim.Finalizers, pvc.BarrierFinalizer):
		return &pvc.Settings{Mode: pvc.Barrier}
	case claim.Annotations[pvc.ObservedAnnotation] != "":
		return &pvc.Settings{Mode: pvc.Observe}
	}
	return &pvc.Settings{Exempt: []string{v1alpha1.DefaultExemptNamespace}}
}

// Held reports whether a DELETE of a PVC or a namespace is refused, or a terminating PVC keeps its
// finalizers. A terminating namespace is past all refusal.
func Held(object client.Object) bool {
	if _, isNamespace := object.(*corev1.Namespace); isNamespace {
		count := object.GetAnnotations()[pvc.HeldClaimsAnnotation]
		return object.GetDeletionTimestamp() == nil && count != "" && count != "0"
	}
	return object.GetAnnotations()[pvc.HoldersAnnotation] != ""
}

// Release writes the release token onto a held object as it was shown. It fails if the object has changed.
func Release(ctx context.Context, c client.Client, shown client.Object) error {
	next := shown.DeepCopyObject().(client.Object)
	next.GetAnnotations()[pvc.ReleaseAnnotation] = string(shown.GetUID())
	return c.Patch(ctx, next, client.MergeFromWithOptions(shown, client.MergeFromWithOptimisticLock{}), client.FieldOwner(clilws.FieldOwner))
}
