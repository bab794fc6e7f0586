package lwscache

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// grievances are what the API server refused to one incarnation of a set: by the names of
// leaders, and under no name for the set itself.
type grievances struct {
	set types.UID
	by  map[string][]lws.Refusal
}

// RefusedTo records what the API server refused in the last reconcile of a group, or of the set
// if leader is empty. It returns the refusals with the time of the first one, and whether they
// have changed.
func (m *Memory) RefusedTo(set client.Object, leader string, refusals []lws.Refusal) (going []lws.Refusal, news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := client.ObjectKeyFromObject(set)
	g, known := m.refused[key]
	if !known && len(refusals) == 0 {
		return nil, false
	}
	if g.set != set.GetUID() {
		g = grievances{set: set.GetUID(), by: map[string][]lws.Refusal{}}
		m.refused[key] = g
	}
	before := g.by[leader]
	news = len(before) != len(refusals)
	for i, refusal := range refusals {
		if i < len(before) {
			refusal = refusal.After(before[i])
			news = news || refusal.Sentence != before[i].Sentence
		}
		going = append(going, refusal)
	}
	if len(going) > 0 {
		g.by[leader] = going
		return going, news
	}
	delete(g.by, leader)
	return nil, news
}

// refusedOf returns what is refused to a set and its groups, by rising index. It forgets groups
// that are not wanted any more.
func (m *Memory) refusedOf(set *lwsv1.LeaderWorkerSet, exists func(leader string) bool) []lws.Refused {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.refused[client.ObjectKeyFromObject(set)]
	if g.set != set.UID {
		return nil
	}
	var found []lws.Refused
	for leader, refusals := range g.by {
		index := identity.NoOrdinal
		if leader != "" {
			_, index = identity.ParentAndOrdinal(leader)
		}
		if index >= int(workload.Replicas(set)) && !exists(leader) {
			delete(g.by, leader)
			continue
		}
		for _, refusal := range refusals {
			found = append(found, lws.Refused{Index: index, Refusal: refusal})
		}
	}
	slices.SortFunc(found, func(a, b lws.Refused) int {
		if a.Index != b.Index {
			return a.Index - b.Index
		}
		return strings.Compare(a.Sentence, b.Sentence)
	})
	return found
}
