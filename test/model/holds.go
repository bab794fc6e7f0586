package model

// runs tells whether a pod uses the claim by what a cache of pods shows.
func (w world) runs(x who, p pod) bool {
	if x.name != builtIn.name && w.rules.Completed != CompletedHold {
		return p.uses() && p.phase < ended
	}
	return p.uses()
}

// holds tells whether a pod holds the claim, by a list and, where that is the rule, by
// what is left of the volume on its node.
func (w world) holds(x who, p pod) bool {
	return w.runs(x, p) || x.name != builtIn.name && w.rules.Completed == CompletedFree && p.phase == ended
}

// keepsVolume tells whether a finalizer stays for a volume that has no pod.
func (w world) keepsVolume(x who, p pod, f finalizer) bool {
	return x.name != builtIn.name && w.rules.Attached == AttachedHolds && f == barrierFinalizer && p.phase == ghost
}
