package admission

import (
	"slices"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// surprises are the laws about what is legal but surely unwanted.
var surprises = []func(*lwsv1.LeaderWorkerSet) []string{
	warnLongName,
	warnTopologies,
	warnReservedKeys,
	warnOverwritten,
	warnDroppedFromClaims,
	warnGangScheduler,
}

// Warnings says what about set will not do what it seems to. old is nil for a
// new set. An update is not told again what its predecessor was told: whoever
// applies the same manifest every minute has read it.
//
// Each warning is short enough for the API server, which cuts at 256 characters.
func Warnings(set, old *lwsv1.LeaderWorkerSet) []string {
	warnings := warn(set)
	if old == nil {
		return warnings
	}
	told := warn(old)
	warnings = slices.DeleteFunc(warnings, func(w string) bool { return slices.Contains(told, w) })
	return append(warnings, warnTopologyChange(set, old)...)
}

func warn(set *lwsv1.LeaderWorkerSet) []string {
	var warnings []string
	for _, w := range surprises {
		warnings = append(warnings, w(set)...)
	}
	return warnings
}
