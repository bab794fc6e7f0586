package lwscache

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

const (
	// mostUIDs bounds each list of UIDs.
	mostUIDs = 100_000
	// deletedFor is how long a deletion is taken to have succeeded: far longer than a cache is
	// late, and not forever, since an API server may be restored from a backup.
	deletedFor = time.Minute
	// stalledAfter is how long a StatefulSet may lack pods and create none.
	stalledAfter = 10 * time.Second
)

// Memory is what an Observer remembers between reads: that a UID is gone, and when to write or
// read again. No decision needs it: a process that starts without it waits a little longer.
type Memory struct {
	// gone holds UIDs of objects that do not exist. A UID never comes back.
	gone *lru.Cache
	// deleted holds when this process deleted an object, by UID.
	deleted *lru.Cache
	// seen holds when an object of another incarnation or owner was first read, by UID.
	seen *lru.Cache
	// lacking holds the StatefulSets that lack pods, by UID.
	lacking *lru.Cache

	mu   sync.Mutex
	sets map[types.NamespacedName]*setMemory
	// taken holds names that a create found taken while the cache showed no object.
	taken map[identity.Ref]bool
}

// lack is a StatefulSet that has had the same number of pods since a time.
type lack struct {
	have  int32
	since time.Time
}

// setMemory is what is remembered of one incarnation of a set.
type setMemory struct {
	uid      types.UID
	statusAt time.Time
	// refused is what the API server last refused to groups, by the names of their leaders.
	refused map[string][]string
	// inTheWay holds the objects that the set waits for. One of them last came or went at moved.
	inTheWay []types.UID
	moved    time.Time
}

// NewMemory returns an empty memory.
func NewMemory() *Memory {
	return &Memory{
		gone:    lru.New(mostUIDs),
		deleted: lru.New(mostUIDs),
		seen:    lru.New(mostUIDs),
		lacking: lru.New(mostUIDs),
		sets:    map[types.NamespacedName]*setMemory{},
		taken:   map[identity.Ref]bool{},
	}
}

// of returns what is remembered of an incarnation of a set. The caller holds the lock.
func (m *Memory) of(set client.Object) *setMemory {
	key := client.ObjectKeyFromObject(set)
	s := m.sets[key]
	if s == nil || s.uid != set.GetUID() {
		s = &setMemory{uid: set.GetUID(), refused: map[string][]string{}}
		m.sets[key] = s
	}
	return s
}

// statusWritten returns when the status of a set was last written, or zero.
func (m *Memory) statusWritten(set client.Object) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(set).statusAt
}

// Deleted records that the API server accepted the deletion of an object. Until the cache
// shows it, another delete would only be refused.
func (m *Memory) Deleted(uid types.UID, at time.Time) { m.deleted.Add(uid, at) }

// WasDeleted reports whether this process deleted an object a short time ago.
func (m *Memory) WasDeleted(uid types.UID, now time.Time) bool {
	at, known := m.deleted.Get(uid)
	when, _ := at.(time.Time)
	return known && now.Before(when.Add(deletedFor))
}

func (m *Memory) setGone(uid types.UID) { m.gone.Add(uid, struct{}{}) }

func (m *Memory) isGone(uid types.UID) bool {
	_, ok := m.gone.Get(uid)
	return ok
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

// firstSeen returns when this process first read each of the objects.
func (m *Memory) firstSeen(objects []types.UID, now time.Time) map[types.UID]time.Time {
	if len(objects) == 0 {
		return nil
	}
	seen := make(map[types.UID]time.Time, len(objects))
	for _, uid := range objects {
		known, _ := m.seen.Get(uid)
		at, ok := known.(time.Time)
		if !ok {
			at = now
			m.seen.Add(uid, at)
		}
		seen[uid] = at
	}
	return seen
}

// awaits records the objects that a set waits for.
func (m *Memory) awaits(set client.Object, objects []types.UID, now time.Time) lws.Vigil {
	vigil := lws.Vigil{Seen: m.firstSeen(objects, now)}
	slices.Sort(objects)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(set)
	if !slices.Equal(s.inTheWay, objects) {
		s.inTheWay, s.moved = objects, now
	}
	vigil.Moved = s.moved
	return vigil
}

// Awaits reports whether a set waits for that very object to be deleted.
func (m *Memory) Awaits(set types.NamespacedName, uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sets[set]
	return s != nil && slices.Contains(s.inTheWay, uid)
}

// Taken records that a create found a name taken. Reads of that name ask the API server until
// the cache shows the object, or nothing has the name.
func (m *Memory) Taken(ref identity.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken[nameOf(ref.Kind, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})] = true
}

// nameOf is a name of a kind, whatever object has it.
func nameOf(kind identity.Kind, key types.NamespacedName) identity.Ref {
	return identity.Ref{Kind: kind, Namespace: key.Namespace, Name: key.Name}
}

func (m *Memory) isTaken(n identity.Ref) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken[n]
}

// setFree records that a name is free, or that the cache shows its object.
func (m *Memory) setFree(n identity.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.taken, n)
}

// takenRevisions returns the taken names of revisions that begin with the name of a set.
func (m *Memory) takenRevisions(set types.NamespacedName) (names []identity.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := range m.taken {
		if n.Kind == identity.KindControllerRevision && isOf(n, set) {
			names = append(names, n)
		}
	}
	return names
}

// isOf reports whether a name is made of a set's name.
func isOf(n identity.Ref, set types.NamespacedName) bool {
	return n.Namespace == set.Namespace && (n.Name == set.Name || strings.HasPrefix(n.Name, set.Name+"-"))
}

// forget drops everything about a set that does not exist.
func (m *Memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sets, key)
	maps.DeleteFunc(m.taken, func(n identity.Ref, _ bool) bool { return isOf(n, key) })
}

// StatusWritten records when the status of a set was written.
func (m *Memory) StatusWritten(set client.Object, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(set).statusAt = at
}

// RefusedTo records what the API server refused in the last reconcile of a group, and reports
// whether that has changed.
func (m *Memory) RefusedTo(set client.Object, leader string, refused []string) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(set)
	changed = !slices.Equal(s.refused[leader], refused)
	if s.refused[leader] = refused; len(refused) == 0 {
		delete(s.refused, leader)
	}
	return changed
}

// refusedTo returns what is refused to the groups of a set. It forgets groups that are not wanted
// any more.
func (m *Memory) refusedTo(set client.Object, isWanted func(leader string) bool) (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	refused := m.of(set).refused
	maps.DeleteFunc(refused, func(leader string, _ []string) bool { return !isWanted(leader) })
	for _, leader := range slices.Sorted(maps.Keys(refused)) {
		all = append(all, refused[leader]...)
	}
	return all
}
