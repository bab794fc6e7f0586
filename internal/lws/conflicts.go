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
	"lockstep.dev/lockstep/internal/identity"
)

// conflictLook is how often a squatter is looked for again. What is not ours by
// labels is not watched, so no event tells of its departure.
const conflictLook = 10 * time.Second

// conflicts names what squats on names the set needs. Squatters are never
// touched. One under the leader StatefulSet's name holds everything back, for
// without leaders there is nothing to make; any other costs its own part only.
func (d *setDecision) conflicts() {
	d.held = d.held || len(d.StatefulSet.Squatters) > 0
	var found []conflict
	for _, sts := range d.StatefulSet.Squatters {
		found = append(found, taken(identity.KindStatefulSet, sts, "the set cannot start"))
	}
	for _, pod := range byOrdinal(d.Leaders.Squatters) {
		if _, ordinal := identity.ParentAndOrdinal(pod.Name); int32(ordinal) < Replicas(d.Set) {
			cost := fmt.Sprintf("group %d cannot start", ordinal)
			found = append(found, takenByPod(pod, d.Set, leaderSelector(d.Set.Name), cost))
		}
	}
	if d.wantsShared() {
		for _, service := range d.Service.Squatters {
			found = append(found, taken(identity.KindService, service, "pods of the set have no DNS names"))
		}
	}
	for _, g := range d.Groups {
		found = append(found, g.conflicts(d.Set)...)
		found = append(found, mislabelled(d.StatefulSet.Member(), g)...)
	}
	if len(found) == 0 {
		return
	}
	d.conflict = toldOf(found)
	d.plan.wait(Wait{Reason: because(CodeNameConflict, d.conflict), Until: d.Now.Add(conflictLook)})
}

// byOrdinal returns pods by rising ordinal: a cache lists them in any order, and
// what is told of them must not change with it.
func byOrdinal(pods []*corev1.Pod) []*corev1.Pod {
	return slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int {
		_, i := identity.ParentAndOrdinal(a.Name)
		_, j := identity.ParentAndOrdinal(b.Name)
		return cmp.Compare(i, j)
	})
}

// conflict is what squats on one name.
type conflict struct {
	text string
	// estranged is set for a pod that would be ours, had it the labels that it lost.
	estranged bool
}

// toldOf puts conflicts into words, and what to do about them.
func toldOf(found []conflict) string {
	texts := make([]string, 0, namedAtMost+2)
	for _, c := range found[:min(len(found), namedAtMost)] {
		texts = append(texts, c.text)
	}
	if more := len(found) - namedAtMost; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	if slices.ContainsFunc(found, func(c conflict) bool { return !c.estranged }) {
		texts = append(texts, "remove what is in the way, or give this set another name")
	}
	return strings.Join(texts, "; ")
}

func (g Group) conflicts(set *lwsv1.LeaderWorkerSet) []conflict {
	var found []conflict
	for _, sts := range g.Workers.Squatters {
		if SizeOf(g.Leader, set) > 1 {
			found = append(found, taken(identity.KindStatefulSet, sts, fmt.Sprintf("group %d has no workers", g.Index)))
		}
	}
	for _, pod := range byOrdinal(g.Pods.Squatters) {
		if len(g.Workers.Squatters) > 0 {
			break // that StatefulSet's own pods: told of already
		}
		if sts := g.Workers.Orphan(); sts != nil && metav1.IsControlledBy(pod, sts) {
			continue // it is adopted, and its pods with it
		}
		if _, ordinal := identity.ParentAndOrdinal(pod.Name); ordinal >= 1 && int32(ordinal) < SizeOf(g.Leader, set) {
			cost := fmt.Sprintf("group %d lacks worker %d", g.Index, ordinal)
			found = append(found, takenByPod(pod, g.Leader, g.workerSelector(set.Name), cost))
		}
	}
	if g.HasOwnSubdomain(set) {
		for _, service := range g.Service.Squatters {
			found = append(found, taken(identity.KindService, service, fmt.Sprintf("pods of group %d have no DNS names", g.Index)))
		}
	}
	return append(found, g.gangConflicts()...)
}

// takenByPod is taken for a pod under a name that a StatefulSet with the given
// selector gives, for an owner further up. Its controller lets go of a pod that loses a
// label, and takes it back with it: removed, the pod would be lost for nothing. One
// from before the owner is of a life that is over.
func takenByPod(pod *corev1.Pod, above metav1.Object, selector map[string]string, cost string) conflict {
	lost, born := lostLabels(pod, selector), above.GetCreationTimestamp()
	if metav1.GetControllerOfNoCopy(pod) != nil || !bearsOurs(pod) || len(lost) == 0 || pod.CreationTimestamp.Before(&born) {
		return taken(identity.KindPod, pod, cost)
	}
	return conflict{estranged: true, text: fmt.Sprintf(
		"pod %s lost labels that its statefulset finds it by: %s; put them back (kubectl label pod %s -n %s --overwrite %s), or delete the pod",
		pod.Name, cost, pod.Name, pod.Namespace, strings.Join(lost, " "))}
}

// lostLabels are those of a selector that an object does not bear, spelled out.
func lostLabels(object metav1.Object, selector map[string]string) []string {
	var lost []string
	for key, value := range selector {
		if object.GetLabels()[key] != value {
			lost = append(lost, key+"="+value)
		}
	}
	slices.Sort(lost)
	return lost
}

// bearsOurs tells whether an object bears any label that only we give.
func bearsOurs(object metav1.Object) bool {
	for _, key := range append(groupMarks, lwsv1.WorkerIndexLabelKey) {
		if object.GetLabels()[key] != "" {
			return true
		}
	}
	return false
}

// taken says who holds a name and what that costs.
func taken(kind identity.Kind, squatter metav1.Object, cost string) conflict {
	holder := "belongs to nobody this set knows"
	if owner := metav1.GetControllerOfNoCopy(squatter); owner != nil {
		holder = fmt.Sprintf("belongs to %s %s", strings.ToLower(owner.Kind), owner.Name)
	}
	return conflict{text: fmt.Sprintf("%s %s %s: %s", strings.ToLower(string(kind)), squatter.GetName(), holder, cost)}
}
