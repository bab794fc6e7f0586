package lws

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

const (
	// helpAfter is how long the garbage collector may take over a ghost before
	// it is helped.
	helpAfter = 3 * time.Second
	// goOnAfter is how long no ghost may have moved before groups whose names
	// are free go on without the others.
	goOnAfter = 3 * time.Second
	// reportAfter is how long a ghost of this very set's life, such as a worker
	// of a leader just replaced, may take before it is worth telling.
	reportAfter = 10 * time.Second
	// stuckAfter is how long no ghost may have moved before they count as stuck.
	stuckAfter = time.Minute
	// slowLook is how often the tale of a stuck ghost is brought up to date.
	slowLook = 30 * time.Second
)

// ghost is an object of a previous incarnation under a name that is needed.
type ghost struct {
	identity.Ref
	object metav1.Object
}

func ghostsOf[T metav1.Object](kind identity.Kind, objects []T) []ghost {
	ghosts := make([]ghost, 0, len(objects))
	for _, object := range objects {
		ghosts = append(ghosts, ghost{Ref: identity.RefOf(kind, object), object: object})
	}
	return ghosts
}

// ghosts holds back what needs a name that a ghost still bears: the old leader
// StatefulSet and old leaders hold back the set, because the StatefulSet
// controller cannot skip an ordinal; anything else holds back its own group only.
func (d *setDecision) ghosts() haunting {
	whole, leaders, volumes := ghostsOf(identity.KindStatefulSet, d.StatefulSet.Ghosts), d.leaderGhosts(), d.volumeGhosts()
	blocking := slices.Concat(whole, leaders, volumes, d.serviceGhosts(), d.gangGhosts())
	for _, groups := range [][]Group{d.Groups, d.Vacant} { // as many as a set has: not copied
		for i := range groups {
			blocking = append(blocking, groups[i].ghosts(workload.Size(d.Set))...)
		}
	}
	waiting := d.haunt(blocking)
	for _, leaving := range [][]ghost{leaders, volumes} {
		if d.leadersHold(leaving) {
			waiting.holds = true
			if goOn := d.goOn(leaving); d.Now.Before(goOn) {
				waiting.until = earlier(waiting.until, goOn)
			}
		}
	}
	waiting.holds = waiting.holds || len(whole) > 0
	return waiting
}

// previous waits for objects of a previous incarnation, and deletes those that the garbage
// collector has not taken in time.
func (d *setDecision) previous() (p Plan) {
	p.helpAlong(d.Now, d.Vigil, d.Lives, slices.Concat(
		ghostsOf(identity.KindStatefulSet, d.StatefulSet.Ghosts),
		ghostsOf(identity.KindPod, d.Leaders.Ghosts),
		ghostsOf(identity.KindService, d.Service.Ghosts),
		ghostsOf(identity.KindControllerRevision, d.Revisions.Ghosts),
	))
	if message := d.waiting.message; message != "" || !d.waiting.until.IsZero() {
		p.wait(Wait{Reason: because(CodePreviousIncarnation, cmp.Or(message, "objects of the previous incarnation are being deleted")), Until: d.waiting.until})
	}
	return p
}

// leaderGhosts returns the ghosts under names of leaders that the set needs. A
// leader that its own StatefulSet is replacing is that StatefulSet's business.
func (d *setDecision) leaderGhosts() []ghost {
	own := d.statefulSetUID()
	var found []ghost
	for _, pod := range d.Leaders.Ghosts {
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner != nil && own != "" && owner.UID == own {
			continue
		}
		if _, ordinal := identity.ParentAndOrdinal(pod.Name); int32(ordinal) >= workload.Replicas(d.Set) {
			continue
		}
		found = append(found, ghost{Ref: identity.RefOf(identity.KindPod, pod), object: pod})
	}
	return found
}

// volumeGhosts returns the ghosts under names of claims of leaders that the set
// needs: a pod cannot have a claim that is on its way out.
func (d *setDecision) volumeGhosts() []ghost {
	var found []ghost
	for _, g := range ghostsOf(identity.KindPersistentVolumeClaim, d.LeaderVolumes.Ghosts) {
		if volumeOrdinal(g.Name, d.Set, d.Set.Name) < int(workload.Replicas(d.Set)) {
			found = append(found, g)
		}
	}
	return found
}

// volumeGhosts is the same of the claims of a group's workers.
func (g Group) volumeGhosts(size int32) []ghost {
	var found []ghost
	for _, ghost := range ghostsOf(identity.KindPersistentVolumeClaim, g.Volumes.Ghosts) {
		if _, ordinal := identity.ParentAndOrdinal(ghost.Name); ordinal >= 1 && int32(ordinal) < size {
			found = append(found, ghost)
		}
	}
	return found
}

// serviceGhosts returns the ghosts under names of Services that the set needs.
// They hold back those Services alone, but then pods have no DNS names.
func (d *setDecision) serviceGhosts() []ghost {
	if workload.Subdomain(d.Set) == lwsv1.SubdomainShared {
		return ghostsOf(identity.KindService, d.Service.Ghosts)
	}
	var found []ghost
	for i := range d.Groups {
		found = append(found, ghostsOf(identity.KindService, d.Groups[i].Service.Ghosts)...)
	}
	return found
}

// leadersHold tells whether old leaders hold back the leader StatefulSet. They
// do while they leave; once they linger, groups whose names are free go on.
func (d *setDecision) leadersHold(leaders []ghost) bool {
	if len(leaders) == 0 || d.StatefulSet.Member() != nil {
		return false
	}
	if len(ordinalsOf(leaders)) >= int(workload.Replicas(d.Set)) {
		return true
	}
	return d.Now.Before(d.goOn(leaders))
}

// goOn is when groups whose names are free go on without old leaders that linger.
func (d *setDecision) goOn(leaders []ghost) time.Time {
	return d.Vigil.lastMove(leaders).Add(goOnAfter)
}

// ordinalsOf are the ordinals of leaders that ghosts are named after.
func ordinalsOf(ghosts []ghost) map[int]bool {
	ordinals := map[int]bool{}
	for _, g := range ghosts {
		_, ordinal := identity.ParentAndOrdinal(g.Name)
		ordinals[ordinal] = true
	}
	return ordinals
}

// ghosts returns what holds back this group's workers: nothing, once their
// StatefulSet stands, for that one then deals with its own pods.
func (g *Group) ghosts(size int32) []ghost {
	if g.Workers.Member() != nil {
		return nil
	}
	found := ghostsOf(identity.KindStatefulSet, g.Workers.Ghosts)
	if g.Workers.Orphan() == nil { // claims go with the pods of one that was left behind, and those with it
		found = append(found, g.volumeGhosts(size)...)
	}
	for _, pod := range g.Pods.Ghosts {
		if _, ordinal := identity.ParentAndOrdinal(pod.Name); ordinal >= 1 && int32(ordinal) < size {
			found = append(found, ghost{Ref: identity.RefOf(identity.KindPod, pod), object: pod})
		}
	}
	return found
}

// helpAlong deletes garbage that the collector has not taken in time. An owner
// is looked for again at the moment of the deletion: a wrong guess must not
// cost a living object.
func (p *Plan) helpAlong(now time.Time, vigil Vigil, lives identity.Lives, ghosts []ghost) {
	for _, g := range ghosts {
		if !identity.IsGarbage(g.object, lives) {
			continue
		}
		due := vigil.seen(g.Ref, now).Add(helpAfter)
		if now.Before(due) {
			p.wait(Wait{Reason: because(CodeGarbage, g.String()+" has no owner and is left to the garbage collector"), Until: due})
			continue
		}
		owner := identity.OwnerRef(g.Namespace, g.object.GetOwnerReferences()[0])
		p.do(action.Delete{
			Object:    g.Ref,
			OwnerGone: &owner,
			Because:   because(CodeGarbage, g.String()+" belongs to "+owner.String()+", which is gone"),
		})
	}
}

// seen is when the ghost was first seen, or now if it was not yet.
func (v Vigil) seen(ref identity.Ref, now time.Time) time.Time {
	if at, ok := v.Seen[ref.UID]; ok {
		return at
	}
	return now
}

// lastMove is when one of the ghosts was last seen to come, or any ghost of the
// set to leave.
func (v Vigil) lastMove(ghosts []ghost) time.Time {
	last := v.Moved
	for _, g := range ghosts {
		if at, ok := v.Seen[g.UID]; ok && at.After(last) {
			last = at
		}
	}
	return last
}

func sortGhosts(ghosts []ghost) {
	slices.SortFunc(ghosts, func(a, b ghost) int {
		return cmp.Or(-cmp.Compare(a.Kind, b.Kind), len(a.Name)-len(b.Name), cmp.Compare(a.Name, b.Name))
	})
}
