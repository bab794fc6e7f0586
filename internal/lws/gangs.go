package lws

import (
	"fmt"
	"time"

	"lockstep.dev/lockstep/internal/identity"
)

// gangLook is how often a gang scheduler that is missing is looked for.
const gangLook = 10 * time.Second

// previousGangs returns what schedulers know groups of earlier leaders by. It holds
// back its own group's successor alone, but then that is placed pod by pod.
func (d *setDecision) previousGangs() []previous {
	var found []previous
	for i := range d.Groups {
		found = append(found, previousOf(identity.KindPodGroup, d.Groups[i].Gang.Previous)...)
	}
	return found
}

func (g Group) gangConflicts() []string {
	var found []string
	for _, object := range g.Gang.Foreign {
		found = append(found, taken(identity.KindPodGroup, object, fmt.Sprintf("group %d is not scheduled as a gang", g.Index)))
	}
	return found
}
