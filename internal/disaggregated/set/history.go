package set

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/identity"
)

// kept is how many revisions the history of a set has.
const kept = 10

// keepHistory records the roles of the set at its revision, as the newest of the history.
func keepHistory(in *input) (p action.Plan) {
	all := slices.SortedFunc(slices.Values(in.Records.Owned), func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Name, b.Name))
	})
	var newest int64
	if len(all) > 0 {
		newest = all[len(all)-1].Revision
	}
	at := slices.IndexFunc(all, func(r *appsv1.ControllerRevision) bool { return r.Labels[dsv1.RevisionLabelKey] == in.Revision })
	switch {
	case at < 0:
		record := disaggregated.Record(in.Set, in.Revision, newest+1)
		p.Do(action.Create{
			Kind: identity.KindControllerRevision, Object: record, Uncached: true, Owner: disaggregated.SetRef(in.Set),
			Because: action.Because(action.CodeMissing, "the history lacks revision "+in.Revision),
		})
	case all[at].Revision < newest:
		p.Do(action.Relabel{
			Object: identity.RefOf(identity.KindControllerRevision, all[at]), Number: newest + 1, Uncached: true,
			Because: action.Because(action.CodeChanged, "revision "+in.Revision+" is the newest again"),
		})
	}
	for _, record := range all[:max(0, len(all)-kept)] {
		if record.Labels[dsv1.RevisionLabelKey] != in.Revision {
			p.Do(action.Delete{
				Object:  identity.RefOf(identity.KindControllerRevision, record),
				Because: action.Because(action.CodeGarbage, "the history keeps ten revisions"),
			})
		}
	}
	return p
}
