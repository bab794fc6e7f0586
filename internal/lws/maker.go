package lws

import (
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/rollout"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// maker answers what differs between Ordinal sets, whose leaders a StatefulSet creates, and Hash sets, whose leaders a
// Deployment creates.
type maker interface {
	// desired is the object that makes the leaders as the spec wants it, and its template.
	desired() (action.Object, *corev1.PodTemplateSpec)
	// differs reports whether an apply of it is due, and record is what it says of that apply.
	differs(desired action.Object, applied string) bool
	record(desired action.Object, applied string) string
	whyApply() action.Reason
	// relied are the preconditions of the apply, and rolloutEvents the events of a rollout that it continues.
	relied() []action.Standing
	rolloutEvents() []action.Event
	// admit lets leaders be scheduled that wait for room.
	admit() Plan
	// repair does what its controller leaves undone.
	repair() Plan

	// asksFor reports whether the set asks for a group, and for the present revision of it.
	asksFor(*row) (isWanted, isCurrent bool)
	// needed returns those of the objects that have names of leaders which the set needs.
	needed([]bearer) []bearer
	// isOutdated reports whether a leader is to be replaced by one of another revision or placement.
	isOutdated(leader *corev1.Pod) bool
	// runnable are the keys of the revisions that leaders run or may be created at, if they are known.
	runnable() (keys map[string]bool, known bool)
	// correct adds to counts what no row says.
	correct(*Standing)
	// rolling returns where a rolling update stands, and where it goes next.
	rolling() (rollout.State, rollout.Course)
	// down is how many wanted groups are down, as the rollout counts.
	down() int32
	// missing returns how many leaders cannot be created, and what should create them.
	missing() (code, object string, n int32)
	// inService returns the sizes of the groups that are in the PodGroup of all pods, and how many more there is room for.
	inService() (sizes []int32, room int32)
	// settle drops records of groups that do not come back, or gives them to others.
	settle(*restart.Status)
}

// statefulSetMaker answers for Ordinal sets.
type statefulSetMaker struct{ *setDecision }

// deploymentMaker answers for Hash sets: any leader is as good as another.
type deploymentMaker struct {
	*setDecision
	// gated are the leaders that wait for room.
	gated replacements
}

func newMaker(d *setDecision) maker {
	if workload.HasHashIdentity(d.Set) {
		return &deploymentMaker{setDecision: d}
	}
	return &statefulSetMaker{d}
}

func (d *statefulSetMaker) asksFor(r *row) (isWanted, isCurrent bool) {
	isWanted = int32(r.Index) < workload.Replicas(d.Set)
	return isWanted, isWanted && int32(r.Index) >= workload.Partition(d.Set)
}

// asksFor implements maker. A group that is gone is not missed.
func (d *deploymentMaker) asksFor(r *row) (isWanted, isCurrent bool) {
	return r.Leader != nil || r.isStopped, r.Leader != nil
}

func (d *statefulSetMaker) needed(all []bearer) []bearer {
	return below(all, 0, workload.Replicas(d.Set))
}

// needed implements maker. No two leaders have one name.
func (d *deploymentMaker) needed([]bearer) []bearer { return nil }

func (d *statefulSetMaker) isOutdated(leader *corev1.Pod) bool {
	return leader.Labels[lwsv1.RevisionKey] != d.target.key || workload.LeftBehind(d.leaderStatefulSet(), leader)
}

func (d *statefulSetMaker) correct(c *Standing) {
	for i := range d.rows {
		c.Surge += one(int32(d.rows[i].Index) >= d.course.Replicas)
	}
}

// correct implements maker. More groups than are wanted may exist, and leaders that end are to be replaced as well.
func (d *deploymentMaker) correct(c *Standing) {
	replicas := workload.Replicas(d.Set)
	for _, n := range []*int32{&c.wantedReady, &c.atTarget, &c.TargetUpdated, &c.TargetReady} {
		*n = min(*n, replicas)
	}
	c.current = c.TargetUpdated + d.toUpdate()
	c.Surge = max(0, int32(len(d.rows))-replicas)
	c.unobserved = !d.isObserved()
}

func (d *statefulSetMaker) down() int32 { return d.rollout.Down() }

func (d *deploymentMaker) down() int32 { return workload.Replicas(d.Set) - d.wantedReady }

// rolling implements maker. The Deployment controller rolls.
func (d *deploymentMaker) rolling() (rollout.State, rollout.Course) {
	return rollout.State{}, rollout.Course{Partition: workload.Partition(d.Set), Replicas: workload.Replicas(d.Set)}
}

// settle implements maker. Groups up to the last that exists or is wanted may come back.
func (d *statefulSetMaker) settle(s *restart.Status) {
	end := workload.Replicas(d.Set)
	if owner := d.leadersOwner(); owner != nil {
		end = max(end, owner.wants)
	}
	if n := len(d.rows); n > 0 { // by rising index
		end = max(end, int32(d.rows[n-1].Index)+1)
	}
	s.Trim(end)
}

// admit implements maker. Each group lifts the gate of its leader.
func (d *statefulSetMaker) admit() (p Plan) { return p }

func (d *statefulSetMaker) repair() Plan {
	if p := d.replace(); len(p.Actions) > 0 {
		return p
	}
	return d.touch()
}

// repair implements maker. The controller replaces all leaders itself, and waits for no name.
func (d *deploymentMaker) repair() (p Plan) { return p }
