package lws

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// conflictLook is how soon foreign objects are read again: objects without our labels are not watched.
const conflictLook = 10 * time.Second

// conflicts names the foreign objects under names that the set needs. They are never written. One
// under the name of the leader StatefulSet holds back everything, any other its own part.
func (d *setDecision) conflicts() string {
	found := bearersOf(identity.KindStatefulSet, d.StatefulSet.Foreign)
	found = append(found, bearersOf(identity.KindDeployment, d.Deployment.Foreign)...)
	found = append(found, bearersOf(identity.KindPod, d.Misspelt)...)
	found = append(found, d.maker.needed(bearersOf(identity.KindPod, d.Leaders.Foreign))...)
	if d.wantsShared() {
		found = append(found, bearersOf(identity.KindService, d.Service.Foreign)...)
	}
	found = append(found, bearersOf(identity.KindWorkload, d.Workload.Foreign)...)
	found = append(found, bearersOf(identity.KindPodGroup, d.PodGroup.Foreign)...)
	for _, r := range d.rows {
		found = append(found, r.conflicts(d.Set)...)
	}
	for _, r := range d.vacant {
		found = append(found, r.leftBehind()...)
	}
	return conflictMessage(found)
}

// leftBehind returns the workers that a leader with a key left behind when it was deleted with --cascade=orphan. No
// leader adopts them, because the next one has another key, and they hold the room of a group.
func (g *Group) leftBehind() []bearer {
	if !g.HasKey {
		return nil
	}
	return bearersOf(identity.KindPod, slices.Concat(g.Pods.Foreign, g.Pods.Orphans))
}

// conflicts returns the foreign objects under names of the group's workers, Service and PodGroup.
func (g Group) conflicts(set *lwsv1.LeaderWorkerSet) []bearer {
	found := bearersOf(identity.KindPodGroup, g.Gang.Foreign)
	found = append(found, bearersOf(identity.KindPodGroup, g.PodGroups.Foreign)...)
	found = append(found, bearersOf(identity.KindPod, g.Misspelt)...)
	size := workload.SizeOf(g.Leader, set)
	if size > 1 {
		found = append(found, bearersOf(identity.KindStatefulSet, g.Workers.Foreign)...)
	}
	if len(g.Workers.Foreign) == 0 { // else they are those of the StatefulSet
		found = append(found, slices.DeleteFunc(below(bearersOf(identity.KindPod, g.Pods.Foreign), 1, size), func(p bearer) bool {
			return g.Workers.Orphan() != nil && metav1.IsControlledBy(p.object, g.Workers.Orphan()) // is adopted
		})...)
	}
	if g.HasOwnSubdomain(set) {
		found = append(found, bearersOf(identity.KindService, g.Service.Foreign)...)
	}
	return found
}

// conflictMessage is one message about all conflicts, with the next step, or empty.
func conflictMessage(found []bearer) string {
	if len(found) == 0 {
		return ""
	}
	return "names are taken: " + listed(spelt(sorted(found), taken), "; ") + "; remove what is in the way, or give this set another name"
}

// taken names an object that has a name of ours, and its controller.
func taken(p bearer) string {
	if parent, ordinal := identity.ParentAndOrdinal(p.Name); p.Kind == identity.KindPod && IsMisspelt(p.Name) {
		return fmt.Sprintf("%s counts as %s", p, identity.LeaderName(parent, ordinal))
	}
	if owner := metav1.GetControllerOfNoCopy(p.object); owner != nil {
		return fmt.Sprintf("%s belongs to %s %s", p, strings.ToLower(owner.Kind), owner.Name)
	}
	return p.String() + " has no controller"
}

// IsMisspelt reports whether a pod has a name that a StatefulSet reads as one of its own and never gives: w-01.
func IsMisspelt(name string) bool {
	parent, ordinal := identity.ParentAndOrdinal(name)
	return ordinal != identity.NoOrdinal && name != identity.LeaderName(parent, ordinal)
}
