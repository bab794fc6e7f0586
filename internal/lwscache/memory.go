package lwscache

import (
	"maps"
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

	mu sync.Mutex
	// inTheWay holds the objects that a set waits for.
	inTheWay map[types.NamespacedName]inTheWay
	// taken holds names that a create found taken while the cache showed no object.
	taken   map[name]bool
	written map[types.NamespacedName]writes
	// refused is what the API server refused to sets and their groups, by set.
	refused map[types.NamespacedName]grievances
}

// name is one name of one kind.
type name struct {
	kind      identity.Kind
	namespace string
	name      string
}

// inTheWay is a set of objects, and when one of them last came or went.
type inTheWay struct {
	objects map[types.UID]bool
	moved   time.Time
}

// lack is a StatefulSet that has had the same number of pods since a time.
type lack struct {
	have  int32
	since time.Time
}

// NewMemory returns an empty memory.
func NewMemory() *Memory {
	return &Memory{
		gone:     lru.New(mostUIDs),
		deleted:  lru.New(mostUIDs),
		seen:     lru.New(mostUIDs),
		lacking:  lru.New(mostUIDs),
		inTheWay: map[types.NamespacedName]inTheWay{},
		taken:    map[name]bool{},
		written:  map[types.NamespacedName]writes{},
		refused:  map[types.NamespacedName]grievances{},
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
func (m *Memory) awaits(set types.NamespacedName, objects []types.UID, now time.Time) lws.Vigil {
	vigil := lws.Vigil{Seen: m.firstSeen(objects, now)}
	m.mu.Lock()
	defer m.mu.Unlock()
	before, known := m.inTheWay[set]
	if !known && len(objects) == 0 {
		return vigil
	}
	is := inTheWay{objects: make(map[types.UID]bool, len(objects)), moved: before.moved}
	for _, uid := range objects {
		is.objects[uid] = true
	}
	if !maps.Equal(before.objects, is.objects) {
		is.moved = now
	}
	m.inTheWay[set] = is
	vigil.Moved = is.moved
	return vigil
}

// Awaits reports whether a set waits for that very object to be deleted.
func (m *Memory) Awaits(set types.NamespacedName, uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inTheWay[set].objects[uid]
}

// Taken records that a create found a name taken. Reads of that name ask the API server until
// the cache shows the object, or nothing has the name.
func (m *Memory) Taken(ref identity.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken[name{ref.Kind, ref.Namespace, ref.Name}] = true
}

func (m *Memory) isTaken(n name) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken[n]
}

// setFree records that a name is free, or that the cache shows its object.
func (m *Memory) setFree(n name) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.taken, n)
}

// takenUnder returns the taken names of a kind that begin with the name of a set.
func (m *Memory) takenUnder(kind identity.Kind, set types.NamespacedName) (names []name) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := range m.taken {
		if n.kind == kind && n.namespace == set.Namespace && strings.HasPrefix(n.name, set.Name+"-") {
			names = append(names, n)
		}
	}
	return names
}

// forget drops everything about a set that does not exist.
func (m *Memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.written, key)
	delete(m.refused, key)
	delete(m.inTheWay, key)
	maps.DeleteFunc(m.taken, func(n name, _ bool) bool {
		return n.namespace == key.Namespace && (n.name == key.Name || strings.HasPrefix(n.name, key.Name+"-"))
	})
}

// writes is what this process wrote for one incarnation of a set.
type writes struct {
	set      types.UID
	statusAt time.Time
	refusal  lws.Refusal
	// refused is what the refusal was of.
	refused wish
}

// wish is what a set asks for: its spec, and the metadata that its StatefulSet takes over.
type wish struct {
	generation          int64
	labels, annotations map[string]string
}

func wishOf(set client.Object) wish {
	return wish{set.GetGeneration(), set.GetLabels(), set.GetAnnotations()}
}

func (w wish) equal(other wish) bool {
	return w.generation == other.generation && maps.Equal(w.labels, other.labels) && maps.Equal(w.annotations, other.annotations)
}

// StatusWritten records when the status of a set was written.
func (m *Memory) StatusWritten(set client.Object, at time.Time) {
	m.note(set, func(w *writes) { w.statusAt = at })
}

// Accepted records that the API server took what the spec of a set leads to: the next refusal
// is the first one.
func (m *Memory) Accepted(set client.Object) {
	m.note(set, func(w *writes) { w.refusal = lws.Refusal{} })
}

// Refused records that the API server refused what the spec of a set leads to. It returns the
// refusal with the time of the first one.
func (m *Memory) Refused(set client.Object, refusal lws.Refusal) (going lws.Refusal) {
	m.note(set, func(w *writes) {
		if wish := wishOf(set); w.refused.equal(wish) {
			w.refusal = refusal.After(w.refusal)
		} else {
			w.refusal, w.refused = refusal, wish
		}
		going = w.refusal
	})
	return going
}

// refusalOf returns the refusal of what the set asks for now. A policy may ask for a label,
// and a new label is no new generation.
func (w writes) refusalOf(set client.Object) lws.Refusal {
	if !w.refused.equal(wishOf(set)) {
		return lws.Refusal{}
	}
	return w.refusal
}

func (m *Memory) note(set client.Object, change func(*writes)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.writesOfLocked(set)
	change(&w)
	m.written[client.ObjectKeyFromObject(set)] = w
}

// writesOf returns what was written for this incarnation of the set.
func (m *Memory) writesOf(set client.Object) writes {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writesOfLocked(set)
}

func (m *Memory) writesOfLocked(set client.Object) writes {
	w := m.written[client.ObjectKeyFromObject(set)]
	if w.set != set.GetUID() {
		return writes{set: set.GetUID()}
	}
	return w
}
