package lws

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// Workers carry their leader's revision. Whoever deletes a leader and leaves its
// workers behind has them adopted by the next one; if that one is of another
// revision by then, they are made anew. What they were made of never changes, so
// their StatefulSet goes, and another takes its place.

// astray is the group's worker StatefulSet if it makes workers of another revision
// than the leader's, or nil. The template tells: it is what pods are made from, and
// what has lost it is left as it is.
func (g *Group) astray() *appsv1.StatefulSet {
	sts := g.Workers.Member()
	if sts == nil || g.Leader == nil {
		return nil
	}
	made, led := sts.Spec.Template.Labels[lwsv1.RevisionKey], g.Leader.Labels[lwsv1.RevisionKey]
	if made == "" || led == "" || made == led {
		return nil
	}
	return sts
}

// Astray tells whether a group's workers are to be made anew at its leader's revision.
func Astray(g *Group) bool { return g.astray() != nil }

// replaceWorkers deletes workers that went astray. Their claims are tied by then.
func (d *groupDecision) replaceWorkers(sts *appsv1.StatefulSet) {
	leader := identity.RefOf(identity.KindPod, d.Leader)
	made, led := sts.Spec.Template.Labels[lwsv1.RevisionKey], d.Leader.Labels[lwsv1.RevisionKey]
	d.plan.do(action.Delete{
		Object:  identity.RefOf(identity.KindStatefulSet, sts),
		Because: because(CodeOutdated, fmt.Sprintf("workers of group %d are of revision %s, and leader %s is of %s", d.Index, made, d.LeaderName, led)),
		Tell: action.Telling{Done: []action.Event{{
			Reason: "GroupsUpdating", Action: "Delete", Related: &leader,
			Note: fmt.Sprintf("Deleted worker statefulset %s of revision %s: its leader pod is of revision %s", sts.Name, made, led),
		}}},
	})
}
