package lws

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// revisions finds the revision of the spec, and creates one only if no revision says the
// same. A revision counts if it is genuine, and the set owns it or adopts it.
func (d *setDecision) revisions() {
	data, err := RevisionData(d.Set)
	if err != nil {
		d.held = true // a spec that cannot be encoded cannot have come from the API server
		return
	}
	d.data = data
	key := d.statefulSetKey()
	if d.held {
		d.key = key
		return
	}
	d.adoptRevisions()
	current := d.revisionWithKey(key)
	if current != nil && sameRevision(d.Set, current.Data.Raw, data) {
		d.key = key
		if !inUse(current, d.Set.Name) {
			d.bringBack(current, 0, again(key))
		}
		return
	}
	known, hash := d.revisionWithData(data), RevisionKey(data)
	switch {
	case known == nil && d.lacksHistory():
		d.plan.Needs = NeedHistory
	case current == nil && hash == key:
		d.makeRevision(key, fmt.Sprintf("Creating missing revision with key %s for existing LeaderWorkerSet", key))
	case known != nil:
		d.reuseRevision(known)
	case d.statefulSetUID() == "":
		d.makeRevision(hash, fmt.Sprintf("Creating revision with key %s for a newly created LeaderWorkerSet", hash))
	default:
		d.makeRevision(hash, fmt.Sprintf("Creating revision with key %s for updated LWS", hash))
	}
}

// lacksHistory reports whether the history was not read yet. A new set has none.
func (d *setDecision) lacksHistory() bool {
	return !d.HistoryRead && (d.statefulSetKey() != "" || d.Set.Status.ObservedGeneration != 0)
}

// statefulSetKey is the revision key of the leader StatefulSet, or empty without one. No other
// object says which revision is current.
func (d *setDecision) statefulSetKey() string {
	if sts := d.leaderStatefulSet(); sts != nil {
		return leadersKey(sts)
	}
	return ""
}

// leadersKey is the key of the revision of a leader StatefulSet: its label, or else the label
// of its template.
func leadersKey(sts *appsv1.StatefulSet) string {
	if key := sts.Labels[lwsv1.RevisionKey]; key != "" {
		return key
	}
	return sts.Spec.Template.Labels[lwsv1.RevisionKey]
}

func (d *setDecision) adoptRevisions() {
	for _, revision := range d.Revisions.Orphans {
		if Genuine(revision, d.Set.Name) {
			d.plan.do(adopt(identity.RefOf(identity.KindControllerRevision, revision), setRef(d.Set), &appsv1.ControllerRevision{
				ObjectMeta: metav1.ObjectMeta{OwnerReferences: workload.OwnedBySet(d.Set)},
			}))
		}
	}
}

// counting returns the revisions that count, in no particular order.
func (d *setDecision) counting() []*appsv1.ControllerRevision {
	return countingRevisions(d.Revisions, d.Set.Name)
}

func countingRevisions(claim identity.Claim[*appsv1.ControllerRevision], setName string) []*appsv1.ControllerRevision {
	return slices.DeleteFunc(slices.Concat(claim.Members, claim.Orphans), func(r *appsv1.ControllerRevision) bool { return !Genuine(r, setName) })
}

func (d *setDecision) revisionWithKey(key string) *appsv1.ControllerRevision {
	return revisionWithKey(d.counting(), key)
}

// revisionWithKey returns the latest revision with the key, or nil.
func revisionWithKey(revisions []*appsv1.ControllerRevision, key string) *appsv1.ControllerRevision {
	return latest(revisions, func(r *appsv1.ControllerRevision) bool { return r.Labels[lwsv1.RevisionKey] == key })
}

// revisionWithData returns the latest revision that means the same as data, or nil.
func (d *setDecision) revisionWithData(data []byte) *appsv1.ControllerRevision {
	return latest(d.counting(), func(r *appsv1.ControllerRevision) bool { return sameRevision(d.Set, r.Data.Raw, data) })
}

// latest returns the revision that fits and has the highest number, by name among equals: a
// cache lists in any order.
func latest(revisions []*appsv1.ControllerRevision, fits func(*appsv1.ControllerRevision) bool) *appsv1.ControllerRevision {
	var found *appsv1.ControllerRevision
	for _, r := range revisions {
		if fits(r) && (found == nil || r.Revision > found.Revision || r.Revision == found.Revision && r.Name < found.Name) {
			found = r
		}
	}
	return found
}

func (d *setDecision) highestNumber() int64 {
	var highest int64
	for _, r := range d.counting() {
		highest = max(highest, r.Revision)
	}
	return highest
}

// reuseRevision makes a known revision current again. Its number becomes the highest, like that
// of a new revision.
func (d *setDecision) reuseRevision(known *appsv1.ControllerRevision) {
	d.key = known.Labels[lwsv1.RevisionKey]
	highest := d.highestNumber()
	if !inUse(known, d.Set.Name) {
		d.bringBack(known, highest+1, again(d.key))
		return
	}
	if known.Revision == highest {
		return
	}
	d.plan.do(action.Apply{
		Object:     &appsv1.ControllerRevision{Revision: highest + 1},
		Onto:       identity.RefOf(identity.KindControllerRevision, known),
		FieldOwner: numberFieldOwner,
		Because:    because(CodeChanged, again(d.key)),
	})
}

// again says that a set goes back to a revision.
func again(key string) string { return fmt.Sprintf("the template is that of revision %s again", key) }

// makeRevision makes the revision of the live spec under key.
func (d *setDecision) makeRevision(key, note string) {
	name, number, free := d.freeRevisionName()
	if !free {
		d.held = true
		return
	}
	d.key = key
	d.plan.do(action.Create{
		Kind:  identity.KindControllerRevision,
		Owner: setRef(d.Set),
		Object: &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       d.Set.Namespace,
				Name:            name,
				Labels:          map[string]string{lwsv1.SetNameLabelKey: d.Set.Name, lwsv1.RevisionKey: key},
				Annotations:     changeCause(d.Set),
				OwnerReferences: workload.OwnedBySet(d.Set),
			},
			Revision: number,
			Data:     runtime.RawExtension{Raw: d.data},
		},
		Because: because(CodeMissing, "no revision of this set says what the spec says"),
		Tell: action.Telling{Done: []action.Event{{
			Reason: "CreatingRevision", Action: "Create", Note: note,
			Related: &identity.Ref{Kind: identity.KindControllerRevision, Namespace: d.Set.Namespace, Name: name},
		}}},
	})
}

// freeRevisionName returns the name and number of the next revision. A ghost
// under that name is waited for; one that does not leave, or a squatter, is
// stepped over: numbers are free.
func (d *setDecision) freeRevisionName() (name string, number int64, free bool) {
	hash := RevisionKey(d.data)
	for number = d.highestNumber() + 1; ; number++ {
		name = revisionName(d.Set.Name, hash, number)
		named := func(r *appsv1.ControllerRevision) bool { return r.Name == name }
		if i := slices.IndexFunc(d.Revisions.Ghosts, named); i >= 0 {
			bearer := ghostsOf(identity.KindControllerRevision, d.Revisions.Ghosts[i:i+1])
			stepOver := d.Vigil.lastMove(bearer).Add(stuckAfter)
			if d.Now.Before(stepOver) {
				if !d.waiting.any() {
					d.waiting = d.haunt(bearer)
				}
				d.plan.wait(Wait{Reason: because(CodePreviousIncarnation, bearer[0].String()+" is leaving"), Until: stepOver})
				return "", 0, false
			}
			continue
		}
		if !slices.ContainsFunc(slices.Concat(d.Revisions.Squatters, d.Revisions.Members, d.Revisions.Orphans), named) {
			return name, number, true
		}
	}
}

// changeCause is why the set was changed, as its user says it: a revision keeps it.
func changeCause(set *lwsv1.LeaderWorkerSet) map[string]string {
	if cause := set.Annotations[ChangeCauseAnnotationKey]; cause != "" {
		return map[string]string{ChangeCauseAnnotationKey: cause}
	}
	return nil
}
