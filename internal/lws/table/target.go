package table

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
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// newTarget returns the revision of the spec. It is created only if no revision says the same. A
// revision counts if it is genuine, and the set owns it or adopts it.
func newTarget(t *Table) Target {
	data, err := revision.Data(t.Set)
	key := t.LeadersKey()
	if err != nil || t.Held {
		return Target{Key: key}
	}
	var adopted lws.Plan
	for _, r := range t.Revisions.Orphans {
		if revision.Genuine(r, t.Set.Name) {
			part := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{OwnerReferences: workload.OwnedBySet(t.Set)}}
			adopted.Do(lws.Adopt(identity.RefOf(identity.KindControllerRevision, r), lws.SetRef(t.Set), part))
		}
	}
	next := targetOf(t, key, data)
	adopted.Add(next.plan)
	next.plan = adopted
	return next
}

func targetOf(t *Table, key string, data []byte) Target {
	current := t.revisionWithKey(key)
	if current != nil && revision.Same(t.Set, current.Data.Raw, data) {
		return reuseRevision(t, current, 0)
	}
	known, hash := t.revisionWithData(data), revision.Key(data)
	switch {
	case known == nil && !t.HistoryRead && (key != "" || t.Set.Status.ObservedGeneration > 0): // a new set has no history
		return Target{plan: lws.Plan{Needs: lws.NeedHistory}}
	case current == nil && hash == key:
		return newRevision(t, data, fmt.Sprintf("Creating missing revision with key %s for existing LeaderWorkerSet", key))
	case known != nil && known.Revision == t.highestNumber():
		return reuseRevision(t, known, 0)
	case known != nil:
		return reuseRevision(t, known, t.highestNumber()+1) // as a new revision would have
	case t.LeadersOwner() == nil:
		return newRevision(t, data, fmt.Sprintf("Creating revision with key %s for a newly created LeaderWorkerSet", hash))
	}
	return newRevision(t, data, fmt.Sprintf("Creating revision with key %s for updated LWS", hash))
}

// counting returns the revisions that count, in no particular order.
func (t *Table) counting() []*appsv1.ControllerRevision {
	return revision.Counting(t.Revisions, t.Set.Name)
}

func (t *Table) revisionWithKey(key string) *appsv1.ControllerRevision {
	return revision.WithKey(t.counting(), key)
}

// revisionWithData returns the latest revision that means the same as data, or nil. Groups at
// a key run the one revision that revision.WithKey returns.
func (t *Table) revisionWithData(data []byte) *appsv1.ControllerRevision {
	counting := t.counting()
	return revision.Latest(counting, func(r *appsv1.ControllerRevision) bool {
		return revision.Same(t.Set, r.Data.Raw, data) && revision.WithKey(counting, r.Labels[lwsv1.RevisionKey]) == r
	})
}

func (t *Table) highestNumber() int64 {
	var highest int64
	for _, r := range t.counting() {
		highest = max(highest, r.Revision)
	}
	return highest
}

// reuseRevision returns a known revision as the target: out of the history, and with another number unless that is 0.
func reuseRevision(t *Table, known *appsv1.ControllerRevision, number int64) Target {
	ref := identity.RefOf(identity.KindControllerRevision, known)
	next := Target{Key: known.Labels[lwsv1.RevisionKey], Revision: &ref, number: cmp.Or(number, known.Revision)}
	write := action.Relabel{
		Object: ref, Number: number,
		Because: lws.Because(lws.CodeChanged, fmt.Sprintf("the template is that of revision %s again", revision.Title(known.Revision, next.Key))),
	}
	if !revision.InUse(known, t.Set.Name) {
		write.Labels = map[string]string{lwsv1.SetNameLabelKey: t.Set.Name, revision.HistoryLabelKey: ""}
	}
	if number != 0 || write.Labels != nil {
		next.plan.Do(write)
	}
	return next
}

// newRevision creates the revision of the live spec.
func newRevision(t *Table, data []byte, note string) Target {
	name, number := freeRevisionName(t, revision.Key(data))
	next := Target{
		Key:      revision.Key(data),
		number:   number,
		Revision: &identity.Ref{Kind: identity.KindControllerRevision, Namespace: t.Set.Namespace, Name: name},
	}
	next.plan.Do(action.Create{
		Kind:  identity.KindControllerRevision,
		Owner: lws.SetRef(t.Set),
		Object: &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       t.Set.Namespace,
				Name:            name,
				Labels:          map[string]string{lwsv1.SetNameLabelKey: t.Set.Name, lwsv1.RevisionKey: next.Key},
				Annotations:     changeCause(t.Set),
				OwnerReferences: workload.OwnedBySet(t.Set),
			},
			Revision: number,
			Data:     runtime.RawExtension{Raw: data},
		},
		Because: lws.Because(lws.CodeMissing, "no revision of this set says what the spec says"),
		Tell:    action.Telling{Done: []action.Event{lws.Event("CreatingRevision", "Create", note, next.Revision)}},
	})
	return next
}

// freeRevisionName returns the name and number of the next revision. A number whose name
// another object has is left out.
func freeRevisionName(t *Table, hash string) (name string, number int64) {
	all := slices.Concat(t.Revisions.Owned, t.Revisions.Orphans, t.Revisions.Previous, t.Revisions.Foreign)
	for number = t.highestNumber() + 1; ; number++ {
		name = revision.Name(t.Set.Name, hash, number)
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
