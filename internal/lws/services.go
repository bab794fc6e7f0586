package lws

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// service makes the Shared headless Service when the set has none. A ghost or a
// squatter under its name costs only the Service.
func (d *setDecision) service() {
	if d.held || Subdomain(d.Set) != lwsv1.SubdomainShared {
		return
	}
	if service := d.Service.Orphan(); service != nil {
		d.plan.do(adopt(identity.RefOf(identity.KindService, service), setRef(d.Set), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{OwnerReferences: ownedBySet(d.Set)},
		}))
		return
	}
	if !d.Service.Empty() {
		return
	}
	d.plan.do(createService(sharedService(d.Set), setRef(d.Set)))
}

func createService(service *corev1.Service, owner identity.Ref) action.Create {
	return action.Create{
		Kind:    identity.KindService,
		Object:  service,
		Owner:   owner,
		Because: because(CodeMissing, owner.String()+" has no headless service "+service.Name),
		Tell: action.Telling{Refused: &action.Event{
			Warning: true, Reason: "FailedCreate", Action: "Create",
			Note: "Failed to create headless service for error",
		}},
	}
}
