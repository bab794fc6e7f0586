package lwscache

import (
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// graves is how many UIDs are remembered as gone.
const graves = 100_000

// Memory is what an Observer remembers between looks. Nothing in it is needed
// for safety: a process that starts without it waits a little longer, or looks
// once more.
type Memory struct {
	awake time.Time
	gone  *lru.Cache
	// lacking holds the want of pods of StatefulSets.
	lacking *lru.Cache
	// ended holds when this process deleted what, by UID.
	ended *lru.Cache

	mu      sync.Mutex
	vigils  map[types.NamespacedName]*vigil
	written map[types.NamespacedName]writes
	hidden  map[name]hidden
	// refused is what the API server refused to sets and their groups, by set.
	refused map[types.NamespacedName]grievances
}

// name is one name of one kind.
type name struct {
	kind      identity.Kind
	namespace string
	name      string
}

// hidden is an object that bears a name of ours but not our labels, so that the
// cache does not show it.
type hidden struct {
	object client.Object
	seen   time.Time
}

// writes is what this process wrote for one incarnation of a set.
type writes struct {
	set      types.UID
	statusAt time.Time
	applied  lws.Applied
	refusal  lws.Refusal
	// refused is what the refusal was of.
	refused wish
}

// wish is what a set asks for: its spec, and what its StatefulSet bears of its
// metadata.
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

type vigil struct {
	lws.Vigil
	present map[types.UID]presence
}

// presence is a ghost that was there at the last look.
type presence struct {
	identity.Ref
	// taken tells whether it bears the name of a pod that a StatefulSet is to have.
	taken bool
}

// NewMemory returns an empty memory of a process that awoke at the given time.
func NewMemory(awake time.Time) *Memory {
	return &Memory{
		awake:   awake,
		gone:    lru.New(graves),
		lacking: lru.New(graves),
		ended:   lru.New(graves),
		vigils:  map[types.NamespacedName]*vigil{},
		written: map[types.NamespacedName]writes{},
		hidden:  map[name]hidden{},

		refused: map[types.NamespacedName]grievances{},
	}
}

// Awaken dates the first look: what came and went before it is not known.
func (m *Memory) Awaken(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.awake = at
}

// StatusWritten remembers when a set's status was written.
func (m *Memory) StatusWritten(set client.Object, at time.Time) {
	m.note(set, func(w *writes) { w.statusAt = at })
}

// Applied remembers what became of a set's leader StatefulSet when it was last
// written. What was refused of it before is over: the next refusal is the first one.
func (m *Memory) Applied(set client.Object, applied lws.Applied) {
	m.note(set, func(w *writes) { w.applied, w.refusal = applied, lws.Refusal{} })
}

// Refused remembers that the API server refused what a set's spec led to, and
// returns the refusal as it goes on.
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

// refusalOf returns what was refused of what the set asks for now. A policy may want
// a label, and that is no new generation.
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

// writesOf returns what was written for this very incarnation of the set.
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

// forget drops everything about a set that is no longer there.
func (m *Memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.written, key)
	delete(m.refused, key)
	maps.DeleteFunc(m.vigils, func(k types.NamespacedName, _ *vigil) bool { return k == key || isGroupVigil(k, key) })
	maps.DeleteFunc(m.hidden, func(n name, _ hidden) bool {
		return n.namespace == key.Namespace && (n.name == key.Name || strings.HasPrefix(n.name, key.Name+"-"))
	})
}

// groupVigil is the key of the vigil over a group: no set has a name like it.
func groupVigil(leader types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Namespace: leader.Namespace, Name: groupVigilPrefix + leader.Name}
}

const groupVigilPrefix = "group/"

// isGroupVigil tells whether a vigil is over a group of the set.
func isGroupVigil(vigil, set types.NamespacedName) bool {
	leader, ok := strings.CutPrefix(vigil.Name, groupVigilPrefix)
	parent, _ := identity.ParentAndOrdinal(leader)
	return ok && parent == set.Name && vigil.Namespace == set.Namespace
}

// Started remembers that the StatefulSet of a set or group was made just now: no
// name that became free before can have kept it from anything.
func (m *Memory) Started(statefulSet types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range []types.NamespacedName{statefulSet, groupVigil(statefulSet)} {
		if v := m.vigils[key]; v != nil {
			v.Departed = identity.Ref{}
		}
	}
}

// relax drops the vigil over a key that has no ghosts left.
func (m *Memory) relax(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := m.vigils[key]; v != nil && len(v.present) == 0 {
		delete(m.vigils, key)
	}
}

func (m *Memory) bury(uid types.UID) { m.gone.Add(uid, struct{}{}) }

func (m *Memory) buried(uid types.UID) bool {
	_, ok := m.gone.Get(uid)
	return ok
}

// watchOver notes which ghosts are present for key and returns what is known of
// their comings and goings.
func (m *Memory) watchOver(key types.NamespacedName, present []presence, now time.Time) lws.Vigil {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.vigils[key]
	if v == nil {
		if len(present) == 0 {
			return lws.Vigil{Awake: m.awake}
		}
		v = &vigil{Vigil: lws.Vigil{Awake: m.awake}}
		m.vigils[key] = v
	}
	v.look(present, now)
	return v.Vigil
}

// look replaces what is remembered as present, noting who came and who left.
// Maps handed out before are left as they are.
func (v *vigil) look(present []presence, now time.Time) {
	here := make(map[types.UID]presence, len(present))
	seen := make(map[types.UID]time.Time, len(present))
	for _, p := range present {
		at, known := v.Seen[p.UID]
		if !known {
			at, v.Moved = now, now
		}
		here[p.UID], seen[p.UID] = p, at
	}
	for uid, p := range v.present {
		if _, still := here[uid]; still {
			continue
		}
		v.Moved = now
		if p.taken {
			v.Departed = p.Ref
		}
	}
	v.present, v.Seen = here, seen
}

// Watches tells whether a set waits for that very object to leave.
func (m *Memory) Watches(set types.NamespacedName, uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.vigils[set]
	if v == nil {
		return false
	}
	_, present := v.present[uid]
	return present
}
