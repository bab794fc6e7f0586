package pvc

import "lockstep.dev/lockstep/internal/action"

// What a cache says of a namespace may be late, or of a life under that name that is
// over: the claim that is judged may belong to the next. By that something may be asked
// for, which does no harm and is taken back. Nothing is given up by it: not a claim, not
// a word that holds one, not a finalizer, not a pod's gate. That takes the namespace as
// it was read live after the claim was seen. A claim that is there still is then of
// that very life, since nothing outlives its namespace.

// givesUp tells whether a verdict gives something up by what the namespace says.
func (v HoldView) givesUp(d HoldVerdict) bool {
	if v.Claim.DeletionTimestamp != nil || v.Mode >= Hold && !v.NamespaceEnding {
		return false // by what the claim says, or its holders
	}
	return d.Delete != nil || d.takesOff(HoldersAnnotation) || v.Mode != Observe && d.takesOff(ObservedAnnotation)
}

func (d HoldVerdict) takesOff(key string) bool {
	word, ok := d.Annotations[key]
	return ok && word == ""
}

// asks leaves all as it is.
func (v HoldView) asks(d HoldVerdict) HoldVerdict {
	asks := HoldVerdict{State: d.State, Holders: d.Holders, Idle: d.Idle, AskNamespace: true}
	if v.Claim.Annotations[HoldersAnnotation] != "" {
		asks.State = Held
	}
	asks.Because = action.Reason{Code: "NamespaceUnread", Sentence: "its namespace is read before anything is given up by what that says"}
	return asks
}
