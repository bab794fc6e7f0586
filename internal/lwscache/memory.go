package lwscache

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// seen holds when an object of another incarnation or owner was first read, and missed when an owner was first missed.
	seen, missed *lru.Cache
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
	// refusal is what the API server last refused to the set as it was then.
	refusal   lws.Refusal
	refusedAs metav1.ObjectMeta
	// refused is what it refused to groups, by the names of their leaders, and to the set under no name.
	refused map[string][]lws.Refusal
	// inTheWay holds the objects that the set waits for. One of them last came or went at moved.
	inTheWay []types.UID
	moved    time.Time
}

// wishOf returns what changes when a set asks for something else. A new spec has a new generation. A new label or
// annotation, which its StatefulSet takes over, has none.
func wishOf(set client.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Generation: set.GetGeneration(), Labels: set.GetLabels(), Annotations: set.GetAnnotations()}
}

// NewMemory returns an empty memory.
func NewMemory() *Memory {
	return &Memory{
		gone:    lru.New(mostUIDs),
		deleted: lru.New(mostUIDs),
		seen:    lru.New(mostUIDs),
		missed:  lru.New(mostUIDs),
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
		s = &setMemory{uid: set.GetUID(), refused: map[string][]lws.Refusal{}}
		m.sets[key] = s
	}
	return s
}

// recall fills in what is remembered of a snapshot's set.
func (m *Memory) recall(w *lws.SetSnapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(w.Set)
	w.StatusWritten = s.statusAt
	if equality.Semantic.DeepEqual(s.refusedAs, wishOf(w.Set)) {
		w.Refusal = s.refusal
	}
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
	vigil := m.vigil(objects, lives, now)
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

// takenOf returns the taken names of kinds that are made of the name of a set.
func (m *Memory) takenOf(set types.NamespacedName, kinds ...identity.Kind) []identity.Ref {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := slices.Collect(maps.Keys(m.taken))
	return slices.DeleteFunc(taken, func(n identity.Ref) bool { return !slices.Contains(kinds, n.Kind) || !isOf(n, set) })
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

// Accepted records that the API server took what the spec of a set leads to: the next refusal is the first one.
func (m *Memory) Accepted(set client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(set).refusal = lws.Refusal{}
}

// Refused records that the API server refused what the spec of a set leads to. It returns the
// refusal with the time of the first one.
func (m *Memory) Refused(set client.Object, refusal lws.Refusal) lws.Refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(set)
	if equality.Semantic.DeepEqual(s.refusedAs, wishOf(set)) {
		refusal = refusal.After(s.refusal)
	}
	s.refusal, s.refusedAs = refusal, wishOf(set)
	return refusal
}

// HasRefused reports whether the last reconcile of a group, or of the set if leader is empty, was refused something.
func (m *Memory) HasRefused(set client.Object, leader string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sets[client.ObjectKeyFromObject(set)]
	return s != nil && len(s.refused[leader]) > 0
}

// RefusedTo records what the API server refused in the last reconcile of a group, or of the set if leader is empty. It
// returns the refusals with the time of the first one, and whether they have changed.
func (m *Memory) RefusedTo(set client.Object, leader string, refusals []lws.Refusal) (going []lws.Refusal, news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(set)
	before := s.refused[leader]
	news = len(before) != len(refusals)
	for i, refusal := range refusals {
		if i < len(before) {
			refusal = refusal.After(before[i])
			news = news || refusal.Sentence != before[i].Sentence
		}
		going = append(going, refusal)
	}
	if s.refused[leader] = going; len(going) == 0 {
		delete(s.refused, leader)
	}
	return going, news
}

// refusedOf returns what is refused to a set and its groups, by rising index. It forgets groups
// that are not wanted any more.
func (m *Memory) refusedOf(set client.Object, group func(leader string) (index int, isWanted bool)) (found []lws.Refused) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(set)
	for leader, refusals := range s.refused {
		index, isWanted := identity.NoOrdinal, true
		if leader != "" {
			index, isWanted = group(leader)
		}
		if !isWanted {
			delete(s.refused, leader)
			continue
		}
		for _, refusal := range refusals {
			found = append(found, lws.Refused{Index: index, Refusal: refusal})
		}
	}
	slices.SortFunc(found, func(a, b lws.Refused) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Sentence, b.Sentence))
	})
	return found
}
