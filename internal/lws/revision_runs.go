package lws

import (
	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// runKeys are the keys of the revisions that leaders run or are to run.
func runKeys(w *SetSnapshot) map[string]bool {
	keys := map[string]bool{}
	for _, leader := range w.Leaders.Members {
		keys[leader.Labels[lwsv1.RevisionKey]] = true
	}
	if sts := (&setDecision{SetSnapshot: w}).leaderStatefulSet(); sts != nil {
		keys[leadersKey(sts)] = true
	}
	delete(keys, "")
	return keys
}

// shadowed tells whether a revision was made again under a key whose own is there all
// the same. It stands for nothing then: groups at that key run what the other says.
func shadowed(revision *appsv1.ControllerRevision, counting []*appsv1.ControllerRevision) bool {
	key := revision.Labels[lwsv1.RevisionKey]
	if RevisionKey(revision.Data.Raw) == key {
		return false
	}
	own := revisionWithKey(counting, key)
	return own != nil && own.Labels[lwsv1.RevisionKey] == key && RevisionKey(own.Data.Raw) == key
}
