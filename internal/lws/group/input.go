package group

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// input has the snapshot that the rules of a group read, and what restore derived from it.
type input struct {
	*lws.GroupSnapshot
	maker
	// restored is the set at the leader's revision, once known.
	restored *lwsv1.LeaderWorkerSet
}

// maker answers what differs between the groups of Ordinal sets, whose leaders a StatefulSet creates, and of Hash sets,
// whose leaders a ReplicaSet creates.
type maker interface {
	// isScaledAway reports whether the set asks for no such group.
	isScaledAway() bool
	// isRolled reports whether the rollout replaces a leader.
	isRolled(leader *corev1.Pod) bool
	// hasFailed reports whether the terminating leader failed.
	hasFailed() bool
	// deleteEnded, ungate and awaitRoom are rules. tell adds what others are told of the group to its plan.
	deleteEnded() (p lws.Plan, next bool)
	ungate() (p lws.Plan, next bool)
	awaitRoom() (p lws.Plan, next bool)
	tell(lws.Plan) lws.Plan
}

// restore restores the set as it was when the leader was created: workers have their leader's revision.
func restore(g *input) (p lws.Plan, next bool) {
	if g.restored != nil {
		return p, true
	}
	restored, err := revision.RestoredAt(g.Set, g.Revisions, g.Leader.Labels[lwsv1.RevisionKey])
	if err != nil {
		p.Wait(lws.Wait{Reason: lws.Because(lws.CodeRevisionNotVisible, fmt.Sprintf("leader %s waits for its revision: %v", g.Leader.Name, err))})
		return p, false
	}
	g.restored = restored
	return p, true
}

// pods is the group of a leader as package restart reads it.
func (g *input) pods(leader *corev1.Pod) restart.Group {
	return restart.Group{Set: g.Set, Index: g.Index, Leader: leader, Workers: g.Workers, Pods: g.Pods, KeepsLogs: g.KeepsLogs, HoldsNames: g.HoldsNames}
}

type ordinalMaker struct{ *input }
type hashMaker struct{ *input }

func newMaker(g *input) maker {
	if g.HasKey() {
		return hashMaker{g}
	}
	return ordinalMaker{g}
}

func (g ordinalMaker) isScaledAway() bool { return int32(g.Index) >= workload.PodsOf(g.LeaderSet) }

// isScaledAway implements maker: the set decides which groups it deletes.
func (g hashMaker) isScaledAway() bool { return false }

func (g ordinalMaker) deleteEnded() (p lws.Plan, next bool) { return p, true }
func (g ordinalMaker) awaitRoom() (p lws.Plan, next bool)   { return p, true }
func (g ordinalMaker) tell(plan lws.Plan) lws.Plan          { return plan }

func (g ordinalMaker) isRolled(leader *corev1.Pod) bool {
	if leader.Labels[lwsv1.RevisionKey] == lws.OwnerOf(g.LeaderSet, nil).Key() {
		return restart.IsReplaced(g.Set, g.Index, leader) // the template changed back meanwhile
	}
	return int32(g.Index) >= lws.LivePartition(g.LeaderSet)
}

func (g hashMaker) isRolled(leader *corev1.Pod) bool {
	return g.Deployment != nil && leader.Labels[lwsv1.RevisionKey] != lws.OwnerOf(nil, g.Deployment).Key()
}

// hasFailed implements maker. A leader whose workers are in other PodGroups was deleted for that.
func (g ordinalMaker) hasFailed() bool {
	return !g.isScaledAway() && !g.isRolled(g.Leaving) && !slices.ContainsFunc(lws.WorkersOf(&g.Group, g.Leaving), func(sts *appsv1.StatefulSet) bool {
		return workload.AreApart(g.Leaving, sts)
	})
}

// hasFailed implements maker. No field says whether the ReplicaSet deleted the leader alone.
func (g hashMaker) hasFailed() bool {
	if g.isRolled(g.Leaving) {
		return false
	}
	failure := g.pods(g.Leaving).FailureOfLeader(g.Now)
	return restart.Of(g.Set, g.Leaving) != nil || failure.Code != restart.CodePodDeleted || failure.Disrupted
}

// deleteEnded implements maker: it deletes a leader whose containers ended, and its group. Its ReplicaSet has created
// another one.
func (g hashMaker) deleteEnded() (p lws.Plan, next bool) {
	if g.Leader == nil || !workload.HasEnded(g.Leader) {
		return p, true
	}
	p.Do(deletionOf(identity.RefOf(identity.KindPod, g.Leader), g.recreation()))
	return p, false
}

// ungate implements maker: it lets a leader be scheduled once no pod of a previous incarnation has a name of its group,
// also above its size.
func (g ordinalMaker) ungate() (p lws.Plan, next bool) {
	if !workload.IsGated(g.Leader) {
		return p, true
	}
	if left := lws.ObjectsOf(identity.KindPod, g.Pods.Previous); len(left) > 0 {
		p.Wait(lws.GoneWait(g.Set, fmt.Sprintf("leader %s is scheduled once these are gone: ", g.Leader.Name), left, time.Time{}))
		return p, false
	}
	if g.HoldsNames && restart.ReplacesUncounted(g.Set, g.Index, g.Leader) {
		p.Await(time.Time{}, lws.CodeHeld, fmt.Sprintf("leader %s is scheduled once the status counts the leader before it", g.Leader.Name))
		return p, false
	}
	if held := restart.HeldUntil(g.Set, g.Index); g.Now.Before(held) {
		p.Await(held, lws.CodeHeld, fmt.Sprintf("leader %s is scheduled at %s: drains may still retry the old pods of its group",
			g.Leader.Name, held.UTC().Format(time.RFC3339)))
		return p, false
	}
	p.Do(liftGate(g.Leader, fmt.Sprintf("leader %s has the gate %s, and no pod of the group before it is left", g.Leader.Name, lwsv1.GroupReplacementGate)))
	return p, true // no event need follow: a scheduler may wait for the PodGroup of the leader
}

// ungateWorkers lets a worker be scheduled that replaces another one, where the group is not recreated. Its event has the
// next one follow.
func ungateWorkers(g *input) (p lws.Plan, next bool) {
	if i := slices.IndexFunc(g.Pods.Owned, workload.IsGated); i >= 0 {
		p.Do(liftGate(g.Pods.Owned[i], fmt.Sprintf("worker %s has the gate %s, and its group is not recreated", g.Pods.Owned[i].Name, lwsv1.GroupReplacementGate)))
	}
	return p, true
}

func liftGate(pod *corev1.Pod, why string) action.Ungate {
	return action.Ungate{Pod: identity.RefOf(identity.KindPod, pod), Gate: lwsv1.GroupReplacementGate, Because: lws.Because(lws.CodePreviousGone, why)}
}

// ungate implements maker: the set lifts the gate.
func (g hashMaker) ungate() (p lws.Plan, next bool) { return p, true }

// awaitRoom implements maker: it creates nothing before the set has room for its leader.
func (g hashMaker) awaitRoom() (p lws.Plan, next bool) {
	if !workload.IsGated(g.Leader) {
		return p, true
	}
	p.Wait(lws.Wait{Reason: lws.Because(lws.CodeDeferred, fmt.Sprintf("group %s starts once its set has room for it", g.Name()))})
	return p, false
}

// tell implements maker: it tells the Deployment controller whether the group is ready: a condition of the leader says
// whether its workers are. A leader that is created for a group of one has no such gate. The write comes first: what
// the API server refuses is tried again and again.
func (g hashMaker) tell(plan lws.Plan) lws.Plan {
	if g.Leader == nil || workload.SizeOf(g.Leader, g.Set) < 2 || plan.Needs != "" || deletes(&plan, g.Leader) {
		return plan
	}
	want := corev1.PodCondition{
		Type: lwsv1.GroupReadyCondition, Status: corev1.ConditionFalse, Reason: lwsv1.WorkersNotReadyReason, LastTransitionTime: metav1.NewTime(g.Now),
	}
	if sts := g.Workers.Own(); sts != nil && lws.WorkersReady(sts) {
		want.Status, want.Reason = corev1.ConditionTrue, lwsv1.WorkersReadyReason
	}
	if lws.GroupReadyOf(g.Leader) == want.Status {
		return plan
	}
	plan.Actions = slices.Insert(plan.Actions, 0, action.Action(action.SetCondition{
		Object: identity.RefOf(identity.KindPod, g.Leader), Condition: want,
		Because: lws.Because(lws.CodeGroupReady, fmt.Sprintf("the workers of group %s are ready: %s", g.Name(), want.Status)),
	}))
	return plan
}

// deletes reports whether the plan deletes a pod.
func deletes(p *lws.Plan, pod *corev1.Pod) bool {
	return slices.ContainsFunc(p.Actions, func(a action.Action) bool {
		deletion, is := a.(action.Delete)
		return is && deletion.Object.UID == pod.UID
	})
}

// deletionOf deletes a part of the group at any version: the group ends whatever became of the part since.
func deletionOf(part identity.Ref, reason action.Reason) action.Action {
	return action.Delete{Object: part, AnyVersion: true, Because: reason}
}

func (g *input) recreation() action.Reason {
	return lws.Because(lws.CodeRestart, fmt.Sprintf("group %s is recreated and all of its pods end together", g.Name()))
}
