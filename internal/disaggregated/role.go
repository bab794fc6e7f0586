package disaggregated

import (
	"strconv"

	"k8s.io/utils/ptr"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Role is a role of the spec, and how many groups it is to have in each slice.
type Role struct {
	*dsv1.DisaggregatedRole
	// Target is zero while it is unknown.
	Target int32
	// Scaler is nil for a role that is not External, and while its scaler is missing.
	Scaler *dsv1.DisaggregatedSetRoleScaler
}

// IsKnown reports whether the role's target is known.
func (r Role) IsKnown() bool { return !IsExternal(r.DisaggregatedRole) || r.Scaler != nil }

// rolesOf returns the roles of the spec, in order.
func rolesOf(w *Snapshot) (roles []Role) {
	for i := range w.Set.Spec.Roles {
		role := Role{DisaggregatedRole: &w.Set.Spec.Roles[i]}
		switch {
		case !IsExternal(role.DisaggregatedRole):
			role.Target = ptr.Deref(role.Spec.Replicas, 1)
		default:
			if role.Scaler = w.Scalers.Named(ScalerName(w.Set.Name, role.Name)).Own(); role.Scaler != nil {
				role.Target = role.Scaler.Spec.Replicas
			}
		}
		roles = append(roles, role)
	}
	return roles
}

// Intended is how many groups the set wanted of a child while its revision was the target. Other implementations write the
// annotation when a rollout begins, and not before.
func Intended(child *lwsv1.LeaderWorkerSet) int32 {
	noted, err := strconv.ParseInt(child.Annotations[dsv1.InitialReplicasAnnotationKey], 10, 32)
	if err != nil {
		noted = 0
	}
	return max(int32(noted), ptr.Deref(child.Spec.Replicas, 1))
}
