package set

import (
	"testing"

	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/disaggregated/planner"
	"lockstep.dev/lockstep/test/expect"
)

func TestNoRoleGetsAheadWhereAWriteFails(t *testing.T) {
	for next, order := range map[[2]int32][]int{
		{5, 4}: {1, 0}, // both grow: the slowest first
		{3, 2}: {0, 1}, // both shrink: the fastest first
		{5, 2}: {1, 0}, // what shrinks is first
	} {
		rows := map[string]disaggregated.Row{"p": {Intended: 6, Ready: make([]bool, 4)}, "d": {Intended: 6, Ready: make([]bool, 3)}}
		s := &step{
			slice: &disaggregated.Slice{Revisions: []disaggregated.Revision{{Name: "new", Rows: rows}}},
			roles: []string{"p", "d"}, next: planner.Counts{next[:]},
		}
		expect.Equalf(t, order, s.inOrder(0), "%v", next)
	}
}
