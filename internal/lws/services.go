package lws

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// service keeps the Shared headless Service what it should be, for as long as pods
// hang from it. A previous or foreign object under its name costs only the Service.
func (d *setDecision) service() (p Plan) {
	if !d.held && d.wantsShared() {
		p.keepService(d.Service, workload.SharedService(d.Set), setRef(d.Set))
	}
	return p
}

// wantsShared reports whether pods of the set hang from the Shared Service.
func (d *setDecision) wantsShared() bool { return workload.Subdomain(d.Set) == lwsv1.SubdomainShared }

// ownService keeps the group's headless Service what it should be under
// UniquePerReplica. A foreign one under its name costs the DNS names, not the workers.
func (d *groupDecision) ownService() bool {
	if d.HasOwnSubdomain(d.Set) {
		d.plan.keepService(d.Service, workload.GroupService(d.Set, d.Leader), identity.RefOf(identity.KindPod, d.Leader))
	}
	return true
}

// keepService makes a Service where none is, adopts one without a controller, and puts right one that was changed.
func (p *Plan) keepService(found identity.Claim[*corev1.Service], desired *corev1.Service, owner identity.Ref) {
	if service := found.Orphan(); service != nil {
		p.do(adopt(identity.RefOf(identity.KindService, service), owner, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{OwnerReferences: desired.OwnerReferences},
		}))
		return
	}
	if service := found.Own(); service != nil {
		p.repairService(service, desired)
		return
	}
	if found.Empty() {
		p.do(action.Create{
			Kind: identity.KindService, Object: desired, Owner: owner,
			Because: because(CodeMissing, owner.String()+" has no headless service "+desired.Name),
			Tell:    action.Telling{Refused: warning("FailedCreate", "Create", "Failed to create headless service "+desired.Name, new(identity.RefOf(identity.KindService, desired)))},
		})
	}
}

// repairService puts right what a Service publishes. Ports and whatever else
// users added stay. An address once given stays, too: the API server refuses to take it.
func (p *Plan) repairService(service, desired *corev1.Service) {
	if hasAddress(service) {
		note := notHeadless(service)
		p.wait(Wait{Reason: because(CodeNotHeadless, note), Tell: warning(CodeNotHeadless, "Wait", note, new(identity.RefOf(identity.KindService, service)))})
		return
	}
	if service.Spec.ClusterIP == corev1.ClusterIPNone && service.Spec.PublishNotReadyAddresses && workload.BearsName(service, desired.Labels[lwsv1.SetNameLabelKey]) &&
		equality.Semantic.DeepEqual(service.Spec.Selector, desired.Spec.Selector) {
		return
	}
	desired.Spec.Type = corev1.ServiceTypeClusterIP
	p.apply(desired, identity.RefOf(identity.KindService, service), FieldOwner,
		because(CodeChanged, fmt.Sprintf("service %s does not publish what it should", service.Name)),
		"Failed to update headless service "+service.Name)
}

func hasAddress(service *corev1.Service) bool {
	return service.Spec.ClusterIP != corev1.ClusterIPNone && service.Spec.ClusterIP != ""
}

func notHeadless(service *corev1.Service) string {
	return fmt.Sprintf("service %s has an address of its own, which cannot be taken from it: delete it, and a headless one is made", service.Name)
}

// unresolvedLeaders returns why workers cannot resolve the name of their leader, and what to do, or nothing. A group
// of one has no worker, so it needs no Service.
func (d *setDecision) unresolvedLeaders() action.Reason {
	for i := range d.rows {
		g, found := &d.rows[i], d.Service
		if g.size < 2 {
			continue
		}
		if g.HasOwnSubdomain(d.Set) {
			found = g.Service
		}
		own := cmp.Or(found.Own(), found.Orphan())
		refused := func(r Refused) bool { return r.Index == identity.NoOrdinal || r.Index == g.Index }
		switch {
		case own != nil && hasAddress(own):
			return because(CodeNotHeadless, notHeadless(own))
		case len(found.Foreign) > 0 && !d.publishes(found.Foreign[0], g.Leader):
			return because(CodeNameConflict, "workers cannot resolve their leaders: "+conflictMessage(bearersOf(identity.KindService, found.Foreign)))
		case found.Empty() && slices.ContainsFunc(d.Refused, refused):
			return because(CodeRefused, d.hindrance)
		}
	}
	return action.Reason{}
}

// publishes reports whether a Service of another owner makes the name of a leader known. Memory keeps no labels of users
// on pods: the template has them.
func (d *setDecision) publishes(service *corev1.Service, leader *corev1.Pod) bool {
	return service.Spec.ClusterIP == corev1.ClusterIPNone && len(service.Spec.Selector) > 0 &&
		labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Merge(workload.WrittenForLeaders(d.Set).Labels, leader.Labels))
}
