package lws

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

const (
	// helpAfter is how long the garbage collector has, once the owner of an object is gone, before the operator deletes it.
	helpAfter = 3 * time.Second
	// goOnAfter is how long no object may have come or gone before groups whose names are free are created.
	goOnAfter = 3 * time.Second
	// reportAfter is how long an object that is not older than the set may take before it is reported.
	reportAfter = 10 * time.Second
	// stuckAfter is how long no object may have come or gone before they count as stuck.
	stuckAfter = time.Minute
	// slowLook is how soon a node is read again that lacks the label of a topology.
	slowLook = 30 * time.Second
	// namedAtMost bounds how many objects a message names one by one.
	namedAtMost = 8
	// inUseFinalizer is the finalizer of PVCs that pods use.
	inUseFinalizer = "kubernetes.io/pvc-protection"
	// stuckPhrase is in every message about objects that count as stuck.
	stuckPhrase = "none has left for a minute"
)

// bearer is an object under a name that is needed.
type bearer struct {
	identity.Ref
	object metav1.Object
}

func bearersOf[T metav1.Object](kind identity.Kind, objects []T) []bearer {
	all := make([]bearer, 0, len(objects))
	for _, object := range objects {
		all = append(all, bearer{Ref: identity.RefOf(kind, object), object: object})
	}
	return all
}

// below returns the objects whose ordinals are in the range.
func below(all []bearer, first int, end int32) []bearer {
	return slices.DeleteFunc(all, func(p bearer) bool {
		_, ordinal := identity.ParentAndOrdinal(p.Name)
		return ordinal < first || int32(ordinal) >= end
	})
}

// previousWait is what is reported about the objects that a set waits for.
type previousWait struct {
	message string
	until   time.Time
	stuck   bool
	// quiet is the wait for objects that no condition reports yet, or nil.
	quiet *Wait
}

func (w previousWait) any() bool { return w.message != "" }

// namesWait says what holds back the whole set: objects of a previous incarnation under names that it needs first.
type namesWait struct {
	// whole are those under its own name, and leaders those under names of its leaders.
	whole, leaders []bearer
	// holds is set while nothing new may be created under the set's names.
	holds bool
	until time.Time
}

// awaitNames returns what holds back the set: the leader StatefulSet, and leaders, because the StatefulSet controller
// cannot skip an ordinal. Once none has moved for a while, leaders do if they have all names.
func (d *setDecision) awaitNames() namesWait {
	w := namesWait{
		whole:   append(bearersOf(identity.KindStatefulSet, d.StatefulSet.Previous), bearersOf(identity.KindDeployment, d.Deployment.Previous)...),
		leaders: append(d.previousLeaders(), d.previousPVCs()...),
	}
	w.holds = len(w.whole) > 0
	if len(w.leaders) == 0 || d.StatefulSet.Own() != nil {
		return w
	}
	goOn := d.Vigil.Moved.Add(goOnAfter)
	if d.Now.Before(goOn) {
		w.until = goOn
	}
	w.holds = w.holds || d.Now.Before(goOn) || len(ordinalsOf(w.leaders)) >= int(workload.Replicas(d.Set))
	return w
}

// awaitPrevious returns what is said about objects of a previous incarnation. Beside those that hold back the set, each holds
// back its own group.
func (d *setDecision) awaitPrevious() previousWait {
	blocking := slices.Concat(d.wait.whole, d.wait.leaders, d.previousServices())
	for _, r := range d.all() {
		if r.isStopped || !r.isWanted && r.Leader == nil { // its pods stay, and a condition says so, or no other group needs its names
			continue
		}
		blocking = append(blocking, bearersOf(identity.KindPodGroup, r.Gang.Previous)...)
		blocking = append(blocking, r.previous(workload.Size(d.Set))...)
	}
	waiting := d.report(slices.Clone(blocking))
	if len(blocking) > 0 {
		waiting.until = cmp.Or(d.wait.until, d.Now.Add(conflictLook))
	}
	if len(blocking) > 0 && !waiting.any() {
		waiting.quiet = new(goneWait(d.Set, "", blocking, time.Time{}))
	}
	return waiting
}

// previous waits for objects of a previous incarnation, and deletes those that the garbage
// collector has not deleted in time.
func (d *setDecision) previous() (p Plan) {
	p.helpAlong(d.Now, d.Vigil, d.Lives, slices.Concat(
		bearersOf(identity.KindStatefulSet, d.StatefulSet.Previous),
		bearersOf(identity.KindPod, d.Leaders.Previous),
		bearersOf(identity.KindService, d.Service.Previous),
		bearersOf(identity.KindControllerRevision, d.Revisions.Previous),
	))
	if d.waiting.any() {
		p.await(d.waiting.until, CodePreviousIncarnation, d.waiting.message)
	} else if w := d.waiting.quiet; w != nil {
		w.Until = d.waiting.until
		p.wait(*w)
	}
	return p
}

// previousLeaders returns the objects under names of leaders that the set needs, but for the
// leaders that its own StatefulSet replaces.
func (d *setDecision) previousLeaders() []bearer {
	return d.maker.needed(bearersOf(identity.KindPod, notOf(d.leaderStatefulSet(), d.Leaders.Previous)))
}

// previousPVCs returns the terminating PVCs of leaders that the set needs: no pod starts with one.
func (d *setDecision) previousPVCs() []bearer {
	return below(bearersOf(identity.KindPersistentVolumeClaim, d.LeaderVolumes.Previous), 0, workload.Replicas(d.Set))
}

// previousServices returns the objects under names of Services that the set needs. They hold
// back those Services alone, but pods have no DNS names meanwhile.
func (d *setDecision) previousServices() []bearer {
	if workload.Subdomain(d.Set) == lwsv1.SubdomainShared {
		return bearersOf(identity.KindService, d.Service.Previous)
	}
	var found []bearer
	for i := range d.rows {
		found = append(found, bearersOf(identity.KindService, d.rows[i].Service.Previous)...)
	}
	return found
}

// previous returns what holds back this group's workers. Once their StatefulSet exists, it deals
// with its own pods. PVCs of a StatefulSet to adopt end with its pods.
func (g *Group) previous(size int32) []bearer {
	if g.Workers.Own() != nil {
		return nil
	}
	found := bearersOf(identity.KindStatefulSet, g.Workers.Previous)
	if g.Workers.Orphan() == nil {
		found = append(found, below(bearersOf(identity.KindPersistentVolumeClaim, g.Volumes.Previous), 1, size)...)
	}
	return append(found, below(bearersOf(identity.KindPod, g.Pods.Previous), 1, size)...)
}

func ordinalsOf(all []bearer) map[int]bool {
	ordinals := map[int]bool{}
	for _, p := range all {
		_, ordinal := identity.ParentAndOrdinal(p.Name)
		ordinals[ordinal] = true
	}
	return ordinals
}

// helpAlong deletes garbage that the collector has not deleted in time. The owner is read live before the delete.
// Objects without the label of a set are left to the collector: a policy refuses the operator their deletion.
func (p *Plan) helpAlong(now time.Time, vigil Vigil, lives identity.Lives, all []bearer) {
	for _, g := range all {
		if !identity.IsGarbage(g.object, lives) || g.object.GetLabels()[lwsv1.SetNameLabelKey] == "" {
			continue
		}
		owner := identity.OwnerRef(g.Namespace, g.object.GetOwnerReferences()[0])
		due := cmp.Or(vigil.Gone[owner.UID], now).Add(helpAfter)
		if now.Before(due) {
			p.wait(Wait{Reason: because(CodeGarbage, g.String()+" has no owner and is left to the garbage collector"), Until: due})
			continue
		}
		p.do(action.Delete{
			Object:    g.Ref,
			OwnerGone: &owner,
			Because:   because(CodeGarbage, g.String()+" belongs to "+owner.String()+", which is gone"),
		})
	}
}

// report names the objects that are older than the set, or have been there for a while. The
// message depends on the objects alone, not on the time: the next reconcile writes nothing.
func (d *setDecision) report(blocking []bearer) previousWait {
	told := slices.DeleteFunc(blocking, func(p bearer) bool {
		return d.Now.Before(cmp.Or(d.Vigil.Seen[p.UID], d.Now).Add(reportAfter)) && !p.isOlder(d.Set)
	})
	if len(told) == 0 {
		return previousWait{}
	}
	w := previousWait{message: "waiting for " + named(d.Set, sorted(told)), stuck: !d.Now.Before(d.Vigil.Moved.Add(stuckAfter))}
	if w.stuck {
		w.message += "; " + stuckPhrase + ": " + listed(spelt(told, remedy), "; ")
	}
	return w
}

// isOlder reports whether an object was created before a set, or in the same second.
func (p bearer) isOlder(set *lwsv1.LeaderWorkerSet) bool {
	return !p.object.GetCreationTimestamp().After(set.CreationTimestamp.Time)
}

// sorted sorts objects by kind and ordinal: a cache lists them in any order, and a message must not change with it.
func sorted(all []bearer) []bearer {
	slices.SortFunc(all, func(a, b bearer) int {
		return cmp.Or(-cmp.Compare(a.Kind, b.Kind), len(a.Name)-len(b.Name), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// goneWait waits until objects are gone.
func goneWait(set *lwsv1.LeaderWorkerSet, begins string, all []bearer, until time.Time) Wait {
	return Wait{Reason: because(CodePreviousIncarnation, begins+named(set, sorted(all))), Until: until, Ordinary: !anyOlder(all, set)}
}

// anyOlder reports whether any of the objects is of a previous incarnation of a set. Objects that the set itself had end in each
// step of a rollout.
func anyOlder(all []bearer, set *lwsv1.LeaderWorkerSet) bool {
	return slices.ContainsFunc(all, func(p bearer) bool { return p.isOlder(set) })
}

// named counts objects that must be gone, and names the first of them.
func named(set *lwsv1.LeaderWorkerSet, all []bearer) string {
	noun := "object"
	if len(all) > 1 {
		noun += "s"
	}
	if anyOlder(all, set) {
		noun += " of the previous incarnation"
	} else {
		noun = "terminating " + noun
	}
	return fmt.Sprintf("%d %s: %s", len(all), noun, listed(spelt(all, bearer.String), ", "))
}

func spelt(all []bearer, says func(bearer) string) []string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = says(p)
	}
	return texts
}

// listed joins the first texts and counts the others.
func listed(texts []string, separator string) string {
	joined := strings.Join(texts[:min(len(texts), namedAtMost)], separator)
	if more := len(texts) - namedAtMost; more > 0 {
		joined += fmt.Sprintf(" and %d more", more)
	}
	return joined
}

// remedy says what holds an object, and what would release it.
func remedy(p bearer) string {
	finalizers := p.object.GetFinalizers()
	pod, isPod := p.object.(*corev1.Pod)
	switch {
	case p.Kind == identity.KindPersistentVolumeClaim && slices.Equal(finalizers, []string{inUseFinalizer}):
		return fmt.Sprintf("%s goes when no pod uses it", p)
	case len(finalizers) > 0:
		return fmt.Sprintf("%s is held by finalizer %s and goes when that is removed", p, clipped(strings.Join(finalizers, ", ")))
	case isPod && pod.DeletionTimestamp != nil && pod.Spec.NodeName != "":
		// Not a forced deletion: a machine that is cut off, but runs, would go on to write on
		// its volumes beside the next pod.
		return fmt.Sprintf("%s goes when node %s confirms that it ended; if that machine is off for certain: kubectl taint node %s %s=nodeshutdown:NoExecute",
			p, pod.Spec.NodeName, pod.Spec.NodeName, corev1.TaintNodeOutOfService)
	case p.object.GetDeletionTimestamp() == nil:
		return fmt.Sprintf("%s goes when the garbage collector deletes it", p)
	}
	return fmt.Sprintf("%s goes when its own dependents are gone", p)
}

// Remedy says what holds a terminating pod, and what would release it.
func Remedy(pod *corev1.Pod) string {
	return remedy(bearer{Ref: identity.RefOf(identity.KindPod, pod), object: pod})
}

// ToldStuck reports whether the set's status says that nothing has left for a minute.
func ToldStuck(set *lwsv1.LeaderWorkerSet) bool {
	told, ok := condition.Of(set.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	return ok && told.Status == metav1.ConditionTrue && told.Reason == CodePreviousIncarnation &&
		strings.Contains(told.Message, stuckPhrase)
}
