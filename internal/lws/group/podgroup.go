package group

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/scheduling"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// keepNative keeps the PodGroups of a leader that belongs to a Workload.
func keepNative(g *input) (p lws.Plan) {
	if g.Set.Spec.Scheduling == nil {
		return p
	}
	described := g.Workload.Own()
	if described == nil {
		p.Wait(lws.Wait{Reason: lws.Because(lws.CodeWorkloadNotReady, fmt.Sprintf("the podgroups of group %s are created once workload %s exists", g.Name(), gang.WorkloadName(g.Set)))})
		return p
	}
	wanted, err := gang.GroupPodGroups(g.Set, described, g.Leader, workload.SizeOf(g.Leader, g.Set))
	if err != nil {
		p.Await(g.Now.Add(lws.ConflictLook), lws.CodeWorkloadNotReady, err.Error())
		return p
	}
	for _, want := range wanted {
		found := g.PodGroups.Named(want.GetName())
		if len(found.Foreign) > 0 {
			p.Wait(lws.Wait{
				Reason: lws.Because(lws.CodePodGroupOwner, lws.ConflictMessage(lws.ObjectsOf(identity.KindPodGroup, found.Foreign))),
				Tell: &action.Event{
					Warning: true, Reason: lws.CodePodGroupOwner, Action: "Wait", On: new(identity.RefOf(identity.KindPod, g.Leader)),
					Note: "PodGroup " + want.GetName() + " has another owner: remove it, and one for this group is created",
				},
			})
		}
		scheduling.KeepNative(&p, identity.KindPodGroup, found, want, g.Set)
	}
	return p
}

// deleteStrays deletes workers that a leader deleted with --cascade=orphan left behind, if their PodGroup is not that of the
// next leader: adopted, they would keep it waiting for ever.
func deleteStrays(g *input) (p lws.Plan, next bool) {
	sts := g.Workers.Orphan()
	if sts == nil || !workload.AreApart(g.Leader, sts) {
		return p, true
	}
	p.Do(action.Delete{
		Object:  identity.RefOf(identity.KindStatefulSet, sts),
		Because: lws.Because(lws.CodeOrphan, fmt.Sprintf("the workers of statefulset %s are in the podgroup of a former leader, and leader %s waits for others", sts.Name, g.LeaderName)),
	})
	return p, false
}

// deleteApart deletes a leader whose workers are in other PodGroups, and reports whether it does: an operator that did not
// know the field created them. Workers that have a node run, and stay.
func deleteApart(g *input, sts *appsv1.StatefulSet) (p lws.Plan, does bool) {
	hasNode := func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" }
	if !workload.AreApart(g.Leader, sts) || slices.ContainsFunc(slices.Concat(g.Pods.Owned, g.Pods.Previous), hasNode) {
		return p, false
	}
	if !g.Live {
		return lws.Plan{Needs: lws.NeedLivePods}, true
	}
	leader := identity.RefOf(identity.KindPod, g.Leader)
	note := fmt.Sprintf("Worker statefulset %s was created by a previous LWS version and its workers do not join "+
		"the PodGroups of leader pod %s, deleted the leader pod to recreate group %s", sts.Name, g.LeaderName, g.Name())
	p.Do(action.Delete{
		Object: leader, AnyVersion: true, Foreground: true,
		Because: lws.Because(lws.CodeOutdated, fmt.Sprintf("the workers of statefulset %s are in other podgroups than leader %s", sts.Name, g.LeaderName)),
		Tell:    action.Telling{Done: []action.Event{lws.Event("RecreateGroup", "Delete", note, &leader)}},
	})
	return p, true
}

// keepPodGroup keeps the PodGroup of a group. The leader decides whether there is one, not the set as it is now: a
// gang is whole or it is none. The leader owns the PodGroup; one of an earlier leader goes first.
func keepPodGroup(g *input) (p lws.Plan, next bool) {
	switch {
	case gang.IsHanded(g.Leader):
		return keepNative(g), true
	case !gang.IsTied(g.Leader): // a group from before its set asked for a gang has none until it is recreated
	case g.GangMissing != "":
		p.Wait(lws.Wait{Reason: lws.Because(lws.CodeGangSchedulerMissing, g.GangMissing)})
	case g.Gang.Own() == nil && g.Gang.Orphan() == nil && !g.Gang.Empty():
		// It is foreign, which the set reports, or of a previous leader, which the group waits for.
	default:
		if wait, known := restore(g); !known {
			return wait, true
		}
		return keepVolcano(g, gang.Object(workload.GangGroup(g.Set, g.restored, g.Leader))), true
	}
	return p, true
}

func keepVolcano(g *input, want *unstructured.Unstructured) (p lws.Plan) {
	leader := identity.RefOf(identity.KindPod, g.Leader)
	switch orphan, own := g.Gang.Orphan(), g.Gang.Own(); {
	case orphan != nil:
		part := &unstructured.Unstructured{}
		part.SetGroupVersionKind(orphan.GroupVersionKind())
		part.SetOwnerReferences(workload.OwnedByLeader(g.Leader))
		p.Do(lws.Adopt(identity.RefOf(identity.KindPodGroup, orphan), leader, part))
	case own == nil:
		why := fmt.Sprintf("group %s has no podgroup %s", g.Name(), want.GetName())
		p.Create(identity.KindPodGroup, want, leader, why, "Failed to create podgroup for leader pod "+g.LeaderName, &leader)
	case !gang.InStep(own, want):
		reason := lws.Because(lws.CodeChanged, fmt.Sprintf("podgroup %s does not say what group %s is", want.GetName(), g.Name()))
		p.Apply(want, identity.RefOf(identity.KindPodGroup, own), lws.FieldOwner, reason, "")
	}
	return p
}
