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

// conflictLook is how soon foreign objects are read again: objects without our labels are not
// watched.
const conflictLook = 10 * time.Second

// conflicts names the foreign objects under names that the set needs. They are never written. One
// under the name of the leader StatefulSet holds back everything, any other its own part.
func (d *setDecision) conflicts() string {
	var found []string
	for _, sts := range d.StatefulSet.Foreign {
		found = append(found, taken(identity.KindStatefulSet, sts, "the set cannot start"))
	}
	for _, pod := range byOrdinal(d.Leaders.Foreign) {
		if _, index := identity.ParentAndOrdinal(pod.Name); needed(pod, 0, workload.Replicas(d.Set)) {
			found = append(found, taken(identity.KindPod, pod, fmt.Sprintf("group %d cannot start", index)))
		}
	}
	if d.wantsShared() {
		for _, service := range d.Service.Foreign {
			found = append(found, taken(identity.KindService, service, "pods of the set have no DNS names"))
		}
	}
	for _, g := range d.Groups {
		found = append(found, g.conflicts(d.Set)...)
	}
	return conflictMessage(found)
}

func (g Group) conflicts(set *lwsv1.LeaderWorkerSet) []string {
	size := workload.SizeOf(g.Leader, set)
	var found []string
	for _, sts := range g.Workers.Foreign {
		if size > 1 {
			found = append(found, taken(identity.KindStatefulSet, sts, fmt.Sprintf("group %d has no workers", g.Index)))
		}
	}
	for _, pod := range byOrdinal(g.Pods.Foreign) {
		adopted := g.Workers.Orphan() != nil && metav1.IsControlledBy(pod, g.Workers.Orphan())
		if needed(pod, 1, size) && !adopted && len(g.Workers.Foreign) == 0 { // else they are those of the StatefulSet
			found = append(found, taken(identity.KindPod, pod, fmt.Sprintf("group %d lacks a worker", g.Index)))
		}
	}
	if g.HasOwnSubdomain(set) {
		for _, service := range g.Service.Foreign {
			found = append(found, taken(identity.KindService, service, fmt.Sprintf("pods of group %d have no DNS names", g.Index)))
		}
	}
	for _, object := range g.Gang.Foreign {
		found = append(found, taken(identity.KindPodGroup, object, fmt.Sprintf("group %d is not scheduled as a gang", g.Index)))
	}
	return found
}

// byOrdinal returns pods by rising ordinal: a cache lists them in any order, and a message must
// not change with it.
func byOrdinal(pods []*corev1.Pod) []*corev1.Pod {
	return slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int {
		_, i := identity.ParentAndOrdinal(a.Name)
		_, j := identity.ParentAndOrdinal(b.Name)
		return cmp.Compare(i, j)
	})
}

// needed reports whether the ordinal of a pod is in the range.
func needed(pod *corev1.Pod, first int, end int32) bool {
	_, ordinal := identity.ParentAndOrdinal(pod.Name)
	return ordinal >= first && int32(ordinal) < end
}

// conflictMessage is one message about all conflicts, with the next step, or empty.
func conflictMessage(found []string) string {
	if len(found) == 0 {
		return ""
	}
	return listed(found, "; ") + "; remove what is in the way, or give this set another name"
}

// taken names an object that has a name of ours, its controller, and what that costs.
func taken(kind identity.Kind, object metav1.Object, cost string) string {
	holder := "has no controller"
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		holder = fmt.Sprintf("belongs to %s %s", strings.ToLower(owner.Kind), owner.Name)
	}
	return fmt.Sprintf("%s %s %s: %s", strings.ToLower(string(kind)), object.GetName(), holder, cost)
}
