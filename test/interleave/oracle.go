package interleave

import (
	"errors"
	"fmt"

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
	if w.broken != nil {
		return w.broken
	}
	for _, name := range sorted(w.store.pods()) {
		pod := w.store.pods()[name]
		for claim, m := range w.mounts[pod.UID] {
			if m.done && w.isGone(claim, m.claim) {
				return fmt.Errorf("pod %s has claim %s (%s) mounted, which %w", name, claim, m.claim, errGone)
			}
		}
		for claim, uid := range w.bound[pod.UID] {
			if w.isGone(claim, uid) {
				return fmt.Errorf("pod %s was bound on the record of claim %s (%s), which %w", name, claim, uid, errGone)
			}
		}
	}
	return nil
}

// isGone tells whether the incarnation of a claim is gone, but for one that somebody
// gave up.
func (w *world) isGone(name string, uid types.UID) bool {
	now := w.store.claims()[name]
	return (now == nil || now.UID != uid) && !w.given[uid]
}

// bind binds a pod. Where pods are on record before, it is a law that this one is.
func (w *world) bind(name string, uid types.UID) error {
	if err := w.store.bindPod(name, uid); err != nil {
		return err
	}
	if w.rules.start == anyhow || w.rules.recordsLate {
		return nil
	}
	on := map[string]types.UID{}
	for _, claim := range wants[name] {
		now := w.store.claims()[claim]
		switch {
		case w.givenUp[claim]:
		case now == nil || !names(now, uid):
			w.broken = fmt.Errorf("pod %s is bound, and on the record of claim %s it %w", name, claim, errGone)
		default:
			on[claim] = now.UID
		}
	}
	w.bound[uid] = on
	w.seen[boundOn]++
	return nil
}

// names tells whether a claim has a pod on record.
func names(claim *corev1.PersistentVolumeClaim, pod types.UID) bool {
	record, err := pvc.ParseRecord(claim.Annotations[pvc.UsersAnnotation])
	for _, r := range record {
		if r.UID == pod {
			return true
		}
	}
	return err != nil
}
