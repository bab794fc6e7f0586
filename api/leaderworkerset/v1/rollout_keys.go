package v1

// Annotations a user writes on a set to steer its rollouts. They are of this
// implementation: others leave them alone.
const (
	// PausedAnnotationKey holds a set's rollout while it is "true": no group is
	// replaced, and a change of the template waits. Absent or "false", it goes on
	// from where it stood. Groups that fail are made again at the revision they
	// were of, and the set may be scaled.
	PausedAnnotationKey = "lockstep.dev/paused"

	// PausedValue is the one value that holds a rollout.
	PausedValue = "true"

	// HistoryLimitAnnotationKey is how many revisions that no group runs any more
	// are kept, to go back to: a whole number, 5 when absent, 0 for none.
	HistoryLimitAnnotationKey = "lockstep.dev/revision-history-limit"
)
