// Package memory is what one process remembers of objects between its reconciles.
//
// It knows which UIDs are gone, which names are taken, and what the API server refused. It refuses to decide: no decision
// needs it, and a process that starts without it waits a little longer.
package memory

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

const (
	// MostUIDs bounds each list of UIDs.
	MostUIDs = 100_000
	// deletedFor is how long a deletion is taken to have succeeded: far longer than a cache is
	// late, and not forever, since an API server may be restored from a backup.
	deletedFor = time.Minute
)

// Memory is about the objects of one kind, and what is made for them. It is safe for concurrent use.
type Memory struct {
	// gone holds UIDs of objects that do not exist. A UID never comes back.
	gone *lru.Cache
	// deleted holds when this process deleted an object, by UID.
	deleted *lru.Cache

	mu    sync.Mutex
	known map[types.NamespacedName]*incarnation
	// taken holds names that a create found taken while the cache showed no object.
	taken map[identity.Ref]bool
}

// incarnation is what is remembered of one incarnation of an object.
type incarnation struct {
	uid      types.UID
	statusAt time.Time
	// refusal is what the API server last refused to the object as it was then.
	refusal   action.Refusal
	refusedAs metav1.ObjectMeta
	// refused is what it refused to parts, by their names, and to the object under no name.
	refused map[string][]action.Refusal
}

// wishOf returns what changes when an object asks for something else. A new spec has a new generation. A new label or
// annotation, which what is made for it takes over, has none.
func wishOf(object client.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Generation: object.GetGeneration(), Labels: object.GetLabels(), Annotations: object.GetAnnotations()}
}

// New returns an empty memory.
func New() *Memory {
	return &Memory{
		gone: lru.New(MostUIDs), deleted: lru.New(MostUIDs), known: map[types.NamespacedName]*incarnation{}, taken: map[identity.Ref]bool{},
	}
}

// of returns what is remembered of an incarnation of an object. The caller holds the lock.
func (m *Memory) of(object client.Object) *incarnation {
	key := client.ObjectKeyFromObject(object)
	o := m.known[key]
	if o == nil || o.uid != object.GetUID() {
		o = &incarnation{uid: object.GetUID(), refused: map[string][]action.Refusal{}}
		m.known[key] = o
	}
	return o
}

// Forget drops everything about an object that does not exist.
func (m *Memory) Forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, key)
	maps.DeleteFunc(m.taken, func(n identity.Ref, _ bool) bool { return isOf(n, key) })
}

// Gone records that no object has the UID.
func (m *Memory) Gone(uid types.UID) { m.gone.Add(uid, struct{}{}) }

// IsGone reports whether no object has the UID.
func (m *Memory) IsGone(uid types.UID) bool {
	_, ok := m.gone.Get(uid)
	return ok
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

// IsTaken reports whether a create found a name taken that is not known to be free.
func (m *Memory) IsTaken(kind identity.Kind, key types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken[nameOf(kind, key)]
}

// SetFree records that a name is free, or that the cache shows its object.
func (m *Memory) SetFree(kind identity.Kind, key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.taken, nameOf(kind, key))
}

// TakenOf returns the taken names of kinds that are made of the name of an object.
func (m *Memory) TakenOf(object types.NamespacedName, kinds ...identity.Kind) []identity.Ref {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := slices.Collect(maps.Keys(m.taken))
	return slices.DeleteFunc(taken, func(n identity.Ref) bool { return !slices.Contains(kinds, n.Kind) || !isOf(n, object) })
}

// isOf reports whether a name is made of an object's name.
func isOf(n identity.Ref, object types.NamespacedName) bool {
	return n.Namespace == object.Namespace && (n.Name == object.Name || strings.HasPrefix(n.Name, object.Name+"-"))
}

// StatusWritten records when the status of an object was written.
func (m *Memory) StatusWritten(object client.Object, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(object).statusAt = at
}

// Recall returns when the status of an object was last written, and what the API server refused of the present spec.
func (m *Memory) Recall(object client.Object) (written time.Time, refusal action.Refusal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.of(object)
	if equality.Semantic.DeepEqual(o.refusedAs, wishOf(object)) {
		refusal = o.refusal
	}
	return o.statusAt, refusal
}

// Accepted records that the API server took what the spec of an object leads to: the next refusal is the first one.
func (m *Memory) Accepted(object client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(object).refusal = action.Refusal{}
}

// Refused records that the API server refused what the spec of an object leads to. It returns the
// refusal with the time of the first one.
func (m *Memory) Refused(object client.Object, refusal action.Refusal) action.Refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.of(object)
	if equality.Semantic.DeepEqual(o.refusedAs, wishOf(object)) {
		refusal = refusal.After(o.refusal)
	}
	o.refusal, o.refusedAs = refusal, wishOf(object)
	return refusal
}

// HasRefused reports whether the last reconcile of a part, or of the object if part is empty, was refused something.
func (m *Memory) HasRefused(object client.Object, part string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.known[client.ObjectKeyFromObject(object)]
	return o != nil && len(o.refused[part]) > 0
}

// RefusedTo records what the API server refused in the last reconcile of a part, or of the object if part is empty. It
// returns the refusals with the time of the first one, and whether they have changed.
func (m *Memory) RefusedTo(object client.Object, part string, refusals []action.Refusal) (going []action.Refusal, news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.of(object)
	before := o.refused[part]
	news = len(before) != len(refusals)
	for i, refusal := range refusals {
		if i < len(before) {
			refusal = refusal.After(before[i])
			news = news || refusal.Sentence != before[i].Sentence
		}
		going = append(going, refusal)
	}
	if o.refused[part] = going; len(going) == 0 {
		delete(o.refused, part)
	}
	return going, news
}

// RefusedOf returns what is refused to an object and its parts, by rising index. It forgets parts
// that are not wanted any more.
func (m *Memory) RefusedOf(object client.Object, place func(part string) (index int, isWanted bool)) (found []action.Refused) {
	m.mu.Lock()
	defer m.mu.Unlock()
	refused := m.of(object).refused
	for part, refusals := range refused {
		index, isWanted := identity.NoOrdinal, true
		if part != "" {
			index, isWanted = place(part)
		}
		if !isWanted {
			delete(refused, part)
			continue
		}
		for _, refusal := range refusals {
			found = append(found, action.Refused{Index: index, Refusal: refusal})
		}
	}
	slices.SortFunc(found, func(a, b action.Refused) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Sentence, b.Sentence))
	})
	return found
}
