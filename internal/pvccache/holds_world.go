package pvccache

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
)

// world is what may hold a claim, and the chains of controllers above it: no more of
// the namespace is looked at.
func (h *Holds) world(claim *corev1.PersistentVolumeClaim) pvc.World {
	w := worldOf{Holds: h, links: map[types.UID]pvc.Link{}, seen: map[types.UID]bool{}}
	index, users := pvc.NewIndex(), []*corev1.Pod(nil)
	h.pods.using(claim.Namespace, []string{claim.Name}, nil, func(pod *corev1.Pod) {
		index.See(pod)
		users = append(users, pod)
	})
	for _, pod := range users {
		w.user(pod)
	}
	for _, wanting := range h.desired.of(claim.Namespace, claim.Name) {
		w.workload(wanting)
	}
	return pvc.World{
		Pods: index, Desire: pvc.NewDesire(claim.Namespace, w.wants), Links: w.links, Idle: h.settings.Idle,
		OwnersGone: pvc.OwnersGone(claim, h.isGone),
	}
}

// worldOf gathers the world of one claim.
type worldOf struct {
	*Holds
	wants []pvc.Want
	links map[types.UID]pvc.Link
	seen  map[types.UID]bool
}

func (w *worldOf) workload(found *workload) {
	for found != nil && !w.seen[found.UID] {
		w.seen[found.UID] = true
		w.wants = append(w.wants, found.want)
		found = w.above(found.owner)
	}
}

func (w *worldOf) user(pod *corev1.Pod) {
	if w.seen[pod.UID] {
		return
	}
	w.seen[pod.UID] = true
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return
	}
	w.links[pod.UID] = pvc.Link{Object: identity.RefOf(identity.KindPod, pod), Controller: owner.UID}
	w.workload(w.above(identity.OwnerRef(pod.Namespace, *owner)))
}

// above is the workload that a reference names. A pod that it names is a link to
// what is above that.
func (w *worldOf) above(ref identity.Ref) *workload {
	if ref.UID == "" {
		return nil
	}
	if ref.Kind == identity.KindPod {
		if pod := w.podOf(ref); pod != nil {
			w.user(pod)
		}
		return nil
	}
	found, _ := w.desired.named(ref)
	return found
}

func (w *worldOf) podOf(ref identity.Ref) (found *corev1.Pod) {
	w.pods.using(ref.Namespace, nil, []types.UID{ref.UID}, func(pod *corev1.Pod) {
		if pod.UID == ref.UID {
			found = pod
		}
	})
	return found
}
