package pvccache

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"lockstep.dev/lockstep/internal/identity"
)

const (
	// keptLineages bounds the StatefulSets of which it is remembered whose they were.
	keptLineages = 4096
	// mostSets bounds the sets that one of them belonged to: those that it came to last,
	// for the one that it belongs to must be among them.
	mostSets = 8
)

// lineage remembers which sets a leader StatefulSet belongs to and belonged to: the claims
// that were given to it are theirs, and of a set that was made since they are left over.
// No clock tells that: a set that was deleted alone, and made again, is younger than all
// that it takes over.
type lineage struct {
	mu   sync.Mutex
	sets *lru.Cache // []types.UID by the UID of the StatefulSet
}

func newLineage() *lineage { return &lineage{sets: lru.New(keptLineages)} }

// noting is the same reduction of what comes, of which notice is taken. That is before
// memory shows it: events are told later than that, and who looks meanwhile is not to
// find of a StatefulSet that is gone only whose it was once.
func (l *lineage) noting(reduce func(any) (any, error)) func(any) (any, error) {
	return func(object any) (any, error) {
		reduced, err := reduce(object)
		if is, ok := reduced.(*workload); ok {
			l.saw(is)
		}
		return reduced, err
	}
}

// note takes notice of what a workload was before it changed. One that is gone is nil.
// It was noticed as it came, and may have been forgotten for others since.
func (l *lineage) note(was, is *workload) {
	if was != nil && (is == nil || is.UID != was.UID || is.owner.UID != was.owner.UID) {
		l.saw(was)
	}
}

// saw takes notice of whose a workload is.
func (l *lineage) saw(was *workload) {
	if was.want.Workload.Kind != identity.KindStatefulSet || was.owner.Kind != identity.KindLeaderWorkerSet {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.known(was.UID)
	if !slices.Contains(known, was.owner.UID) {
		known = append(slices.Clone(known[max(0, len(known)-mostSets+1):]), was.owner.UID)
	}
	l.sets.Add(was.UID, known)
}

// of are the sets that a StatefulSet belonged to, as far as that was seen.
func (l *lineage) of(statefulSet types.UID) []types.UID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known(statefulSet)
}

func (l *lineage) known(statefulSet types.UID) []types.UID {
	known, ok := l.sets.Get(statefulSet)
	if !ok {
		return nil
	}
	return known.([]types.UID)
}
