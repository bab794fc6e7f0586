package lwscache

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// annotationsAlike is what annotations pods have had lately: those of a group's pods
// say the same, of its size and its leader.
var annotationsAlike = alike{most: 4096}

// alike has objects share maps that say the same. A shared map is never changed, as
// nothing is that a cache holds.
type alike struct {
	// most bounds how many maps are remembered; beyond it, all are forgotten, which
	// costs sharing and nothing else.
	most int

	mu    sync.Mutex
	known map[string]map[string]string
}

// one is a map that says the same, held in memory once.
func (a *alike) one(words map[string]string) map[string]string {
	if len(words) == 0 {
		return nil
	}
	said := spelled(words)
	a.mu.Lock()
	defer a.mu.Unlock()
	if same, ok := a.known[said]; ok {
		return same
	}
	if a.known == nil || len(a.known) >= a.most {
		a.known = map[string]map[string]string{}
	}
	a.known[said] = internMap(words)
	return a.known[said]
}

// spelled is a map as one string: two are the same string only if they say the same.
func spelled(words map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(words)) {
		for _, word := range []string{key, words[key]} {
			b.WriteString(strconv.Itoa(len(word)))
			b.WriteByte(':')
			b.WriteString(word)
		}
	}
	return b.String()
}
