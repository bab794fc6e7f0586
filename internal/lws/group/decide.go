package group

import (
	"fmt"
	"slices"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// rules are those of a group, in order of precedence. Each reports whether the next one is asked.
var rules = []func(*input) (p lws.Plan, next bool){
	keepEvidence,         // keep the pods of a group that was stopped, until a cause to let them end
	retainPVCs,           // wait until no PVC ends with its StatefulSet
	recreateFailed,       // delete all pods of a group that failed
	(*input).deleteEnded, // delete a Hash leader whose containers ended
	writePolicy,          // write podTerminationPolicy for the time after the set
	awaitPrevious,        // wait for objects of a previous incarnation
	deleteStrays,         // delete workers that are in the PodGroup of a former leader
	ungateWorkers,        // let workers be scheduled that replace others
	(*input).ungate,      // let the leader be scheduled
	reportConflicts,      // look again for objects of other owners
	refuseMistaken,       // stop at a leader with the annotation of a worker
	keepService,          // create or repair the group's own Service
	keepPodGroup,         // create or correct the group's PodGroups
	(*input).awaitRoom,   // wait until the set has room for a Hash leader
	keepWorkers,          // leave an existing worker StatefulSet as it is, or scale it back
	adoptWorkers,         // adopt the worker StatefulSet that a former leader left
	restore,              // read the set as it was when the leader was created
	awaitLeader,          // wait for a ready leader, where the set asks for it
	createWorkers,        // create the worker StatefulSet
}

// Decide decides about one group.
func Decide(w lws.GroupSnapshot) (plan lws.Plan) {
	g := &input{GroupSnapshot: &w}
	g.maker = newMaker(g)
	if len(w.Beyond) > 0 { // the set's reconcile looks again, and wakes its groups
		plan.Wait(lws.Wait{Reason: lws.Because(lws.CodeUnsupported, action.UnsupportedText(w.Beyond))})
		return plan
	}
	if w.Set == nil || w.Set.DeletionTimestamp != nil { // the garbage collector deletes what is left
		plan = endInParallel(g)
		plan.Add(lws.Release(w.Kept, w.LeaderName, "its set is deleted"))
		return plan
	}
	w.Set = lws.AsLed(volumes.AsCreated(w.Set, w.LeaderSet), w.Leader)
	for _, rule := range rules {
		p, next := rule(g)
		plan.Add(p)
		if !next {
			break
		}
	}
	return g.tell(plan)
}

// awaitPrevious creates nothing in the group while objects of a previous incarnation have its names,
// and deletes those that are garbage.
func awaitPrevious(g *input) (p lws.Plan, next bool) {
	others := append(lws.ObjectsOf(identity.KindService, g.Service.Previous), lws.ObjectsOf(identity.KindPodGroup, g.Gang.Previous)...)
	others = append(others, lws.ObjectsOf(identity.KindPodGroup, g.PodGroups.Previous)...)
	p.HelpAlong(g.Now, g.Vigil, g.Lives, slices.Concat(
		lws.ObjectsOf(identity.KindStatefulSet, g.Workers.Previous), lws.ObjectsOf(identity.KindPod, g.Pods.Previous), others))
	if g.Leader == nil {
		return p, false
	}
	blocking := g.Previous(workload.SizeOf(g.Leader, g.Set))
	if waited := slices.Concat(blocking, others); len(waited) > 0 { // no event tells when an object without our labels is gone
		p.Wait(lws.GoneWait(g.Set, fmt.Sprintf("group %s waits for ", g.Name()), waited, g.Now.Add(lws.ConflictLook)))
	}
	return p, len(blocking) == 0
}

// reportConflicts reads the group again while foreign objects have its names: the operator does not
// watch them. The set reports them.
func reportConflicts(g *input) (p lws.Plan, next bool) {
	if found := g.Conflicts(g.Set); len(found) > 0 {
		p.Wait(lws.Wait{Reason: lws.Because(lws.CodeNameConflict, lws.ConflictMessage(found)), Until: g.Now.Add(lws.ConflictLook)})
	}
	return p, true
}

// refuseMistaken stops at a leader with the annotation of a worker: an API server
// without start ordinals would otherwise create groups of groups for ever.
func refuseMistaken(g *input) (p lws.Plan, next bool) {
	if _, mistaken := g.Leader.Annotations[lwsv1.LeaderPodNameAnnotationKey]; !mistaken {
		return p, true
	}
	note := fmt.Sprintf(
		"leader pod %s/%s contains mistake annotation '%s': requires Kubernetes ≥v1.27 or v1.26 with StatefulSetStartOrdinal feature",
		g.Leader.Namespace, g.Leader.Name, lwsv1.LeaderPodNameAnnotationKey)
	p.Wait(lws.Wait{Reason: lws.Because(lws.CodeMistakenAnnotation, note), Tell: lws.Warning("FailedCreate", "Create", note, new(identity.RefOf(identity.KindPod, g.Leader)))})
	return p, false
}
