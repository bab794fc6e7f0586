package report

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/pvc"
)

// observedOnly is what was told last of a claim whose deletion others postpone, and
// will release.
const observedOnly = DeletionPostponed + ", by others"

// Observed tells that the deletion of a claim that is not ours to keep is postponed, once.
func (p *Protection) Observed(claim *corev1.PersistentVolumeClaim, why action.Reason) {
	last, _ := p.told.Get(claim.UID)
	p.Postponed(claim, why)
	if last != DeletionReleased {
		p.told.Add(claim.UID, observedOnly)
	}
}

// LetGo tells, once, that pods keep a claim no more which is not ours to keep, if it was
// told that they did, here or by a replica before: by the latter only as long as the
// finalizer of pods is there, for what keeps the claim afterwards is somebody else's.
func (p *Protection) LetGo(claim *corev1.PersistentVolumeClaim) {
	last, told := p.told.Get(claim.UID)
	before := p.inherited(claim) && slices.Contains(claim.Finalizers, pvc.PodsFinalizer)
	if last == DeletionReleased || !told && !before {
		return
	}
	p.told.Add(claim.UID, DeletionReleased)
	p.event(claim, corev1.EventTypeNormal, DeletionReleased, "nobody uses the claim any more: its deletion goes on")
}

// Went tells that a claim is gone whose deletion others postponed, if it went before
// anybody saw that they keep it no more.
func (p *Protection) Went(claim *corev1.PersistentVolumeClaim) {
	if last, _ := p.told.Get(claim.UID); last == observedOnly {
		p.told.Remove(claim.UID)
		p.event(claim, corev1.EventTypeNormal, DeletionReleased, "the claim is gone: its deletion went on")
	}
}
