package v1

// Labels. All are found on pods; where else is said at each.
const (
	// SetNameLabelKey holds the name of the set. Also on StatefulSets, Services,
	// ControllerRevisions and PodGroups.
	SetNameLabelKey = "leaderworkerset.sigs.k8s.io/name"

	// GroupIndexLabelKey holds the decimal index of the group, from 0, or its key where the
	// set has groupIdentity Hash. Also on worker StatefulSets and PodGroups.
	GroupIndexLabelKey = "leaderworkerset.sigs.k8s.io/group-index"

	// WorkerIndexLabelKey holds the decimal index of the pod within its group: 0
	// is the leader.
	WorkerIndexLabelKey = "leaderworkerset.sigs.k8s.io/worker-index"

	// GroupUniqueHashLabelKey holds the SHA-1, in hex, of "namespace/leader pod
	// name". Also on worker StatefulSets.
	GroupUniqueHashLabelKey = "leaderworkerset.sigs.k8s.io/group-key"

	// RevisionKey holds the short hash of the template the object was made from.
	// Also on StatefulSets, ControllerRevisions and PodGroups.
	RevisionKey = "leaderworkerset.sigs.k8s.io/template-revision-hash"

	// SubGroupIndexLabelKey holds the decimal index of the subgroup. Absent when
	// the set has no subgroups, and on a leader that belongs to none.
	SubGroupIndexLabelKey = "leaderworkerset.sigs.k8s.io/subgroup-index"

	// SubGroupUniqueHashLabelKey holds the SHA-1, in hex, of "leader pod
	// name/subgroup index". Present when SubGroupIndexLabelKey is.
	SubGroupUniqueHashLabelKey = "leaderworkerset.sigs.k8s.io/subgroup-key"
)

// RoleLabelKey, on StatefulSets alone, says which pods of groups one runs. Pods have
// WorkerIndexLabelKey for that.
const (
	RoleLabelKey = "leaderworkerset.sigs.k8s.io/role"

	LeaderRole = "leader"
	WorkerRole = "worker"
)

// Annotations a user writes on a set.
const (
	// ExclusiveKeyAnnotationKey names the node label whose every value takes at
	// most one group.
	ExclusiveKeyAnnotationKey = "leaderworkerset.sigs.k8s.io/exclusive-topology"

	// SubGroupExclusiveKeyAnnotationKey names the node label whose every value
	// takes at most one subgroup. Needs a subGroupPolicy.
	SubGroupExclusiveKeyAnnotationKey = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"

	// RecreateGroupAfterStartAnnotationKey, whatever its value, turns
	// RecreateGroupOnPodRestart into RecreateGroupAfterStart.
	RecreateGroupAfterStartAnnotationKey = "leaderworkerset.sigs.k8s.io/experimental-recreate-group-after-start"
)

// RecoverAnnotationKey is what a user sets to "true" on the leader of a group that exhausted
// maxGroupRestarts: the group is recreated, and its count begins anew.
const RecoverAnnotationKey = "leaderworkerset.sigs.k8s.io/recover"

// RecreateAnnotationKey is what a user writes on a leader to have its group recreated once, with any value: neither the
// back-off nor maxGroupRestarts counts it. Other implementations ignore it.
const RecreateAnnotationKey = "lockstep.dev/recreate"

// GroupRestartBudgetFinalizer keeps the pods of such a group, terminated, as evidence.
const GroupRestartBudgetFinalizer = "leaderworkerset.sigs.k8s.io/group-restart-budget-cleanup"

// Annotations the operator writes, on pods unless it says otherwise.
const (
	// SizeAnnotationKey holds the decimal size of the group, leader included.
	SizeAnnotationKey = "leaderworkerset.sigs.k8s.io/size"

	// ReplicasAnnotationKey, on the leader StatefulSet, holds the decimal
	// spec.replicas at the time of the last apply.
	ReplicasAnnotationKey = "leaderworkerset.sigs.k8s.io/replicas"

	// LeaderPodNameAnnotationKey, on workers, holds the name of their leader.
	LeaderPodNameAnnotationKey = "leaderworkerset.sigs.k8s.io/leader-name"

	// LeaderAddressAnnotationKey, on workers, holds the DNS name of their leader within
	// the cluster. Workers of StatefulSets from before have none.
	LeaderAddressAnnotationKey = "leaderworkerset.sigs.k8s.io/leader-address"

	// SubGroupSizeAnnotationKey holds the decimal size of a subgroup.
	SubGroupSizeAnnotationKey = "leaderworkerset.sigs.k8s.io/subgroup-size"

	// SubGroupPolicyTypeAnnotationKey holds a SubGroupPolicyType.
	SubGroupPolicyTypeAnnotationKey = "leaderworkerset.sigs.k8s.io/subgroup-policy-type"

	// SubdomainPolicyAnnotationKey, on leaders, holds UniquePerReplica or is
	// absent. It alone among the keys is in camel case.
	SubdomainPolicyAnnotationKey = "leaderworkerset.sigs.k8s.io/subdomainPolicy"

	// PodTerminationPolicyAnnotationKey, on worker StatefulSets, holds Parallel, or
	// Default where the leader says otherwise, or is absent: once the set is gone,
	// nothing else holds its policy. Another implementation writes it on leaders.
	PodTerminationPolicyAnnotationKey = "leaderworkerset.sigs.k8s.io/pod-termination-policy"

	// GroupRestartCountsAnnotationKey, on a set, holds in JSON how often another
	// implementation recreated each group: "<revision key>/<group index>": count. This
	// one reads it for leaders from before its time, and counts in the status.
	GroupRestartCountsAnnotationKey = "leaderworkerset.sigs.k8s.io/group-restart-counts"

	// GroupRestartBudgetExhaustedAnnotationKey, on a leader, is "true" once its group
	// failed more often than maxGroupRestarts allows.
	GroupRestartBudgetExhaustedAnnotationKey = "leaderworkerset.sigs.k8s.io/group-restart-budget-exhausted"

	// GroupIdentityAnnotationKey, on leaders, is Hash if their groups have keys, or absent.
	GroupIdentityAnnotationKey = "leaderworkerset.sigs.k8s.io/group-identity"

	// LeaderRequestsTPUsAnnotationKey, on workers, is "true" when their leader
	// asks for TPUs and absent otherwise.
	LeaderRequestsTPUsAnnotationKey = "leaderworkerset.sigs.k8s.io/leader-requests-tpus"

	// WorkloadSchedulingAnnotationKey, on pods that Kubernetes' own scheduler places together,
	// is the level of spec.scheduling: lws, replica or role. "true" means replica.
	WorkloadSchedulingAnnotationKey = "leaderworkerset.sigs.k8s.io/workload-aware-scheduling"

	// WorkloadNameAnnotationKey, on the same pods, begins the name of their PodGroup. It is
	// the name of the set's Workload, and on a leader and its workers a suffix of that leader.
	WorkloadNameAnnotationKey = "leaderworkerset.sigs.k8s.io/workload-name"
)

// SchedulingLevelLabelKey is a label of PodGroups: the level of spec.scheduling.
const SchedulingLevelLabelKey = "leaderworkerset.sigs.k8s.io/scheduling-level"

// Annotations that a controller above a set writes on it, to have the set's pods placed with those
// of others.
const (
	// GroupTemplateNameAnnotationKey names the template in the Workload of the set's controller.
	GroupTemplateNameAnnotationKey = "scheduling.k8s.io/group-template-name"

	// ParentPodGroupAnnotationKey names the CompositePodGroup that the set's PodGroups are in.
	ParentPodGroupAnnotationKey = "scheduling.k8s.io/parent-compositepodgroup"
)

// Environment variables every container of every pod of a set is given.
const (
	// LwsLeaderAddress is the DNS name of the leader within the cluster.
	LwsLeaderAddress = "LWS_LEADER_ADDRESS"

	// LwsGroupSize is the number of pods of the group, leader included.
	LwsGroupSize = "LWS_GROUP_SIZE"

	// LwsWorkerIndex is the index of the pod within its group: 0 is the leader.
	LwsWorkerIndex = "LWS_WORKER_INDEX"
)

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

	// UndoAnnotationKey in an update of a set asks for an undo: the number of a
	// revision, or 0 for the previous one. The webhook puts the template of that
	// revision in the update in place of the annotation.
	UndoAnnotationKey = "lockstep.dev/undo-to-revision"

	// HistoryLimitAnnotationKey is how many revisions that no group runs any more
	// are kept, to go back to: a whole number, 5 when absent, 0 for none.
	HistoryLimitAnnotationKey = "lockstep.dev/revision-history-limit"
)

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

// GroupReadyCondition is the condition and readiness gate of a leader whose group has a key: it is
// True while the workers are ready.
const GroupReadyCondition = "leaderworkerset.sigs.k8s.io/group-ready"

// Reasons of GroupReadyCondition.
const (
	WorkersReadyReason    = "WorkerStatefulSetReady"
	WorkersNotReadyReason = "WorkerStatefulSetNotReady"
)

// GroupReplacementGate is a scheduling gate of leaders. It holds a leader back until the pods of
// the group before it are gone. Where groups have keys, it holds one back until its set has room.
const GroupReplacementGate = "leaderworkerset.sigs.k8s.io/group-replacement"
