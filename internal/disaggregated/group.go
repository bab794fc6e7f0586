package disaggregated

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// PartnerRequest begins the value of the annotation that recreates a partner: the UID of the failed leader follows.
const PartnerRequest = "partner of "

// Group is a group of a child, by its pods.
type Group struct {
	// Key is the index of the group, or its key where groups have keys.
	Key string
	// IsReady is set if all pods of the group exist, are ready and stay: they end once they are asked for with a partner.
	IsReady bool
	// Ends is set if its leader is gone or terminating.
	Ends bool
	// Leader is nil once it is gone.
	Leader *corev1.Pod
	// Number is the index that the status of the child has for the group.
	Number int32
	// GetsTraffic is set if its leader has the label of traffic.
	GetsTraffic bool
}

// groupsOf returns the groups of pods of one child that hold nodes. A pod that ended holds none.
func groupsOf(pods []*corev1.Pod) (groups []Group) {
	byKey := map[string][]*corev1.Pod{}
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			key := pod.Labels[lwsv1.GroupIndexLabelKey]
			byKey[key] = append(byKey[key], pod)
		}
	}
	for key, members := range byKey {
		groups = append(groups, groupOf(key, members))
	}
	slices.SortFunc(groups, func(a, b Group) int { return cmp.Or(cmp.Compare(a.index(), b.index()), cmp.Compare(a.Key, b.Key)) })
	return groups
}

func groupOf(key string, members []*corev1.Pod) Group {
	g := Group{Key: key, Ends: true, Number: int32(identity.HashIndex(key))}
	if index := g.index(); index != noIndex {
		g.Number = int32(index)
	}
	ready := 0
	for _, pod := range members {
		if pod.Labels[lwsv1.WorkerIndexLabelKey] == "0" {
			g.Leader = pod
			g.Ends = pod.DeletionTimestamp != nil
			g.GetsTraffic = pod.Labels[dsv1.ReadyForTrafficLabelKey] == "true"
		}
		if pod.DeletionTimestamp == nil && IsReady(pod) {
			ready++
		}
	}
	if g.Leader != nil {
		size, err := strconv.Atoi(g.Leader.Annotations[lwsv1.SizeAnnotationKey])
		isAsked := strings.HasPrefix(g.Leader.Annotations[lwsv1.RecreateAnnotationKey], PartnerRequest)
		g.IsReady = !g.Ends && !isAsked && err == nil && ready >= size
	}
	return g
}

// IsReady reports whether a pod is ready.
func IsReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// noIndex is the index of a group that has a key.
const noIndex = -1

func (g Group) index() int {
	index, err := strconv.Atoi(g.Key)
	if err != nil {
		return noIndex
	}
	return index
}

// wanted parts the groups of a child that wants n. It returns whether each wanted one is ready, the one that is removed
// first as the last, and how many others hold nodes. A controller of groups with keys may remove a ready one first.
func wanted(groups []Group, n int32) (ready []bool, leaving int32) {
	ready = make([]bool, n)
	var stay, stayReady int32 // of groups with keys
	for _, g := range groups {
		switch index := g.index(); {
		case index == noIndex && g.Ends, index != noIndex && index >= int(n):
			leaving++
		case index != noIndex:
			ready[index] = g.IsReady
		default:
			stay++
			if g.IsReady {
				stayReady++
			}
		}
	}
	for i := range min(stayReady, n) {
		ready[n-1-i] = true
	}
	return ready, leaving + max(0, stay-n)
}
