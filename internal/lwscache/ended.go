package lwscache

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// endedFor is for how long a deletion is taken on trust: far longer than a cache
// lags, and not for ever, since an API server may be given back an older state.
const endedFor = time.Minute

// Ended remembers that the API server took the deletion of an object. It takes
// effect at once: whoever still sees the object whole sees the past.
func (m *Memory) Ended(uid types.UID, at time.Time) { m.ended.Add(uid, at) }

// HasEnded tells whether an object was deleted a short time ago.
func (m *Memory) HasEnded(uid types.UID, now time.Time) bool {
	at, known := m.ended.Get(uid)
	when, _ := at.(time.Time)
	return known && now.Before(when.Add(endedFor))
}
