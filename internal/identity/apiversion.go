package identity

import lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"

// APIVersion returns the group and version of a kind that every API server serves, or of
// LeaderWorkerSets.
func (k Kind) APIVersion() string {
	switch k {
	case KindLeaderWorkerSet:
		return lwsv1.GroupVersion.String()
	case KindStatefulSet, KindControllerRevision:
		return "apps/v1"
	}
	return "v1"
}
