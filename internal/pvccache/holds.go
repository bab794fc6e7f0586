package pvccache

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
)

// Holds sees who holds a claim: pods, and what workloads want. It is safe for
// concurrent use.
type Holds struct {
	*Claims
	caches   cache.Cache
	pods     *Pods
	desired  *Desired
	reader   Reader
	reads    liveReads
	settings pvc.Settings
	grace    time.Duration
}

// NewHolds returns a Holds that reads claims and namespaces from caches filled with
// ProtectionCaches. A hold outlives its last holder by grace.
func NewHolds(caches cache.Cache, claims *Claims, pods *Pods, desired *Desired, reader Reader, settings pvc.Settings, grace time.Duration) *Holds {
	return &Holds{Claims: claims, caches: caches, pods: pods, desired: desired, reader: reader, settings: settings, grace: grace}
}

const (
	// indexNumbered finds claims by what is left of their names without numbers.
	indexNumbered = "protection.numbered"
	// indexPodOwned finds claims by the pod that controls them.
	indexPodOwned = "protection.pod-owned"
)

// IndexHolds adds the index that Holds reads by. It must run before the caches start.
func IndexHolds(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &corev1.PersistentVolumeClaim{}, indexNumbered, func(o client.Object) []string {
		return pvc.Prefixes(o.GetName())
	})
	if err != nil {
		return err
	}
	return indexer.IndexField(ctx, &corev1.PersistentVolumeClaim{}, indexPodOwned, podOwner)
}

func podOwner(claim client.Object) []string {
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil || identity.OwnerRef(claim.GetNamespace(), *owner).Kind != identity.KindPod {
		return nil
	}
	return []string{string(owner.UID)}
}

// AwaitSync waits until all that is always there has been read once. Before that
// nothing can be decided.
func (h *Holds) AwaitSync(ctx context.Context) error {
	if !h.caches.WaitForCacheSync(ctx) {
		return fmt.Errorf("claims are not read yet: %w", context.Cause(ctx))
	}
	if err := h.pods.AwaitSync(ctx); err != nil {
		return err
	}
	return h.desired.AwaitSync(ctx)
}

// View is a claim and all that may hold it. Where there is no such claim, that of
// the view is nil.
func (h *Holds) View(ctx context.Context, key types.NamespacedName, now time.Time) (pvc.HoldView, error) {
	claim, err := h.Get(ctx, key)
	if err != nil || claim == nil {
		return pvc.HoldView{}, err
	}
	namespace, err := h.Namespace(ctx, key.Namespace)
	if err != nil {
		return pvc.HoldView{}, err
	}
	return h.in(namespace, pvc.HoldView{Claim: claim, World: h.world(claim), Now: now, Grace: h.grace}), nil
}

// Live is the view with its namespace, and all in it that may hold the PVC, read from the
// API server after the call. What cannot be read may hold the PVC: it is an error.
func (h *Holds) Live(ctx context.Context, view pvc.HoldView) (pvc.HoldView, error) {
	n := h.reads.of(view.Claim.Namespace, func() *Namespace {
		return h.reader.Read(ctx, view.Claim.Namespace, func(*corev1.Pod) {})
	})
	if err := n.Err(); err != nil {
		return view, err
	}
	view = h.in(n.Meta, view)
	view.World, view.Live = n.Of(view.Claim), true
	view.World.Idle = h.settings.Idle
	return view, nil
}

// in is a view with what the namespace says.
func (h *Holds) in(namespace *metav1.PartialObjectMetadata, view pvc.HoldView) pvc.HoldView {
	view.Mode = h.settings.ModeOf(view.Claim, namespace.Labels)
	view.NamespaceEnding, view.NamespaceReleased = namespace.DeletionTimestamp != nil, pvc.Released(namespace)
	return view
}

// isGone reports whether an owner is gone as far as the caches show, or was deleted in the
// foreground and waits for its dependents. An owner of a kind that is not watched is not.
func (h *Holds) isGone(owner identity.Ref) bool {
	if owner.Kind == identity.KindPod && owner.APIVersion == "v1" {
		return !h.pods.Has(owner.Namespace, owner.UID)
	}
	w, watched := h.desired.named(owner)
	if w != nil {
		return w.want.Foreground
	}
	return watched
}
