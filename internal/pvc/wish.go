package pvc

import "lockstep.dev/lockstep/internal/action"

// Somebody may ask for a claim to be deleted when nobody holds it any more. Nobody but the
// operator would do that.

// politely is the deletion of a claim that somebody asked to be deleted when free,
// and it is: pods that were never bound refuse nobody, and are waited for.
func (v HoldView) politely(d *HoldVerdict) *Deletion {
	if len(d.Holders) > 0 || v.Unread != "" || !v.isWished() {
		return nil
	}
	d.Look = true
	return &Deletion{Wished: true, Because: action.Reason{Code: "DeleteWhenFree", Sentence: "it was to be deleted when nobody holds it, and nobody does"}}
}

// isWished tells whether this very claim was asked to be deleted when free.
func (v HoldView) isWished() bool {
	uid := string(v.Claim.UID)
	return uid != "" && v.Claim.Annotations[IntentAnnotation] == uid
}

// GrantsWish tells whether the claim is deleted for who asked for that, and not in the
// place of others who would do it as soon as nothing refuses it.
func (d HoldVerdict) GrantsWish() bool { return d.Delete != nil && d.Delete.Wished }
