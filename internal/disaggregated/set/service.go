package set

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/identity"
)

// wantsServices reports whether each child is to have a Service: the set says so, or another implementation made some.
func wantsServices(in *input) bool {
	asked, isSaid := in.Set.Annotations[dsv1.ServicesAnnotationKey]
	return asked == "true" || !isSaid && len(in.Services.Owned) > 0
}

// keepServices creates the Services of a revision once each of its roles has a ready group, and deletes those of children
// that are gone. None goes during a rollout: clients may use it.
func keepServices(in *input) (p action.Plan) {
	if wantsServices(in) {
		for i := range in.Slices {
			p.Add(createServices(in, &in.Slices[i]))
		}
	}
	for _, service := range in.Services.Owned {
		isUsed := slices.ContainsFunc(in.Children.Owned, func(child *lwsv1.LeaderWorkerSet) bool { return disaggregated.ServiceName(child.Name) == service.Name })
		traffic := map[bool]string{true: "true"}[disaggregated.HasPolicy(in.Set, dsv1.FencePartners)]
		switch {
		case !isUsed:
			p.Do(action.Delete{
				Object:  identity.RefOf(identity.KindService, service),
				Because: action.Because(action.CodeGarbage, "its LeaderWorkerSet is gone"),
			})
		case service.Spec.Selector[dsv1.ReadyForTrafficLabelKey] != traffic:
			p.Do(action.Relabel{
				Object: identity.RefOf(identity.KindService, service), Selector: map[string]string{dsv1.ReadyForTrafficLabelKey: traffic}, Uncached: true,
				Because: action.Because(action.CodeChanged, "the set has another restart policy"),
			})
		}
	}
	return p
}

func createServices(in *input, s *disaggregated.Slice) (p action.Plan) {
	rows := s.Revisions[0].Rows
	for _, role := range in.Roles {
		if row := rows[role.Name]; row.Child == nil || role.Target > 0 && !slices.Contains(row.Ready, true) {
			return p
		}
	}
	for _, role := range in.Roles {
		service := disaggregated.Service(in.Set, rows[role.Name].Child)
		if slices.ContainsFunc(in.Services.Owned, func(found *corev1.Service) bool { return found.Name == service.Name }) {
			continue
		}
		if conflict, isPrevious := taken("Service", in.Services, service.Name); in.awaitName(&p, conflict, isPrevious, nil) {
			p.Do(action.Create{
				Kind: identity.KindService, Object: service, Uncached: true, Owner: disaggregated.SetRef(in.Set),
				Because: action.Because(action.CodeMissing, "each role has a ready group at revision "+in.Revision),
			})
		}
	}
	return p
}
