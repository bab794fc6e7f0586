package lws

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// target is the revision that groups should be at, with what is written for it first.
type target struct {
	// key is its key, or empty while unknown. revision is it, once it exists or is created.
	key      string
	revision *identity.Ref
	number   int64 // 0 while unknown
	plan     Plan
}

// title names the target by number and key.
func (t target) title() string { return revision.Title(t.number, t.key) }

// target returns the revision of the spec. It is created only if no revision says the same. A
// revision counts if it is genuine, and the set owns it or adopts it.
func (d *setDecision) newTarget() target {
	data, err := revision.Data(d.Set)
	key := d.leadersKey()
	if err != nil || d.held {
		return target{key: key}
	}
	adopted := d.adoptRevisions()
	t := d.targetOf(key, data)
	t.plan.Actions = slices.Concat(adopted, t.plan.Actions)
	return t
}

func (d *setDecision) targetOf(key string, data []byte) target {
	current := d.revisionWithKey(key)
	if current != nil && revision.Same(d.Set, current.Data.Raw, data) {
		return d.reuseRevision(current, 0)
	}
	known, hash := d.revisionWithData(data), revision.Key(data)
	switch {
	case known == nil && !d.HistoryRead && (key != "" || d.Set.Status.ObservedGeneration > 0): // a new set has no history
		return target{plan: Plan{Needs: NeedHistory}}
	case current == nil && hash == key:
		return d.newRevision(data, fmt.Sprintf("Creating missing revision with key %s for existing LeaderWorkerSet", key))
	case known != nil && known.Revision == d.highestNumber():
		return d.reuseRevision(known, 0)
	case known != nil:
		return d.reuseRevision(known, d.highestNumber()+1) // as a new revision would have
	case d.leadersOwner() == nil:
		return d.newRevision(data, fmt.Sprintf("Creating revision with key %s for a newly created LeaderWorkerSet", hash))
	}
	return d.newRevision(data, fmt.Sprintf("Creating revision with key %s for updated LWS", hash))
}

// leadersKey is the revision key of the leader StatefulSet or Deployment, or empty without one. No other
// object says which revision is current.
func (d *setDecision) leadersKey() string {
	if owner := d.leadersOwner(); owner != nil {
		return owner.key()
	}
	return ""
}

func (d *setDecision) adoptRevisions() (adopted []action.Action) {
	for _, r := range d.Revisions.Orphans {
		if revision.Genuine(r, d.Set.Name) {
			adopted = append(adopted, adopt(identity.RefOf(identity.KindControllerRevision, r), setRef(d.Set), &appsv1.ControllerRevision{
				ObjectMeta: metav1.ObjectMeta{OwnerReferences: workload.OwnedBySet(d.Set)},
			}))
		}
	}
	return adopted
}

// counting returns the revisions that count, in no particular order.
func (d *setDecision) counting() []*appsv1.ControllerRevision {
	return revision.Counting(d.Revisions, d.Set.Name)
}

func (d *setDecision) revisionWithKey(key string) *appsv1.ControllerRevision {
	return revision.WithKey(d.counting(), key)
}

// revisionWithData returns the latest revision that means the same as data, or nil. Groups at
// a key run the one revision that revision.WithKey returns.
func (d *setDecision) revisionWithData(data []byte) *appsv1.ControllerRevision {
	counting := d.counting()
	return revision.Latest(counting, func(r *appsv1.ControllerRevision) bool {
		return revision.Same(d.Set, r.Data.Raw, data) && revision.WithKey(counting, r.Labels[lwsv1.RevisionKey]) == r
	})
}

func (d *setDecision) highestNumber() int64 {
	var highest int64
	for _, r := range d.counting() {
		highest = max(highest, r.Revision)
	}
	return highest
}

// reuseRevision returns a known revision as the target: out of the history, and with another number unless that is 0.
func (d *setDecision) reuseRevision(known *appsv1.ControllerRevision, number int64) target {
	ref := identity.RefOf(identity.KindControllerRevision, known)
	t := target{key: known.Labels[lwsv1.RevisionKey], revision: &ref, number: cmp.Or(number, known.Revision)}
	write := action.Relabel{
		Object: ref, Number: number,
		Because: because(CodeChanged, fmt.Sprintf("the template is that of revision %s again", revision.Title(known.Revision, t.key))),
	}
	if !revision.InUse(known, d.Set.Name) {
		write.Labels = map[string]string{lwsv1.SetNameLabelKey: d.Set.Name, revision.HistoryLabelKey: ""}
	}
	if number != 0 || write.Labels != nil {
		t.plan.do(write)
	}
	return t
}

// newRevision creates the revision of the live spec.
func (d *setDecision) newRevision(data []byte, note string) target {
	name, number := d.freeRevisionName(revision.Key(data))
	t := target{
		key:      revision.Key(data),
		number:   number,
		revision: &identity.Ref{Kind: identity.KindControllerRevision, Namespace: d.Set.Namespace, Name: name},
	}
	t.plan.do(action.Create{
		Kind:  identity.KindControllerRevision,
		Owner: setRef(d.Set),
		Object: &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       d.Set.Namespace,
				Name:            name,
				Labels:          map[string]string{lwsv1.SetNameLabelKey: d.Set.Name, lwsv1.RevisionKey: t.key},
				Annotations:     changeCause(d.Set),
				OwnerReferences: workload.OwnedBySet(d.Set),
			},
			Revision: number,
			Data:     runtime.RawExtension{Raw: data},
		},
		Because: because(CodeMissing, "no revision of this set says what the spec says"),
		Tell: action.Telling{Done: []action.Event{{
			Reason: "CreatingRevision", Action: "Create", Note: note, Related: t.revision,
		}}},
	})
	return t
}

// freeRevisionName returns the name and number of the next revision. A number whose name
// another object has is left out.
func (d *setDecision) freeRevisionName(hash string) (name string, number int64) {
	all := slices.Concat(d.Revisions.Owned, d.Revisions.Orphans, d.Revisions.Previous, d.Revisions.Foreign)
	for number = d.highestNumber() + 1; ; number++ {
		name = revision.Name(d.Set.Name, hash, number)
		if !slices.ContainsFunc(all, func(r *appsv1.ControllerRevision) bool { return r.Name == name }) {
			return name, number
		}
	}
}

// changeCause is why the set was changed, as its user says it: a revision keeps it.
func changeCause(set *lwsv1.LeaderWorkerSet) map[string]string {
	if cause := set.Annotations[revision.ChangeCauseAnnotationKey]; cause != "" {
		return map[string]string{revision.ChangeCauseAnnotationKey: cause}
	}
	return nil
}
