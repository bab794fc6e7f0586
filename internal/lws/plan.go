package lws

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// Plan is the plan for a set or a group.
type Plan struct {
	action.Plan
	// Needs is what the decision still has to read, or empty. Until it is read, the rest of the plan is void.
	Needs Need
	// Standing is what the plan of a set was decided from, counted. It is nil for a group, and for a
	// set that is left alone or is being deleted.
	Standing *Standing
}

// Wait is something the plan cannot hasten.
type Wait = action.Wait

// Need is something that a decision asks the reader for.
type Need string

const (
	// NeedRevision is the revision that the leader runs: it holds the restart policy.
	NeedRevision Need = "revision"
	// NeedHistory is the revisions of a set that no group runs.
	NeedHistory Need = "history"
	// NeedWorkers is the pods of groups that are ready: they say when these became so.
	NeedWorkers Need = "workers"
	// NeedPodGroupsInUse is a live read of which PodGroups the pods of a set use.
	NeedPodGroupsInUse Need = "PodGroups in use"
	// NeedLivePods is a live read of the group, and the revision: no group of several pods is recreated by what a cache shows.
	NeedLivePods Need = "live pods"
)

// Codes of waits and of the reasons for writes. They are stable.
const (
	CodePreviousIncarnation = action.CodePreviousIncarnation
	CodeNameConflict        = action.CodeNameConflict
	CodeLeaderNotReady      = "WaitingForLeaderReady"
	CodeLeaderNotScheduled  = "WaitingForLeaderScheduled"
	CodeRevisionNotVisible  = "WaitingForRevision"
	CodeMistakenAnnotation  = "MistakenAnnotation"
	CodeNoTopology          = "TopologyUnknown"
	CodeStatusCoalesced     = "StatusCoalesced"
	CodeGarbage             = action.CodeGarbage
	CodeMissing             = action.CodeMissing
	CodeChanged             = action.CodeChanged
	CodeOrphan              = action.CodeOrphan
	CodeRefused             = action.CodeRefused
	CodeNotHeadless         = "ServiceNotHeadless"
	CodeNudge               = "Nudge"
	CodeSuperseded          = action.CodeSuperseded
	CodeRollout             = action.CodeRollout
	CodeOutdated            = "Outdated"
	CodePaused              = "RolloutPaused"
	CodeTie                 = "VolumeTie"
	CodeScaledAway          = action.CodeScaledAway
	CodeVolumeClaimsDiffer  = "VolumeClaimsDiffer"
	CodeLeaderUnschedulable = "LeaderUnschedulable"

	CodeGangSchedulerMissing = "GangSchedulerMissing"
	CodeWorkloadNotReady     = "WaitingForWorkload"
	CodePodGroupOwner        = "UnexpectedPodGroupOwner"
	CodePodGroupUnused       = "PodGroupUnused"
	CodePodGroupDiffers      = "PodGroupDiffers"
	CodeRestart              = "Restart"
	CodeParallel             = "ParallelTermination"
	CodePreviousGone         = "PreviousIncarnationGone"
	CodeHeld                 = "HeldAfterEviction"
	CodeBackoff              = "RestartBackOff"
	CodeAdmitted             = "GroupReplacementAdmitted"
	CodeDeferred             = "GroupReplacementDeferred"
	CodeKeyTaken             = "GroupKeyTaken"
	CodeGroupReady           = "GroupReady"

	CodeProgressDeadline         = "ProgressDeadline"
	CodeProgressDeadlineExceeded = "ProgressDeadlineExceeded"
)

// Add appends what another rule decided.
func (p *Plan) Add(other Plan) {
	p.Needs = cmp.Or(p.Needs, other.Needs)
	p.Standing = cmp.Or(p.Standing, other.Standing)
	p.Plan.Add(other.Plan)
}

// Because returns a reason with a stable code.
func Because(code, sentence string) action.Reason { return action.Because(code, sentence) }

// CodeUnsupported is the condition of a set that this version of Lockstep leaves alone.
const CodeUnsupported = action.CodeUnsupported

// IsUnsupported reports whether a plan leaves its set alone.
func (p Plan) IsUnsupported() bool {
	return slices.ContainsFunc(p.Waits, func(w Wait) bool { return w.Code == CodeUnsupported })
}

// Apply changes an object at the version that was judged. failed is the note if that fails, or empty.
func (p *Plan) Apply(part action.Object, onto identity.Ref, fieldOwner string, reason action.Reason, failed string) {
	write := action.Apply{Object: part, Onto: onto, FieldOwner: fieldOwner, Because: reason}
	if failed != "" {
		write.Tell.Refused = Warning("FailedUpdate", "Update", failed, nil)
	}
	p.Do(write)
}

// Create creates what is missing. done is told of once it exists, and failed, about a second object or nil, if not.
func (p *Plan) Create(
	kind identity.Kind, object action.Object, owner identity.Ref,
	missing, failed string, about *identity.Ref, done ...action.Event,
) {
	p.Do(action.Create{
		Kind: kind, Object: object, Owner: owner, Because: Because(CodeMissing, missing),
		Tell: action.Telling{Done: done, Refused: Warning("FailedCreate", "Create", failed, about)},
	})
}

// Event is an event about what a write does. related is a second object that it is about, or nil.
func Event(reason, verb, note string, related *identity.Ref) action.Event {
	return action.Event{Reason: reason, Action: verb, Note: note, Related: related}
}

// Warning is an event about what goes wrong. related is a second object that it is about, or nil.
func Warning(reason, verb, note string, related *identity.Ref) *action.Event {
	return &action.Event{Warning: true, Reason: reason, Action: verb, Note: note, Related: related}
}

// Adopt makes owner the controller of an orphan. part holds the ownerReference alone.
func Adopt(orphan, owner identity.Ref, part action.Object) action.Apply {
	return action.Apply{
		Object:     part,
		Onto:       orphan,
		FieldOwner: adoptionFieldOwner,
		Adopter:    &owner,
		Because:    Because(CodeOrphan, orphan.String()+" has no controller and bears the labels of "+owner.String()),
	}
}

// Specified is the spec of a StatefulSet or Deployment as it was judged.
func Specified(kind identity.Kind, object metav1.Object) action.Standing {
	return action.Standing{
		Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(), Specified: map[types.UID]int64{object.GetUID(): object.GetGeneration()},
	}
}

// SetRef returns the incarnation of the set.
func SetRef(set *lwsv1.LeaderWorkerSet) identity.Ref {
	return identity.RefOf(identity.KindLeaderWorkerSet, set)
}
