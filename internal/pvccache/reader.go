// Package pvccache reads what decisions about PVCs are made from: PVCs, the pods that use them, and
// the workloads that want them.
//
// It knows which reads are cached and which are live. It refuses to decide what holds a PVC, and it never writes.
package pvccache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// pageSize is the number of objects in one page of a list.
const pageSize = 500

// eachItem calls see for every object of a kind in a namespace, page by page.
func eachItem(ctx context.Context, live client.Reader, list client.ObjectList, namespace string, see func(runtime.Object) error) error {
	options := client.ListOptions{Namespace: namespace, Limit: pageSize}
	for {
		page := list.DeepCopyObject().(client.ObjectList) // see may keep objects
		if err := live.List(ctx, page, &options); err != nil {
			return err
		}
		if err := meta.EachListItem(page, see); err != nil || page.GetContinue() == "" {
			return err
		}
		options.Continue = page.GetContinue()
	}
}

// Reader reads from the API server all that may hold the PVCs of a namespace. The operator
// and `kubectl lockstep why` use the same one, each with its own credentials.
type Reader struct {
	// Live must not read from a cache of this process.
	Live client.Reader
	// Served finds the resource of a kind in whatever version it is served, and an empty one
	// where the API server serves none. Nil: kinds are served as described.
	Served func(context.Context, schema.GroupVersionKind) (schema.GroupVersionResource, error)
	// Kinds are the workloads beside those that are built in.
	Kinds []workloads.Kind
	// Started is the size of the groups of a LeaderWorkerSet.
	Started workloads.GroupSize
}

// Namespace is all in one namespace that may hold its PVCs.
type Namespace struct {
	Meta  *metav1.PartialObjectMetadata
	World pvc.World
	// Unread is what could not be read. It may hold any PVC.
	Unread []Unread
	// kinds are those whose objects are all in World.
	kinds map[schema.GroupKind]bool
}

// UnreadNamespace is the Unread of the Namespace object, which holds no PVC.
const UnreadNamespace = "namespace"

// Unread is a kind that could not be read.
type Unread struct {
	What string
	Err  error
}

// Err is why something could not be read, or nil.
func (n *Namespace) Err() error {
	var all []error
	for _, u := range n.Unread {
		all = append(all, fmt.Errorf("read %s of %q: %w", u.What, n.Meta.Name, u.Err))
	}
	return errors.Join(all...)
}

// Of is the world of one PVC of the namespace.
func (n *Namespace) Of(claim *corev1.PersistentVolumeClaim) pvc.World {
	world := n.World
	world.OwnersGone = pvc.OwnersGone(claim, func(owner identity.Ref) bool {
		kind := schema.FromAPIVersionAndKind(owner.APIVersion, string(owner.Kind)).GroupKind()
		return world.GoneLive(owner, n.kinds[kind])
	})
	return world
}

// Read reads one list of each kind. A PVC that was seen before the call and still exists
// belongs to this incarnation of the namespace. see is called for every pod.
func (r Reader) Read(ctx context.Context, name string, see func(*corev1.Pod)) *Namespace {
	n := &Namespace{Meta: NewNamespace(name), kinds: map[schema.GroupKind]bool{}}
	n.note(UnreadNamespace, schema.GroupKind{}, client.IgnoreNotFound(r.Live.Get(ctx, client.ObjectKey{Name: name}, n.Meta)))
	n.note(pvc.UnreadPods, schema.GroupKind{Kind: string(identity.KindPod)}, r.pods(ctx, n, see))
	var wants []workloads.Want
	for _, s := range r.sources() {
		more, err := r.list(ctx, name, s)
		n.note(s.name, s.GroupKind(), err)
		if err == nil {
			wants = append(wants, more...)
		}
	}
	n.World.Desire = workloads.NewDesire(name, wants)
	return n
}

// note records that a kind was read, or why it was not.
func (n *Namespace) note(what string, kind schema.GroupKind, err error) {
	if err != nil {
		n.Unread = append(n.Unread, Unread{what, err})
		return
	}
	n.kinds[kind] = true
}

func (r Reader) pods(ctx context.Context, n *Namespace, see func(*corev1.Pod)) error {
	n.World.Pods, n.World.Links = pvc.NewIndex(), map[types.UID]types.UID{}
	return eachItem(ctx, r.Live, &corev1.PodList{}, n.Meta.Name, func(object runtime.Object) error {
		pod := object.(*corev1.Pod)
		n.World.Pods.See(pod)
		n.World.Links[pod.UID] = ""
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
			n.World.Links[pod.UID] = owner.UID
		}
		see(pod)
		return nil
	})
}

// source is one kind of workload.
type source struct {
	schema.GroupVersionKind
	name  string
	typed bool
	wants func(object any) workloads.Want
}

func (r Reader) sources() []source {
	sources := []source{{leaderWorkerSets, resourceOf(leaderWorkerSets), false, r.Started.OfLeaderWorkerSet}}
	for _, kind := range builtInKinds {
		sources = append(sources, source{kind, resourceOf(kind), true, workloads.BuiltIn})
	}
	for _, kind := range r.Kinds {
		name := resourceOf(kind.GroupVersionKind)
		if kind.GroupKind() != workloads.JobSet.GroupKind() {
			name += "." + kind.Group
		}
		sources = append(sources, source{kind.GroupVersionKind, name, false, kind.Of})
	}
	return sources
}

// list returns what the workloads of one kind want. A kind that discovery does not list has no objects.
func (r Reader) list(ctx context.Context, namespace string, s source) (all []workloads.Want, err error) {
	as, list := s.GroupVersion(), client.ObjectList(&unstructured.UnstructuredList{})
	switch {
	case s.typed:
		typed, err := scheme.Scheme.New(as.WithKind(s.Kind + "List"))
		if err != nil {
			return nil, err
		}
		list = typed.(client.ObjectList)
	case r.Served != nil:
		resource, err := r.Served(ctx, s.GroupVersionKind)
		if err != nil || resource.Resource == "" {
			return nil, err
		}
		as = resource.GroupVersion()
	}
	list.GetObjectKind().SetGroupVersionKind(as.WithKind(s.Kind + "List"))
	err = eachItem(ctx, r.Live, list, namespace, func(object runtime.Object) error {
		all = append(all, s.wants(object))
		return nil
	})
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	return all, err
}

// liveReads shares live reads of a namespace between calls that came before the read began.
type liveReads struct{ running singleflight.Group }

// of returns what a read of the namespace found that began after the call. One read of a namespace
// runs at a time. A call that finds one running shares the next one.
func (l *liveReads) of(namespace string, read func() *Namespace) (found *Namespace) {
	began := false
	for range 2 {
		result, _, _ := l.running.Do(namespace, func() (any, error) {
			began = true
			return read(), nil
		})
		if found = result.(*Namespace); began {
			break
		}
	}
	return found
}

// NewNamespace returns a namespace as the caches hold it: metadata alone.
func NewNamespace(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}

// ProtectionCaches are the caches of all PVCs and namespaces, trimmed. Readers get the cached
// objects themselves, and must never change them.
func ProtectionCaches() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&corev1.PersistentVolumeClaim{}: trimmed(), NewNamespace(""): trimmed()}
}

// VolumeCaches are the caches of PersistentVolumes, trimmed, for clusters where no built-in controller protects them.
func VolumeCaches() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&corev1.PersistentVolume{}: trimmed()}
}

func trimmed() cache.ByObject {
	return cache.ByObject{UnsafeDisableDeepCopy: new(true), Transform: trim}
}

// trim keeps of a PVC, a volume or a namespace its metadata with our labels and annotations, its
// phase, conditions, and the name of the volume.
func trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.PersistentVolumeClaim:
		trimMetadata(&o.ObjectMeta)
		o.Spec = corev1.PersistentVolumeClaimSpec{VolumeName: o.Spec.VolumeName}
		o.Status = corev1.PersistentVolumeClaimStatus{Phase: o.Status.Phase, Conditions: o.Status.Conditions}
	case *corev1.PersistentVolume:
		trimMetadata(&o.ObjectMeta)
		o.Spec, o.Status = corev1.PersistentVolumeSpec{}, corev1.PersistentVolumeStatus{Phase: o.Status.Phase}
	case *metav1.PartialObjectMetadata:
		trimMetadata(&o.ObjectMeta)
	}
	return object, nil
}

// trimMetadata keeps our labels and annotations, and drops managedFields.
func trimMetadata(meta *metav1.ObjectMeta) {
	foreign := func(key, _ string) bool { return !strings.HasPrefix(key, pvc.Prefix) }
	meta.ManagedFields = nil
	maps.DeleteFunc(meta.Annotations, foreign)
	maps.DeleteFunc(meta.Labels, foreign)
}

// PVC returns a PVC, or nil. One from a cache must not be changed.
func PVC(ctx context.Context, reader client.Reader, key types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	err := reader.Get(ctx, key, claim)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read PVC %q: %w", key, err)
	}
	return claim, nil
}

// PVCsOf returns the PVCs of a namespace. Those from a cache must not be changed.
func PVCsOf(ctx context.Context, reader client.Reader, namespace string) ([]corev1.PersistentVolumeClaim, error) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list PVCs of %q: %w", namespace, err)
	}
	return list.Items, nil
}

// NamespaceOf returns a namespace, empty if it does not exist. One from a cache may be late, or
// of another incarnation: it can add a hold, and must not end one.
func NamespaceOf(ctx context.Context, reader client.Reader, name string) (*metav1.PartialObjectMetadata, error) {
	namespace := NewNamespace(name)
	err := reader.Get(ctx, types.NamespacedName{Name: name}, namespace)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read namespace %q: %w", name, err)
	}
	return namespace, nil
}
