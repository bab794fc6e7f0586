package interleave

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/kubelet"
)

// What is counted.
const (
	mounted      = "mounted"
	admittedLate = "admitted while terminating"
	crashes      = "crashes of ours"
	replicas     = "two of ours at a time"
	requestsLost = "requests lost"
	refusals     = "requests refused"
	answersLost  = "answers lost"
	watchBroken  = "watches broken off"
	onNode       = "created on a node"
	finished     = "finished"
	forced       = "deleted by force"
	stripped     = "stripped"
	boundOn      = "bound on record"
)

// premises are what has to happen for a run to be worth anything, whatever pods are
// started by.
var premises = []string{mounted, crashes, replicas, requestsLost, refusals, answersLost, watchBroken, finished, forced, stripped}

// premisesOf are those that depend on it.
var premisesOf = map[start][]string{
	anyhow: {admittedLate, onNode, "refused by " + kubelet.Today.String(), "refused by " + kubelet.Old.String()},
	gated:  {boundOn},
	plugin: {boundOn},
}

var errGone = errors.New("is gone")

// lost is the first law that is broken now.
func (w *world) lost() error {
	for _, name := range sorted(w.store.pods()) {
		if w.broken == nil {
			w.broken = w.losses(w.store.pods()[name])
		}
	}
	return w.broken
}

// losses returns the first law that is broken for a pod.
func (w *world) losses(pod *corev1.Pod) error {
	for claim, m := range w.mounts[pod.UID] {
		if m.done && w.isGone(claim, m.claim) {
			return fmt.Errorf("pod %s has PVC %s (%s) mounted, which %w", pod.Name, claim, m.claim, errGone)
		}
	}
	for claim, uid := range w.bound[pod.UID] {
		if w.isGone(claim, uid) {
			return fmt.Errorf("pod %s was bound on the record of PVC %s (%s), which %w", pod.Name, claim, uid, errGone)
		}
	}
	if w.rules.start == gated && !pvc.Gated(pod) && !w.lifted[pod.UID] {
		w.lifted[pod.UID] = true
		_, err := w.recorded(pod.Name, pod.UID)
		return err
	}
	return nil
}

// isGone reports whether the incarnation of a PVC is gone, unless a user gave it up.
func (w *world) isGone(name string, uid types.UID) bool {
	now := w.store.claims()[name]
	return (now == nil || now.UID != uid) && !w.given[uid]
}

// bind binds a pod. Where pods are recorded before, it is a law that this one is.
func (w *world) bind(name string, uid types.UID) error {
	on, stray := w.recorded(name, uid)
	if err := w.store.bindPod(name, uid); err != nil {
		return err
	}
	if w.rules.start == anyhow {
		return nil
	}
	if w.broken == nil {
		w.broken = stray
	}
	w.bound[uid] = on
	w.seen[boundOn]++
	return nil
}

// recorded returns the PVCs that have a pod on record, or an error if one of its PVCs has not.
func (w *world) recorded(name string, uid types.UID) (map[string]types.UID, error) {
	on := map[string]types.UID{}
	for _, claim := range wants[name] {
		now := w.store.claims()[claim]
		switch {
		case w.givenUp[claim]:
		case now == nil || !names(now, uid):
			return on, fmt.Errorf("pod %s is let go or bound, and on the record of PVC %s it %w", name, claim, errGone)
		default:
			on[claim] = now.UID
		}
	}
	return on, nil
}

// names reports whether a PVC has a pod on record.
func names(claim *corev1.PersistentVolumeClaim, pod types.UID) bool {
	record, err := pvc.ParseRecord(claim.Annotations[pvc.UsersAnnotation])
	return err != nil || slices.ContainsFunc(record, func(r pvc.Recorded) bool { return r.UID == pod })
}
