package pvc

import "lockstep.dev/lockstep/internal/action"

// Who was not read may hold a claim all the same. No hold ends by that, no word that
// stands is changed, and since nothing tells when all is read again, whoever waits for
// that is looked at again.

// unknown leaves all as it is: nobody was found who holds the claim, and not all
// were looked for.
func (v HoldView) unknown(d *HoldVerdict) {
	d.State, d.Next = Free, v.Now.Add(lookAgainAfter)
	if v.Claim.Annotations[HoldersAnnotation] != "" {
		d.State = Held
	}
	d.Because = action.Reason{Code: "Unread", Sentence: "not all that may hold the claim could be read: " + v.Unread}
}

// asFarAsRead are the names that a DELETE is warned of: those that stand, if others may
// only have come by not being read.
func (v HoldView) asFarAsRead(d *HoldVerdict, names string) string {
	stands := v.Claim.Annotations[ObservedAnnotation]
	if v.Unread == "" || stands == "" || stands == names {
		return names
	}
	d.Next = v.Now.Add(lookAgainAfter)
	return stands
}

// awaitsReading has a claim looked at again that is to be deleted when it is free,
// which nobody can tell now.
func (v HoldView) awaitsReading(d *HoldVerdict) {
	if v.Unread != "" && len(d.Holders) == 0 && v.isWished() {
		d.Next = v.Now.Add(lookAgainAfter)
	}
}
