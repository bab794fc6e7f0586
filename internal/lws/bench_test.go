package lws_test

import (
	"fmt"
	"testing"

	"lockstep.dev/lockstep/internal/lws"
)

// BenchmarkDecideSet is what one event costs the decision about a set when all groups stand.
func BenchmarkDecideSet(b *testing.B) {
	for _, groups := range []int32{10, 100, 1000} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			world := running(b, groups, 4).set("w")
			b.ReportAllocs()
			for b.Loop() {
				lws.DecideSet(world)
			}
		})
	}
}

// BenchmarkDecideGroup is what one event costs the decision about a group: the same for any
// number of groups.
func BenchmarkDecideGroup(b *testing.B) {
	group := running(b, 1, 4).group("w-0")
	b.ReportAllocs()
	for b.Loop() {
		lws.DecideGroup(group)
	}
}
