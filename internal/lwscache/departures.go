package lwscache

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/identity"
)

const (
	// departuresKept is how many workers that went last are remembered of a group, and
	// departingKept of how many groups: sets of any size may be deleted.
	departuresKept, departingKept = 32, 256
	// departedFor is for how long: their going has asked for a look at once.
	departedFor = time.Minute
)

// departures are workers of one group that have gone, as they were last seen, and when
// the latest went.
type departures struct {
	workers []*corev1.Pod
	at      time.Time
}

func (d departures) past(now time.Time) bool { return now.Sub(d.at) > departedFor }

// Left remembers a worker that has gone as it was last seen: whether it was deleted,
// and what had become of it before, nothing else tells then.
func (m *Memory) Left(worker *corev1.Pod, now time.Time) {
	leader := client.ObjectKeyFromObject(worker)
	leader.Name, _ = identity.ParentAndOrdinal(worker.Name)
	m.mu.Lock()
	defer m.mu.Unlock()
	was, known := m.departures[leader]
	if !known {
		m.dropDepartures(now)
	}
	// What was handed out is never written to.
	workers := append(slices.Clone(was.workers), worker)
	m.departures[leader] = departures{workers[max(0, len(workers)-departuresKept):], now}
}

// dropDepartures makes room for another group. The caller holds the lock.
func (m *Memory) dropDepartures(now time.Time) {
	maps.DeleteFunc(m.departures, func(_ types.NamespacedName, d departures) bool { return d.past(now) })
	if len(m.departures) < departingKept {
		return
	}
	oldest := slices.MinFunc(slices.Collect(maps.Keys(m.departures)), func(a, b types.NamespacedName) int {
		return m.departures[a].at.Compare(m.departures[b].at)
	})
	delete(m.departures, oldest)
}

// lastOf are the workers under that leader's name that have gone of late. Those of a
// leader of before bear other UIDs than those that are missed.
func (m *Memory) lastOf(leader types.NamespacedName, now time.Time) []*corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	if was := m.departures[leader]; !was.past(now) {
		return was.workers
	}
	return nil
}
