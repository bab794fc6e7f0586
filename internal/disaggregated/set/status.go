package set

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/identity"
)

// statusOf is what the status of the set is to be.
func statusOf(in *input) dsv1.DisaggregatedSetStatus {
	status := *in.Set.Status.DeepCopy()
	status.ObservedGeneration = in.Set.Generation
	meta.RemoveStatusCondition(&status.Conditions, action.CodeUnsupported)
	status.RoleStatuses = nil
	status.Roles, status.ReadyRoles, status.UpdatedRoles = int32(len(in.Roles)), 0, 0
	for _, role := range in.Roles {
		found := dsv1.RoleStatus{Name: role.Name}
		for _, child := range in.Children.Owned {
			if child.Labels[dsv1.RoleLabelKey] != role.Name {
				continue
			}
			found.Replicas += child.Status.Replicas
			found.ReadyReplicas += child.Status.ReadyReplicas
			if child.Labels[dsv1.RevisionLabelKey] == in.Revision {
				found.UpdatedReplicas += child.Status.UpdatedReplicas
			}
		}
		want := role.Target * int32(len(in.Slices))
		if role.IsKnown() && found.ReadyReplicas >= want {
			status.ReadyRoles++
		}
		if role.IsKnown() && found.UpdatedReplicas >= want {
			status.UpdatedRoles++
		}
		status.RoleStatuses = append(status.RoleStatuses, found)
	}
	holds := progress(in, status.RoleStatuses)
	told := status.Conditions
	status.Conditions = settle(told, holds, in.hindrance(), in.Set.Generation, metav1.NewTime(in.Now))
	for _, c := range in.beside(told, holds) {
		put(&status.Conditions, c, in.Set.Generation, metav1.NewTime(in.Now))
	}
	return status
}

// writeStatus writes the status of the set, if it differs.
func writeStatus(in *input) (p action.Plan) {
	status := statusOf(in)
	if reflect.DeepEqual(status, in.Set.Status) {
		return p
	}
	p.Do(action.WriteStatus{
		Object: disaggregated.SetRef(in.Set), Status: &dsv1.DisaggregatedSet{Status: status}, Because: action.Because(action.CodeChanged, "the status differs from what is there"),
	})
	return p
}

// writeScalers writes the status of each scaler that differs: an autoscaler reads it.
func writeScalers(in *input, roles []dsv1.RoleStatus) (p action.Plan) {
	for i, role := range in.Roles {
		if role.Scaler == nil {
			continue
		}
		status := *role.Scaler.Status.DeepCopy()
		status.ObservedGeneration, status.Replicas = role.Scaler.Generation, roles[i].Replicas
		status.Selector = disaggregated.Selector(in.Set.Name, role.Name)
		status.Conditions = settle(status.Conditions, metav1.Condition{
			Type: dsv1.ConditionReady, Status: metav1.ConditionTrue, Reason: dsv1.BoundReason, Message: "Scaler bound to a live DisaggregatedSet role",
		}, action.Reason{}, role.Scaler.Generation, metav1.NewTime(in.Now))
		if !reflect.DeepEqual(status, role.Scaler.Status) {
			p.Do(action.WriteStatus{
				Object: identity.RefOf(identity.KindDisaggregatedSetRoleScaler, role.Scaler), Status: &dsv1.DisaggregatedSetRoleScaler{Status: status},
				Because: action.Because(action.CodeChanged, "the status differs from what is there"),
			})
		}
	}
	return p
}

// unsupportedAgain is how soon a set that is left alone is read again: a new definition changes no set.
const unsupportedAgain = 30 * time.Second

// leftAlone says what the set has that this version lacks, and changes nothing else.
func leftAlone(in *input) (p action.Plan) {
	text := action.UnsupportedText(in.Beyond)
	p.Await(in.Now.Add(unsupportedAgain), action.CodeUnsupported, text)
	status := *in.Set.Status.DeepCopy()
	c := metav1.Condition{
		Type: action.CodeUnsupported, Status: metav1.ConditionTrue, Reason: "UnknownFields", Message: text,
		ObservedGeneration: in.Set.Generation, LastTransitionTime: metav1.NewTime(in.Now),
	}
	if !meta.SetStatusCondition(&status.Conditions, c) {
		return p
	}
	p.Do(action.WriteStatus{
		Object: disaggregated.SetRef(in.Set), Status: &dsv1.DisaggregatedSet{Status: status}, Because: action.Because(action.CodeUnsupported, text),
		Tell: action.Telling{Done: []action.Event{{Warning: true, Reason: action.CodeUnsupported, Action: "Wait", Note: text}}},
	})
	return p
}
