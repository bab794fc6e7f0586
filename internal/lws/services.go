package lws

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// KeepService makes a Service where none is, adopts one without a controller, and puts right one that was changed.
func (p *Plan) KeepService(found identity.Claim[*corev1.Service], desired *corev1.Service, owner identity.Ref) {
	switch orphan, own := found.Orphan(), found.Own(); {
	case orphan != nil:
		part := &corev1.Service{ObjectMeta: metav1.ObjectMeta{OwnerReferences: desired.OwnerReferences}}
		p.Do(Adopt(identity.RefOf(identity.KindService, orphan), owner, part))
	case own != nil:
		p.repairService(own, desired)
	case found.Empty():
		p.Create(identity.KindService, desired, owner, owner.String()+" has no headless service "+desired.Name,
			"Failed to create headless service "+desired.Name, new(identity.RefOf(identity.KindService, desired)))
	}
}

// repairService puts right what a Service publishes. Ports and whatever else
// users added stay. An address once given stays, too: the API server refuses to take it.
func (p *Plan) repairService(service, desired *corev1.Service) {
	if note := NotHeadless(service); note != "" {
		p.Wait(Wait{Reason: Because(CodeNotHeadless, note), Tell: Warning(CodeNotHeadless, "Wait", note, new(identity.RefOf(identity.KindService, service)))})
		return
	}
	if service.Spec.ClusterIP == corev1.ClusterIPNone && service.Spec.PublishNotReadyAddresses && workload.BearsName(service, desired.Labels[lwsv1.SetNameLabelKey]) &&
		equality.Semantic.DeepEqual(service.Spec.Selector, desired.Spec.Selector) {
		return
	}
	desired.Spec.Type = corev1.ServiceTypeClusterIP
	p.Apply(desired, identity.RefOf(identity.KindService, service), FieldOwner,
		Because(CodeChanged, fmt.Sprintf("service %s does not publish what it should", service.Name)),
		"Failed to update headless service "+service.Name)
}

// NotHeadless says that a Service has an address, or is empty.
func NotHeadless(service *corev1.Service) string {
	if service.Spec.ClusterIP == corev1.ClusterIPNone || service.Spec.ClusterIP == "" {
		return ""
	}
	return fmt.Sprintf("service %s has an address of its own, which cannot be taken from it: delete it, and a headless one is made", service.Name)
}
