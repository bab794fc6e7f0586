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

// scheduledAsGang keeps the PodGroup of a group. The leader decides whether there is one, not
// the set as it is now: a gang is whole or it is none. The leader owns the PodGroup; one of
// an earlier leader goes first.
func (d *groupDecision) scheduledAsGang() bool {
	switch {
	case !gang.IsTied(d.Leader):
		d.beforeGangs()
	case d.GangMissing != "":
		d.plan.wait(Wait{Reason: because(CodeGangSchedulerMissing, d.GangMissing)})
	case len(d.Gang.Previous) > 0:
		previous := previousOf(identity.KindPodGroup, d.Gang.Previous)
		d.plan.wait(Wait{Reason: because(CodePreviousIncarnation, fmt.Sprintf("group %d is no gang before %s have left", d.Index, named(previous)))})
	case d.Gang.Own() == nil && d.Gang.Orphan() == nil && !d.Gang.Empty():
		// It is foreign: the set reports it.
	case d.revision():
		d.keepGang(gang.Object(workload.GangGroup(d.Set, d.restored, d.Leader)))
	}
	return true
}

// beforeGangs waits for a group that was created before its set asked for a gang scheduler: its
// pods get a PodGroup when the group is recreated.
func (d *groupDecision) beforeGangs() {
	if gang.IsWanted(d.Set, false) {
		d.plan.wait(Wait{Reason: because(CodeNoGangYet,
			fmt.Sprintf("group %d was made before the set asked for %s, and is handed to it when it is recreated", d.Index, gang.Volcano))})
	}
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
			Because: because(CodeMissing, fmt.Sprintf("group %d has no podgroup %s", d.Index, want.GetName())),
			Tell: action.Telling{
				Refused: warning("FailedCreate", "Create", "Failed to create podgroup for leader pod "+d.LeaderName, &leader),
			},
		})
		return
	}
	if !gang.InStep(have, want) {
		reason := because(CodeChanged, fmt.Sprintf("podgroup %s does not say what group %d is", want.GetName(), d.Index))
		d.plan.apply(want, identity.RefOf(identity.KindPodGroup, have), FieldOwner, reason, "")
	}
}

func ownedPart(object *unstructured.Unstructured, leader *corev1.Pod) *unstructured.Unstructured {
	part := &unstructured.Unstructured{}
	part.SetGroupVersionKind(object.GroupVersionKind())
	part.SetOwnerReferences(workload.OwnedByLeader(leader))
	return part
}
