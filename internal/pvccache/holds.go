package pvccache

import (
	"cmp"
	"context"
	"fmt"
	"strings"
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
	settings pvc.Settings
	grace    time.Duration
	worlds   *readings[pvc.World]
	givings  givings
}

// NewHolds returns a Holds that reads claims and namespaces from caches filled with
// ProtectionCaches. A hold outlives its last holder by grace.
func NewHolds(caches cache.Cache, claims *Claims, pods *Pods, desired *Desired, settings pvc.Settings, grace time.Duration) *Holds {
	return &Holds{Claims: claims, caches: caches, pods: pods, desired: desired, settings: settings, grace: grace, worlds: newReadings[pvc.World](sharedWorlds)}
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
	claim = h.givings.of(claim)
	namespace, err := h.Namespace(ctx, key.Namespace)
	if err != nil {
		return pvc.HoldView{}, err
	}
	unread := h.Unread() // what is read by the time that the world was looked at was not before
	return h.in(namespace, pvc.HoldView{
		Claim: claim, World: h.world(claim), Now: now, Grace: h.grace,
		Unread: cmp.Or(unread, h.Unread()), WaitingOwner: h.waitingOwner(claim),
	}), nil
}

// Unread names what may hold claims and is not all known, with commas between, or is
// empty: kinds of workloads, and pods that cannot be followed now.
func (h *Holds) Unread() string { return strings.Join(h.unread(), ", ") }

// UnreadKinds is how many these are.
func (h *Holds) UnreadKinds() int { return len(h.unread()) }

func (h *Holds) unread() []string {
	kinds := h.desired.unread()
	if h.pods.IsLost() {
		kinds = append(kinds, "pods")
	}
	return kinds
}

// in is a view with what the namespace says.
func (h *Holds) in(namespace *metav1.PartialObjectMetadata, view pvc.HoldView) pvc.HoldView {
	view.Mode = h.settings.ModeOf(view.Claim, namespace.Labels)
	view.NamespaceEnding, view.NamespaceReleased = namespace.DeletionTimestamp != nil, pvc.Released(namespace)
	return view
}

// InItsNamespace is a view with what the claim's own namespace says, read from the API
// server after the claim was seen: it is of the life that the claim belongs to.
func (h *Holds) InItsNamespace(ctx context.Context, view pvc.HoldView) (pvc.HoldView, error) {
	namespace, err := h.NamespaceOf(ctx, view.Claim.Namespace, []types.UID{view.Claim.UID}, view.Now)
	if err != nil {
		return view, err
	}
	view = h.in(namespace, view)
	view.NamespaceLive = true
	return view, nil
}

// waitingOwner is the controller of a claim, if it was deleted in the foreground, or nil.
// There is no way back from that: without it the claim is garbage.
func (h *Holds) waitingOwner(claim *corev1.PersistentVolumeClaim) *identity.Ref {
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil {
		return nil
	}
	ref := identity.OwnerRef(claim.Namespace, *owner)
	if w, _ := h.desired.named(ref); w == nil || !w.want.Foreground {
		return nil
	}
	return &ref
}

// goneOwner is the controller of a claim, if it is not there any more as far as the
// caches show, or nil. Of a kind that is not watched nothing can be said.
func (h *Holds) goneOwner(claim *corev1.PersistentVolumeClaim) *identity.Ref {
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil {
		return nil
	}
	ref := identity.OwnerRef(claim.Namespace, *owner)
	if ref.Kind == identity.KindPod && ref.APIVersion == "v1" {
		if h.pods.Has(ref.Namespace, ref.UID) {
			return nil
		}
		return &ref
	}
	if w, watched := h.desired.named(ref); w != nil || !watched {
		return nil
	}
	return &ref
}
