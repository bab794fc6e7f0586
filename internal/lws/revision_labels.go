package lws

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// A revision tells what it is twice: by its labels, and by its name, which says whose
// it is and what its data hashes to. Data never changes. So one of the set's own whose
// labels somebody took off or changed is still known, and has them back.

// labelled is a revision of the set's own with the labels that it should bear: itself,
// or a copy where some are gone and its data tells which.
func labelled(revision *appsv1.ControllerRevision, setName string) *appsv1.ControllerRevision {
	key := revision.Labels[lwsv1.RevisionKey]
	if key != "" && isRevisionOf(revision, setName) {
		return revision
	}
	if !namedByData(revision, setName) && RevisionKey(revision.Data.Raw) != key {
		return revision
	}
	if key == "" {
		key = RevisionKey(revision.Data.Raw)
	}
	return withKey(revision, setName, key)
}

// namedByData tells whether a revision has the name that this set gives to one with
// such data.
func namedByData(revision *appsv1.ControllerRevision, setName string) bool {
	return strings.HasPrefix(revision.Name, revisionStem(setName, RevisionKey(revision.Data.Raw)))
}

// withKey is a copy of a revision that bears the key, and the set's name if it is not
// filed away.
func withKey(revision *appsv1.ControllerRevision, setName, key string) *appsv1.ControllerRevision {
	marks := map[string]string{lwsv1.RevisionKey: key}
	if !inHistory(revision, setName) {
		marks[lwsv1.SetNameLabelKey] = setName
	}
	again := revision.DeepCopy()
	again.Labels = merged(revision.Labels, marks)
	return again
}

// relabel gives the set's own revisions their labels back.
func (d *setDecision) relabel() {
	found := d.Revisions.Members
	members := make([]*appsv1.ControllerRevision, len(found))
	for i, revision := range found {
		members[i] = d.restoredKey(labelled(revision, d.Set.Name))
		if members[i] == revision {
			continue
		}
		d.relabels = true
		d.plan.do(action.Relabel{
			Object:  identity.RefOf(identity.KindControllerRevision, revision),
			Labels:  changedLabels(revision, members[i]),
			Because: because(CodeChanged, fmt.Sprintf("somebody changed the labels of revision %s", revision.Name)),
		})
	}
	d.Revisions.Members = members
}

func changedLabels(from, to *appsv1.ControllerRevision) map[string]string {
	changed := map[string]string{}
	for key, value := range to.Labels {
		if from.Labels[key] != value {
			changed[key] = value
		}
	}
	return changed
}

// restoredKey is a revision with the key that its data hashes to, where leaders run
// that one, none runs what its label says, and no other revision is there for them.
// One that was made again under a key that was lost keeps it.
func (d *setDecision) restoredKey(revision *appsv1.ControllerRevision) *appsv1.ControllerRevision {
	hash := RevisionKey(revision.Data.Raw)
	key := revision.Labels[lwsv1.RevisionKey]
	if key == hash || !namedByData(revision, d.Set.Name) {
		return revision
	}
	if run := runKeys(d.SetSnapshot); !run[hash] || run[key] {
		return revision
	}
	if own := d.revisionWithKey(hash); own == nil || own.UID != revision.UID {
		return revision
	}
	return withKey(revision, d.Set.Name, hash)
}

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

// MissingRevisions are the keys of the revisions that leaders run and that are not among
// those found.
func MissingRevisions(w SetSnapshot, found identity.Claim[*appsv1.ControllerRevision]) []string {
	var missing []string
	counting := countingRevisions(found, w.Set.Name)
	for key := range runKeys(&w) {
		if revisionWithKey(counting, key) == nil {
			missing = append(missing, key)
		}
	}
	return missing
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
