package operator

import "lockstep.dev/lockstep/internal/controller/lws"

// Names of the controllers that --controllers chooses from.
const (
	LeaderWorkerSet = lws.Name
	Protection      = "protection"
)

// Controllers returns the names of all controllers.
func Controllers() []string { return []string{LeaderWorkerSet, Protection} }
