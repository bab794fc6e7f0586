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
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// Holds reads what holds a PVC: pods, and workloads that want it. It is safe for concurrent use.
type Holds struct {
	// Caches must have ProtectionCaches and IndexHolds.
	Caches    cache.Cache
	Pods      *Pods
	Workloads *Workloads
	Reader    Reader
	Settings  pvc.Settings
	// Grace is how long a hold outlives its last holder.
	Grace time.Duration

	reads liveReads
}

// indexNumbered finds PVCs by their names without numbers.
const indexNumbered = "protection.numbered"

// IndexHolds adds the index of Holds. It must run before the caches start.
func IndexHolds(ctx context.Context, indexer client.FieldIndexer) error {
	return indexer.IndexField(ctx, &corev1.PersistentVolumeClaim{}, indexNumbered, func(o client.Object) []string {
		return workloads.Prefixes(o.GetName())
	})
}

// AwaitSync waits until everything has been read once. Before, every PVC would need a live read.
func (h *Holds) AwaitSync(ctx context.Context) error {
	if !h.Caches.WaitForCacheSync(ctx) {
		return fmt.Errorf("PVCs are not synced yet: %w", context.Cause(ctx))
	}
	if err := h.Pods.AwaitSync(ctx); err != nil {
		return err
	}
	return h.Workloads.AwaitSync(ctx)
}

// View returns a PVC and what the caches show that may hold it. Its claim is nil if the PVC does not exist.
func (h *Holds) View(ctx context.Context, key types.NamespacedName, now time.Time) (pvc.HoldView, error) {
	claim, err := PVC(ctx, h.Caches, key)
	if err != nil || claim == nil {
		return pvc.HoldView{}, err
	}
	namespace, err := NamespaceOf(ctx, h.Caches, key.Namespace)
	if err != nil {
		return pvc.HoldView{}, err
	}
	return h.in(namespace, pvc.HoldView{Claim: claim, World: h.world(claim), Now: now, Grace: h.Grace}), nil
}

// Live returns the view with its namespace, and all in it that may hold the PVC, read live after
// the call. A kind that cannot be read may hold the PVC: that is an error.
func (h *Holds) Live(ctx context.Context, view pvc.HoldView) (pvc.HoldView, error) {
	n := h.reads.of(view.Claim.Namespace, func() *Namespace {
		return h.Reader.Read(ctx, view.Claim.Namespace, func(*corev1.Pod) {})
	})
	if err := n.Err(); err != nil {
		return view, err
	}
	view = h.in(n.Meta, view)
	view.World, view.Live = n.Of(view.Claim), true
	view.World.Idle = h.Settings.Idle
	return view, nil
}

// in returns a view with the fields of its namespace.
func (h *Holds) in(namespace *metav1.PartialObjectMetadata, view pvc.HoldView) pvc.HoldView {
	view.Mode = h.Settings.ModeOf(view.Claim, namespace.Labels)
	view.NamespaceEnding, view.NamespaceReleased = namespace.DeletionTimestamp != nil, pvc.Released(namespace)
	return view
}

// isGone reports whether the caches show that an owner is gone, or is deleted in the foreground.
// An owner of a kind that is not watched is not gone.
func (h *Holds) isGone(owner identity.Ref) bool {
	if owner.Kind == identity.KindPod && owner.APIVersion == "v1" {
		return !h.Pods.Has(owner.Namespace, owner.UID)
	}
	w, watched := h.Workloads.named(owner)
	if w != nil {
		return w.want.Foreground
	}
	return watched
}

// world returns what may hold a PVC, and the chains of controllers above that.
func (h *Holds) world(claim *corev1.PersistentVolumeClaim) pvc.World {
	world := pvc.World{
		Pods: pvc.NewIndex(), Links: map[types.UID]types.UID{}, Idle: h.Settings.Idle,
		OwnersGone: pvc.OwnersGone(claim, h.isGone),
	}
	var wants []workloads.Want
	var above []identity.Ref
	seen := map[types.UID]bool{}
	link := func(pod *corev1.Pod) {
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && !seen[pod.UID] {
			seen[pod.UID], world.Links[pod.UID] = true, owner.UID
			above = append(above, identity.OwnerRef(pod.Namespace, *owner))
		}
	}
	want := func(found *workload) {
		if found != nil && !seen[found.UID] {
			seen[found.UID], wants, above = true, append(wants, found.want), append(above, found.want.Controller)
		}
	}
	h.Pods.using(claim.Namespace, []string{claim.Name}, nil, func(pod *corev1.Pod) {
		world.Pods.See(pod)
		link(pod)
	})
	for _, found := range h.Workloads.wanting(claim.Namespace, claim.Name) {
		want(found)
	}
	for ; len(above) > 0; above = above[1:] {
		if above[0].Kind != identity.KindPod {
			found, _ := h.Workloads.named(above[0])
			want(found)
			continue
		}
		for _, pod := range h.Pods.by(indexUID, above[0].Namespace+"/"+string(above[0].UID)) {
			link(pod.Pod())
		}
	}
	world.Desire = workloads.NewDesire(claim.Namespace, wants)
	return world
}
