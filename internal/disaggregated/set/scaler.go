package set

import (
	"fmt"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/identity"
)

// keepScalers creates the scaler of each External role, and deletes those of roles that are not External.
func keepScalers(in *input) (p action.Plan) {
	external := map[string]bool{}
	for _, role := range in.Roles {
		if !disaggregated.IsExternal(role.DisaggregatedRole) {
			continue
		}
		name := disaggregated.ScalerName(in.Set.Name, role.Name)
		if external[name] = true; role.Scaler != nil {
			continue
		}
		isTaken := &action.Event{Warning: true, Reason: "ScalerConflict", Action: "Conflict",
			Note: fmt.Sprintf("Scaler %s exists but is not controlled by this DisaggregatedSet; not adopting", name)}
		if conflict, isPrevious := taken(identity.KindDisaggregatedSetRoleScaler, in.Scalers, name); in.awaitName(&p, conflict, isPrevious, isTaken) {
			p.Do(action.Create{
				Kind: identity.KindDisaggregatedSetRoleScaler, Object: disaggregated.Scaler(in.Set, role.Name, seed(in, role.Name)), Owner: disaggregated.SetRef(in.Set),
				Because: action.Because(action.CodeMissing, "role "+role.Name+" is External"),
				Tell: action.Telling{
					Done:    []action.Event{{Reason: "ScalerCreated", Action: "Create", Note: fmt.Sprintf("Created scaler %s for role %s", name, role.Name)}},
					Refused: &action.Event{Warning: true, Reason: "FailedCreate", Action: "Create", Note: "DisaggregatedSetRoleScaler " + name},
				},
			})
		}
	}
	for _, scaler := range in.Scalers.Owned {
		if role := scaler.Labels[dsv1.RoleLabelKey]; !external[scaler.Name] {
			p.Do(action.Delete{
				Object:  identity.RefOf(identity.KindDisaggregatedSetRoleScaler, scaler),
				Because: action.Because(action.CodeGarbage, "role "+role+" is not External"),
				Tell: action.Telling{Done: []action.Event{{Reason: "ScalerDeleted", Action: "Delete",
					Note: fmt.Sprintf("Deleted scaler %s (role %s is no longer External)", scaler.Name, role)}}},
			})
		}
	}
	return p
}

// seed is how many groups a role is to have until an autoscaler says otherwise: as many as the set wanted last. During a
// rollout, that is not the sum of its revisions, and the target knows best.
func seed(in *input, role string) int32 {
	isFound, most := false, int32(0)
	for _, child := range in.Children.Owned {
		if child.Labels[dsv1.RoleLabelKey] != role {
			continue
		}
		if child.Labels[dsv1.RevisionLabelKey] == in.Revision {
			return disaggregated.Intended(child)
		}
		isFound, most = true, max(most, disaggregated.Intended(child))
	}
	if !isFound {
		return 1
	}
	return most
}
