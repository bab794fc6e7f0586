package pvccache

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
)

// givings remembers by when claims were given to the StatefulSets that control them, where
// they have said so and do not any more: whoever gave them away, which is noted with the
// time of the last write, binds them to their volumes later.
type givings struct {
	mu    sync.RWMutex
	known map[types.UID]handover
}

type handover struct {
	owner types.UID
	// by is in seconds: nothing finer is noted.
	by int64
}

// note takes notice of what a claim said before it changed. One that is gone is nil.
func (g *givings) note(before, after *corev1.PersistentVolumeClaim) {
	if before == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	owner, by, known := pvc.GivenBy(before)
	known = known && after != nil && after.UID == before.UID
	last, remembered := g.known[before.UID]
	if after == nil || after.UID != before.UID || remembered && !controls(last.owner, after) {
		delete(g.known, before.UID)
		remembered = false
	}
	if !known || remembered || !controls(owner, after) {
		return // what is remembered came before what is said now
	}
	if _, at, says := pvc.GivenBy(after); says && !at.After(by) {
		return
	}
	if g.known == nil {
		g.known = map[types.UID]handover{}
	}
	g.known[before.UID] = handover{owner, by.Unix()}
}

// of is the claim with what is remembered of it. It is not changed itself.
func (g *givings) of(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	g.mu.RLock()
	last, ok := g.known[claim.UID]
	g.mu.RUnlock()
	if !ok || !controls(last.owner, claim) {
		return claim
	}
	return pvc.KnownGiven(claim, last.owner, time.Unix(last.by, 0))
}

func controls(owner types.UID, claim *corev1.PersistentVolumeClaim) bool {
	controller := metav1.GetControllerOfNoCopy(claim)
	return controller != nil && controller.UID == owner
}
