package report

import (
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// notesApart is how many notes are kept apart that differ in nothing else: those after
// them, as of a server that names each request, are told as the last of them once more.
const notesApart = 64

// notes keeps apart what the recorder would take for one event: it compares all but
// the note, and of a set whose status waits to be written the second step of a
// rollout would be told as the first one once more.
type notes struct {
	mu sync.Mutex
	// sets holds what was told of the present version of each, by UID.
	sets *lru.Cache
}

// ofVersion is what was told of one version of a set.
type ofVersion struct {
	version string
	told    map[compared][]string
}

// compared is what the recorder compares of an event about one version of a set.
type compared struct {
	warning        bool
	reason, action string
	related        types.UID
}

// regarding is the set that an event is about, with a field path where other notes were
// told before it. The same note has the same path again.
func (n *notes) regarding(owner runtime.Object, e action.Event) runtime.Object {
	set, ok := owner.(*lwsv1.LeaderWorkerSet)
	if !ok || e.Related != nil && e.Related.Kind == identity.KindPod {
		return owner // what is told of a pod is told of no other
	}
	nth := n.nth(set, e)
	if nth == 0 {
		return owner
	}
	return &corev1.ObjectReference{
		APIVersion: lwsv1.GroupVersion.String(), Kind: string(identity.KindLeaderWorkerSet),
		Namespace: set.Namespace, Name: set.Name, UID: set.UID, ResourceVersion: set.ResourceVersion,
		FieldPath: fmt.Sprintf("events[%d]", nth),
	}
}

// nth is how many other notes were told before this one.
func (n *notes) nth(set *lwsv1.LeaderWorkerSet, e action.Event) int {
	key := compared{warning: e.Warning, reason: e.Reason, action: e.Action}
	if e.Related != nil {
		key.related = e.Related.UID
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now, _ := n.sets.Get(set.UID)
	of, ok := now.(*ofVersion)
	if !ok || of.version != set.ResourceVersion {
		of = &ofVersion{version: set.ResourceVersion, told: map[compared][]string{}}
		n.sets.Add(set.UID, of)
	}
	if nth := slices.Index(of.told[key], e.Note); nth >= 0 {
		return nth
	}
	if len(of.told[key]) < notesApart {
		of.told[key] = append(of.told[key], e.Note)
	}
	return len(of.told[key]) - 1
}
