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
)

// revisions finds the revision that groups should be at, and makes one only
// when none that counts says the same. A revision counts if it belongs to this
// incarnation of the set, or to nobody and is being adopted, and is what its
// name says.
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
	if current := d.revisionWithKey(key); current != nil && sameRevision(d.Set, current.Data.Raw, data) {
		d.key = key
		switch {
		case !inUse(current, d.Set.Name):
			d.bringBack(current, 0, again(key))
		default:
			d.tellApart(current)
		}
		return
	}
	if d.lostRevision(key, data) {
		d.makeRevision(key, fmt.Sprintf("Creating missing revision with key %s for existing LeaderWorkerSet", key))
		return
	}
	if known := d.revisionWithData(data); known != nil {
		d.reuseRevision(known)
		return
	}
	hash := RevisionKey(data)
	note := fmt.Sprintf("Creating revision with key %s for updated LWS", hash)
	if d.statefulSetUID() == "" {
		note = fmt.Sprintf("Creating revision with key %s for a newly created LeaderWorkerSet", hash)
	}
	d.makeRevision(hash, note)
}

// statefulSetKey is the revision key on the leader StatefulSet: it alone says
// which revision is current. Empty when there is none.
func (d *setDecision) statefulSetKey() string {
	if sts := d.leaderStatefulSet(); sts != nil {
		return leadersKey(sts)
	}
	return ""
}

// leadersKey is the key of the revision that a leader StatefulSet was given. One that
// lost its label still tells by its template: it is the same, and no rollout.
func leadersKey(sts *appsv1.StatefulSet) string {
	if key := sts.Labels[lwsv1.RevisionKey]; key != "" {
		return key
	}
	return sts.Spec.Template.Labels[lwsv1.RevisionKey]
}

// lostRevision tells whether somebody removed the revision that the groups run,
// while the spec still says what they run. It is then made again under its key:
// a new key would restart every pod for nothing. What hashes to that key says so for
// certain; else the leaders' template does, provided that nobody has edited the spec
// meanwhile: of what workers run it says nothing.
func (d *setDecision) lostRevision(key string, data []byte) bool {
	sts := d.leaderStatefulSet()
	if key == "" || sts == nil || d.revisionWithKey(key) != nil {
		return false
	}
	if RevisionKey(data) == key {
		return true
	}
	desired := leaderTemplate(d.Set, key)
	return d.actedUpon() && leadersRun(sts, &desired)
}

func (d *setDecision) adoptRevisions() {
	for _, revision := range d.Revisions.Orphans {
		if Exact(revision, d.Set.Name) {
			d.plan.do(adopt(identity.RefOf(identity.KindControllerRevision, revision), setRef(d.Set), &appsv1.ControllerRevision{
				ObjectMeta: metav1.ObjectMeta{OwnerReferences: ownedBySet(d.Set)},
			}))
		}
	}
}

// counting returns the revisions that count, in no particular order.
func (d *setDecision) counting() []*appsv1.ControllerRevision {
	return countingRevisions(d.Revisions, d.Set.Name)
}

func countingRevisions(claim identity.Claim[*appsv1.ControllerRevision], setName string) []*appsv1.ControllerRevision {
	var members []*appsv1.ControllerRevision
	for _, r := range claim.Members {
		if Genuine(r, setName) {
			members = append(members, r)
		}
	}
	orphans := slices.DeleteFunc(slices.Clone(claim.Orphans), func(r *appsv1.ControllerRevision) bool { return !Exact(r, setName) })
	return append(members, orphans...)
}

func (d *setDecision) revisionWithKey(key string) *appsv1.ControllerRevision {
	return revisionWithKey(d.counting(), key)
}

// revisionWithKey returns the latest revision with the key, or nil. One whose
// data hashes to the key goes before one made again under it, and that before one
// whose label somebody changed.
func revisionWithKey(revisions []*appsv1.ControllerRevision, key string) *appsv1.ControllerRevision {
	if key == "" {
		return nil
	}
	keyed := func(r *appsv1.ControllerRevision) bool { return r.Labels[lwsv1.RevisionKey] == key }
	hashed := func(r *appsv1.ControllerRevision) bool { return RevisionKey(r.Data.Raw) == key }
	exact := latest(revisions, func(r *appsv1.ControllerRevision) bool { return keyed(r) && hashed(r) })
	if exact != nil {
		return exact
	}
	if again := latest(revisions, keyed); again != nil {
		return again
	}
	return latest(revisions, hashed)
}

func (d *setDecision) revisionWithData(data []byte) *appsv1.ControllerRevision {
	counting := d.counting()
	return latest(counting, func(r *appsv1.ControllerRevision) bool {
		return !shadowed(r, counting) && sameRevision(d.Set, r.Data.Raw, data)
	})
}

// latest returns the fitting revision with the highest number, by name among
// equals: caches list in any order.
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

// reuseRevision goes back to a revision that is still there. Its number rises
// above all others, as that of a new one would.
func (d *setDecision) reuseRevision(known *appsv1.ControllerRevision) {
	d.key = known.Labels[lwsv1.RevisionKey]
	highest := d.highestNumber()
	if !inUse(known, d.Set.Name) {
		d.bringBack(known, highest+1, again(d.key))
		return
	}
	if known.Revision == highest && !d.sharedNumbers()[highest] {
		return
	}
	d.renumber(known, highest+1, again(d.key))
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
				OwnerReferences: ownedBySet(d.Set),
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
