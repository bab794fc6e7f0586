package lwscache

import (
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/memory"
)

// stalledAfter is how long a StatefulSet may lack pods and create none.
const stalledAfter = 10 * time.Second

// Memory is what an Observer remembers between reads, with what any wing remembers. No decision needs it: a process that
// starts without it waits a little longer.
type Memory struct {
	*memory.Memory
	// seen holds when an object of another incarnation or owner was first read, and missed when an owner was first missed.
	seen, missed *lru.Cache
	// lacking holds the StatefulSets that lack pods, by UID.
	lacking *lru.Cache

	mu sync.Mutex
	// inTheWay holds what sets wait for.
	inTheWay map[types.NamespacedName]inTheWay
}

// lack is a StatefulSet that has had the same number of pods since a time.
type lack struct {
	have  int32
	since time.Time
}

// inTheWay holds the objects that an incarnation of a set waits for. One of them last came or went at moved.
type inTheWay struct {
	uid     types.UID
	objects []types.UID
	moved   time.Time
}

// NewMemory returns an empty memory.
func NewMemory() *Memory {
	return &Memory{
		Memory: memory.New(), inTheWay: map[types.NamespacedName]inTheWay{},
		seen: lru.New(memory.MostUIDs), missed: lru.New(memory.MostUIDs), lacking: lru.New(memory.MostUIDs),
	}
}

// stalledSince returns since when a StatefulSet has lacked pods and created none. It is zero
// before the StatefulSet controller has observed the spec, and for the first seconds.
func (m *Memory) stalledSince(sts *appsv1.StatefulSet, now time.Time) time.Time {
	if !workload.LacksPods(sts) {
		m.lacking.Remove(sts.UID)
		return time.Time{}
	}
	if sts.Status.ObservedGeneration < sts.Generation {
		return time.Time{}
	}
	known, _ := m.lacking.Get(sts.UID)
	l, ok := known.(lack)
	if !ok || l.have != sts.Status.Replicas {
		m.lacking.Add(sts.UID, lack{have: sts.Status.Replicas, since: now})
		return time.Time{}
	}
	if now.Before(l.since.Add(stalledAfter)) {
		return time.Time{}
	}
	return l.since
}

// vigil returns when this process first read each of the objects, and first missed each owner that is gone.
func (m *Memory) vigil(objects []types.UID, lives identity.Lives, now time.Time) lws.Vigil {
	return lws.Vigil{Seen: first(m.seen, objects, now), Gone: first(m.missed, lives.Gone(), now)}
}

// first returns when each of the objects was first noted.
func first(noted *lru.Cache, objects []types.UID, now time.Time) map[types.UID]time.Time {
	times := make(map[types.UID]time.Time, len(objects))
	for _, uid := range objects {
		known, _ := noted.Get(uid)
		at, ok := known.(time.Time)
		if !ok {
			at = now
			noted.Add(uid, at)
		}
		times[uid] = at
	}
	return times
}

// awaits records the objects that a set waits for.
func (m *Memory) awaits(set client.Object, objects []types.UID, lives identity.Lives, now time.Time) lws.Vigil {
	vigil, key := m.vigil(objects, lives, now), client.ObjectKeyFromObject(set)
	slices.Sort(objects)
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.inTheWay[key]
	if last.uid != set.GetUID() {
		last = inTheWay{uid: set.GetUID()}
	}
	if !slices.Equal(last.objects, objects) {
		last.objects, last.moved = objects, now
	}
	m.inTheWay[key], vigil.Moved = last, last.moved
	return vigil
}

// Awaits reports whether a set waits for that very object to be deleted.
func (m *Memory) Awaits(set types.NamespacedName, uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.inTheWay[set].objects, uid)
}

// forget drops everything about a set that does not exist.
func (m *Memory) forget(key types.NamespacedName) {
	m.Forget(key)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.inTheWay, key)
}
