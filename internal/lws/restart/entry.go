package restart

import (
	"cmp"
	"maps"
	"slices"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Entry returns what the status says about the failures of a group, or nil.
func Entry(set *lwsv1.LeaderWorkerSet, index int) *lwsv1.GroupRestarts {
	return find(set.Status.Restarts, index, restartsIndex)
}

func startedIndex(s lwsv1.StartedGroup) int32 { return s.Index }

func restartsIndex(r lwsv1.GroupRestarts) int32 { return r.Index }

// position returns where a group is in a list by rising index, and whether it is there.
func position[T any](sorted []T, index int32, of func(T) int32) (int, bool) {
	return slices.BinarySearchFunc(sorted, index, func(one T, index int32) int { return cmp.Compare(of(one), index) })
}

func find[T any](sorted []T, index int, of func(T) int32) *T {
	if at, found := position(sorted, int32(index), of); found {
		return &sorted[at]
	}
	return nil
}

func below[T any](sorted []T, end int32, of func(T) int32) []T {
	at, _ := position(sorted, end, of)
	return sorted[:at:at]
}

// merge returns sorted with others in their places. It changes neither.
func merge[T any](sorted, others []T, of func(T) int32) []T {
	if len(others) == 0 {
		return sorted
	}
	byIndex := make(map[int32]T, len(sorted)+len(others))
	for _, one := range slices.Concat(sorted, others) {
		byIndex[of(one)] = one
	}
	return slices.SortedFunc(maps.Values(byIndex), func(a, b T) int { return cmp.Compare(of(a), of(b)) })
}
