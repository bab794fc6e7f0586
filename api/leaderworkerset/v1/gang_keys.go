package v1

// Annotations a user writes on a set to have its groups placed whole. The first is
// of this implementation: others leave it alone.
const (
	// GangSchedulerAnnotationKey names the scheduler that places the set's groups
	// whole, or is "none". Without it the operator's configuration decides. It holds
	// for groups that are made from then on.
	GangSchedulerAnnotationKey = "lockstep.dev/gang-scheduler"

	// NoGangScheduler is the value that has pods placed one by one.
	NoGangScheduler = "none"

	// QueueNameAnnotationKey names the queue that the set's groups wait in, where
	// Volcano places them.
	QueueNameAnnotationKey = "scheduling.volcano.sh/queue-name"
)
