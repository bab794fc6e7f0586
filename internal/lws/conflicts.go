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
	"lockstep.dev/lockstep/internal/lws/workload"
)

// conflictLook is how often a squatter is looked for again. What is not ours by
// labels is not watched, so no event tells of its departure.
const conflictLook = 10 * time.Second

// conflicts names what squats on names the set needs. Squatters are never
// touched. One under the leader StatefulSet's name holds everything back, for
// without leaders there is nothing to make; any other costs its own part only.
func (d *setDecision) conflicts() string {
	var found []string
	for _, sts := range d.StatefulSet.Squatters {
		found = append(found, taken(identity.KindStatefulSet, sts, "the set cannot start"))
	}
	for _, pod := range byOrdinal(d.Leaders.Squatters) {
		if _, ordinal := identity.ParentAndOrdinal(pod.Name); int32(ordinal) < workload.Replicas(d.Set) {
			cost := fmt.Sprintf("group %d cannot start", ordinal)
			found = append(found, taken(identity.KindPod, pod, cost))
		}
	}
	if d.wantsShared() {
		for _, service := range d.Service.Squatters {
			found = append(found, taken(identity.KindService, service, "pods of the set have no DNS names"))
		}
	}
	for _, g := range d.Groups {
		found = append(found, g.conflicts(d.Set)...)
	}
	if len(found) == 0 {
		return ""
	}
	return toldOf(found)
}

// nameConflicts waits for the names that foreign objects have.
func (d *setDecision) nameConflicts() (p Plan) {
	if d.conflict != "" {
		p.wait(Wait{Reason: because(CodeNameConflict, d.conflict), Until: d.Now.Add(conflictLook)})
	}
	return p
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

// toldOf is one message about all conflicts, and what to do about them.
func toldOf(found []string) string {
	texts := slices.Clone(found[:min(len(found), namedAtMost)])
	if more := len(found) - namedAtMost; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(append(texts, "remove what is in the way, or give this set another name"), "; ")
}

func (g Group) conflicts(set *lwsv1.LeaderWorkerSet) []string {
	var found []string
	for _, sts := range g.Workers.Squatters {
		if workload.SizeOf(g.Leader, set) > 1 {
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
		if _, ordinal := identity.ParentAndOrdinal(pod.Name); ordinal >= 1 && int32(ordinal) < workload.SizeOf(g.Leader, set) {
			cost := fmt.Sprintf("group %d lacks worker %d", g.Index, ordinal)
			found = append(found, taken(identity.KindPod, pod, cost))
		}
	}
	if g.HasOwnSubdomain(set) {
		for _, service := range g.Service.Squatters {
			found = append(found, taken(identity.KindService, service, fmt.Sprintf("pods of group %d have no DNS names", g.Index)))
		}
	}
	return append(found, g.gangConflicts()...)
}

// taken names an object that has a name of ours, its controller, and what that costs.
func taken(kind identity.Kind, object metav1.Object, cost string) string {
	holder := "has no controller"
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		holder = fmt.Sprintf("belongs to %s %s", strings.ToLower(owner.Kind), owner.Name)
	}
	return fmt.Sprintf("%s %s %s: %s", strings.ToLower(string(kind)), object.GetName(), holder, cost)
}
