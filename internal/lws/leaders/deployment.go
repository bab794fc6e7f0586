package leaders

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/table"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/rollout"
)

func (m *deploymentMaker) Desired() (action.Object, *corev1.PodTemplateSpec) {
	desired := workload.LeaderDeployment(m.Set, m.Target.Key, m.pauses())
	return desired, &desired.Spec.Template
}

func (m *deploymentMaker) Differs(object action.Object, applied string) bool {
	live, desired := m.Deployment.Own(), object.(*appsv1.Deployment)
	grants := m.LeadersKey() != m.Target.Key || m.IsDisplaced || live.Spec.Paused && !desired.Spec.Paused
	if grants && m.Limit != nil && m.Limit.Hold != nil { // closed before granted
		return false
	}
	return !isLabelledAs(live, desired) || live.Annotations[lws.AppliedAnnotationKey] != applied || !lws.Contains(&live.Spec, &desired.Spec) || live.Spec.Paused != desired.Spec.Paused
}

func (m *deploymentMaker) Record(_ action.Object, applied string) string { return applied }

// pauses reports whether the Deployment is paused: the rollout is, and it has begun. A Deployment that is paused
// from its beginning makes no leader. It stays paused as long as the set is.
func (m *deploymentMaker) pauses() bool {
	live := m.LeaderDeployment()
	return m.HoldsRollout() && (m.toUpdate() > 0 || live != nil && live.Spec.Paused)
}

// Explain implements Maker.
func (m *deploymentMaker) Explain(write *action.Apply) {
	write.Because = lws.Because(lws.CodeChanged, fmt.Sprintf("deployment %s differs from the spec", m.Set.Name))
	if m.LeadersKey() == m.Target.Key {
		return
	}
	write.Relies = []action.Standing{unchangedSet(m.Table)}
	note := "Updating leader deployment to revision " + m.Target.Key
	write.Tell.Done = []action.Event{lws.Event("GroupsUpdating", "Update", note, m.Target.Revision)}
}

// isObserved reports whether the Deployment controller has seen the present spec, at the revision that groups
// should be at.
func (m *deploymentMaker) isObserved() bool {
	owner := lws.OwnerOf(nil, m.Deployment.Own())
	return owner != nil && owner.IsObserved && owner.Key() == m.TargetKey()
}

func (m *deploymentMaker) IsOutdated(leader *corev1.Pod) bool {
	owner := m.LeadersOwner()
	return leader.Labels[lwsv1.RevisionKey] != m.TargetKey() || owner == nil || m.IsDisplaced || owner.Replaces(leader)
}

// toUpdate counts the leaders of another revision or placement that exist, terminating ones too. Of leaders
// that differ in something else, such as the time of a restart, the Deployment alone knows.
func (m *deploymentMaker) toUpdate() int32 {
	present := func(leader *corev1.Pod) bool { return !m.IsOutdated(leader) }
	return max(int32(len(slices.DeleteFunc(m.LeadersAndLeaving(), present))), m.superseded())
}

// rolls reports whether the Deployment replaces leaders. It may have more of them meanwhile.
func (m *deploymentMaker) rolls() bool {
	return m.superseded() > 0 || slices.ContainsFunc(m.LeadersAndLeaving(), m.LeadersOwner().Replaces)
}

// Moves implements Maker.
func (m *deploymentMaker) Moves() bool {
	return !m.HoldsRollout() && m.LeaderDeployment() != nil && (m.toUpdate() > 0 || m.rolls())
}

// Places implements Maker. No leader has the name of another one, and a Deployment that rolls has more of them.
func (m *deploymentMaker) Places() (n int32, isPlace func(leader string) bool) {
	n = workload.Replicas(m.Set)
	if m.Moves() {
		n += workload.Surge(m.Set)
	}
	isLed := map[string]bool{}
	for i := range m.Rows {
		isLed[m.Rows[i].LeaderName] = true
	}
	return n, func(leader string) bool { return isLed[leader] }
}

// superseded is how many leaders the Deployment has of templates before the present one.
func (m *deploymentMaker) superseded() int32 {
	if deployment := m.Deployment.Own(); deployment != nil {
		return max(0, deployment.Status.Replicas-deployment.Status.UpdatedReplicas)
	}
	return 0
}

func (m *deploymentMaker) Missing() (code, object string, n int32) {
	if d := m.Deployment.Own(); d != nil && lws.ReplicaFailure(d) != "" {
		return lws.CodeFailedCreate, "deployment " + d.Name, max(1, workload.Replicas(m.Set)-d.Status.Replicas)
	}
	return "", "", 0
}

// Runnable implements maker: the keys of the Deployment, and of all pods.
func (m *deploymentMaker) Runnable() (keys map[string]bool, known bool) {
	keys = map[string]bool{m.Target.Key: true}
	for _, leader := range m.LeadersAndLeaving() {
		keys[leader.Labels[lwsv1.RevisionKey]] = true
	}
	for i := range m.Vacant {
		pods := &m.Vacant[i].Pods
		for _, pod := range slices.Concat(pods.Owned, pods.Previous, pods.Orphans, pods.Foreign) {
			keys[pod.Labels[lwsv1.RevisionKey]] = true
		}
	}
	return keys, m.isObserved() && m.toUpdate() == 0
}

// AsksFor implements maker. A group that is gone is not missed.
func (m *deploymentMaker) AsksFor(r *table.Row) (isWanted, isCurrent bool) {
	return r.Leader != nil || r.IsStopped, r.Leader != nil
}

// Needed implements maker. No two leaders have one name.
func (m *deploymentMaker) Needed([]lws.Object) []lws.Object { return nil }

// LeftBehind implements maker: a leader that was deleted with --cascade=orphan left them behind. No leader adopts them,
// because the next one has another key, and they hold the room of a group.
func (m *deploymentMaker) LeftBehind() (found []lws.Object) {
	for _, g := range m.Vacant {
		found = append(found, lws.ObjectsOf(identity.KindPod, slices.Concat(g.Pods.Foreign, g.Pods.Orphans))...)
	}
	return found
}

// Correct implements maker. More groups than are wanted may exist, and leaders that end are to be replaced as well.
func (m *deploymentMaker) Correct(c *lws.Standing) {
	replicas := workload.Replicas(m.Set)
	for _, n := range []*int32{&c.WantedReady, &c.AtTarget, &c.TargetUpdated, &c.TargetReady} {
		*n = min(*n, replicas)
	}
	c.Current = c.TargetUpdated + m.toUpdate()
	c.Surge = max(0, int32(len(m.Rows))-replicas)
	c.Down = replicas - c.WantedReady
	c.Unobserved = !m.isObserved()
}

// Rolling implements maker. The Deployment controller rolls.
func (m *deploymentMaker) Rolling() (rollout.State, rollout.Course) {
	return rollout.State{}, rollout.Course{Partition: workload.Partition(m.Set), Replicas: workload.Replicas(m.Set)}
}

// Repair implements maker. The controller replaces all leaders itself, and waits for no name.
func (m *deploymentMaker) Repair() (p lws.Plan) { return p }

func (m *deploymentMaker) InService() (sizes []int32, room int32) {
	allowed, holding := workload.Replicas(m.Set), m.gated.room.Holding
	if live := m.LeadersOwner(); live != nil {
		allowed = max(allowed, m.gated.room.Allowed)
		if m.Refusal.Sentence != "" {
			allowed = min(allowed, live.Wants)
		}
	}
	if m.gated.room.Immediate {
		holding = m.gated.room.Stopped
	}
	for i := range m.Rows {
		r := &m.Rows[i]
		if isAdmitted := !workload.IsGated(r.Leader) || slices.Contains(m.gated.admitted, r.Leader); isAdmitted && !workload.HasEnded(r.Leader) {
			sizes = append(sizes, podsInGang(r))
		}
	}
	return sizes, allowed - int32(len(sizes)) - holding
}
