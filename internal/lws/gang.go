package lws

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// scheduledAsGang keeps the PodGroup of a group. The leader decides whether there is one, not the set as it is now: a
// gang is whole or it is none. The leader owns the PodGroup; one of an earlier leader goes first.
func (d *groupDecision) scheduledAsGang() bool {
	switch {
	case gang.IsHanded(d.Leader):
		d.keepPodGroups()
	case !gang.IsTied(d.Leader): // a group from before its set asked for a gang has none until it is recreated
	case d.GangMissing != "":
		d.plan.wait(Wait{Reason: because(CodeGangSchedulerMissing, d.GangMissing)})
	case d.Gang.Own() == nil && d.Gang.Orphan() == nil && !d.Gang.Empty():
		// It is foreign, which the set reports, or of a previous leader, which the group waits for.
	case d.revision():
		d.keepGang(gang.Object(workload.GangGroup(d.Set, d.restored, d.Leader)))
	}
	return true
}

func (d *groupDecision) keepGang(want *unstructured.Unstructured) {
	leader := identity.RefOf(identity.KindPod, d.Leader)
	if have := d.Gang.Orphan(); have != nil {
		d.plan.do(adopt(identity.RefOf(identity.KindPodGroup, have), leader, ownedPart(have, d.Leader)))
		return
	}
	have := d.Gang.Own()
	if have == nil {
		d.plan.do(action.Create{
			Kind:    identity.KindPodGroup,
			Object:  want,
			Owner:   leader,
			Because: because(CodeMissing, fmt.Sprintf("group %s has no podgroup %s", d.name(), want.GetName())),
			Tell: action.Telling{
				Refused: warning("FailedCreate", "Create", "Failed to create podgroup for leader pod "+d.LeaderName, &leader),
			},
		})
		return
	}
	if !gang.InStep(have, want) {
		reason := because(CodeChanged, fmt.Sprintf("podgroup %s does not say what group %s is", want.GetName(), d.name()))
		d.plan.apply(want, identity.RefOf(identity.KindPodGroup, have), FieldOwner, reason, "")
	}
}

func ownedPart(object *unstructured.Unstructured, leader *corev1.Pod) *unstructured.Unstructured {
	part := &unstructured.Unstructured{}
	part.SetGroupVersionKind(object.GroupVersionKind())
	part.SetOwnerReferences(workload.OwnedByLeader(leader))
	return part
}
