package v1

// Labels of the LeaderWorkerSets of a DisaggregatedSet, of their pods and of their Services.
const (
	// SetNameLabelKey holds the name of the DisaggregatedSet. Also on scalers.
	SetNameLabelKey = "disaggregatedset.x-k8s.io/name"

	// RoleLabelKey holds the name of the role. Also on scalers.
	RoleLabelKey = "disaggregatedset.x-k8s.io/role"

	// SliceLabelKey holds the decimal index of the slice, from 0. Objects from before
	// there were slices have none, and are of slice 0.
	SliceLabelKey = "disaggregatedset.x-k8s.io/slice"

	// RevisionLabelKey holds the revision of the roles that the object was made from.
	RevisionLabelKey = "disaggregatedset.x-k8s.io/revision"
)

// InitialReplicasAnnotationKey holds, on a LeaderWorkerSet of an old revision, the decimal
// spec.replicas that it had when the rollout began.
const InitialReplicasAnnotationKey = "disaggregatedset.x-k8s.io/initial-replicas"

// RevisionHashVersionKey is an annotation of other implementations on a set whose revisions have another hash. Such a set
// is left alone.
const RevisionHashVersionKey = "disaggregatedset.x-k8s.io/revision-hash-version"

// ReadyForTrafficLabelKey is "true" on the leaders of a set with policy Fence that may get
// traffic. No other pod has it.
const ReadyForTrafficLabelKey = "lockstep.dev/ready-for-traffic"

// Annotations a user writes on a DisaggregatedSet. They are of this implementation: others
// leave them alone.
const (
	// RestartPolicyAnnotationKey says what becomes of the other roles when a group of one
	// role fails: Restart or Fence, or nothing when absent.
	RestartPolicyAnnotationKey = "lockstep.dev/role-restart-policy"

	// RestartPartners recreates the groups of partner roles that are older than the failure,
	// of the same slice and revision.
	RestartPartners = "Restart"

	// FencePartners takes the label of traffic from their leaders until the group is ready again.
	FencePartners = "Fence"

	// RestartPartnersAnnotationKey names the partner roles, separated by commas. Absent,
	// all other roles are partners.
	RestartPartnersAnnotationKey = "lockstep.dev/role-restart-partners"

	// SurgeOneAnnotationKey, if "true", allows each role of maxSurge 0 one group more: a
	// rollout can begin beside a role of one group.
	SurgeOneAnnotationKey = "lockstep.dev/allow-surge-group"

	// ServicesAnnotationKey says whether each LeaderWorkerSet has a headless Service:
	// "true" or "false".
	ServicesAnnotationKey = "lockstep.dev/role-services"
)
