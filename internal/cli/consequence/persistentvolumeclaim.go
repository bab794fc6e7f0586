package consequence

import (
	"fmt"
	"slices"

	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// fillClaims says what becomes of the PVCs of groups that start or are deleted, unless they are too many to list.
func (s *sets) fillClaims(c *Consequence) {
	if int64(s.roll.Peak)*int64(workload.Size(s.made)) > 100_000 {
		return
	}
	exists := map[string]bool{}
	for _, pvc := range slices.Concat(s.after.Set.PVCs.Owned, s.after.Set.PVCs.Orphans) {
		exists[pvc.Name] = pvc.DeletionTimestamp == nil
	}
	// sort adds names of PVCs of groups of a size to those that exist, and to those that do not.
	sort := func(leaders []string, size int32, there, missing *[]string) {
		for _, leader := range leaders {
			for _, template := range volumes.TemplateNames(s.made) {
				name := template + "-" + leader
				for worker := int32(1); worker <= size; worker++ {
					list := missing
					if exists[name] {
						list = there
					}
					*list = append(*list, name)
					name = fmt.Sprintf("%s-%s-%d", template, leader, worker)
				}
			}
		}
	}
	size, left := workload.Size(s.made), &c.ClaimsStay
	if !volumes.KeepsScaled(s.set) {
		left = &c.ClaimsDeleted
	}
	sort(c.Replaced.Names, size, &c.ClaimsStay, &c.ClaimsCreated)
	sort(slices.Concat(c.Created.Names, c.Surge.Names), size, &c.ClaimsReused, &c.ClaimsCreated)
	sort(c.Deleted.Names, s.size, left, &[]string{})
}
