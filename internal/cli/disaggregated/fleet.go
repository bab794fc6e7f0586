package disaggregated

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/cli/cluster"
	"lockstep.dev/lockstep/internal/cli/fleet"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/disaggregated/set"
	"lockstep.dev/lockstep/internal/identity"
)

// Fleet reads all sets of a session. A DisaggregatedSet has one line, for all of its LeaderWorkerSets.
type Fleet struct {
	*cluster.Session
	isRead bool
	unread []string
}

// NewFleet asks whether DisaggregatedSets can be listed. Where they cannot, their LeaderWorkerSets have lines.
func NewFleet(ctx context.Context, s *cluster.Session) *Fleet {
	var missed lws.Details
	err := s.Live.List(ctx, &dsv1.DisaggregatedSetList{}, client.InNamespace(s.Cluster.Namespace), client.Limit(1))
	if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
		missed.Miss("DisaggregatedSets", "list and watch disaggregatedsets", err)
	}
	return &Fleet{s, err == nil, missed.Unread}
}

// Read answers a question.
func (f *Fleet) Read(ctx context.Context, asked fleet.Question) (*fleet.Status, error) {
	var sets dsv1.DisaggregatedSetList
	var wholes []lws.Whole
	if f.isRead {
		selector, err := asked.Selector(false)
		if err := cmp.Or(err, f.Cached.List(ctx, &sets, client.MatchingLabelsSelector{Selector: selector})); err != nil {
			return nil, err
		}
	}
	for i := range sets.Items {
		wholes = append(wholes, newWhole(&sets.Items[i]))
	}
	found, err := f.Session.Fleet(ctx, asked, f.Now(), wholes...)
	if err == nil {
		found.Unread = f.unread
	}
	return found, err
}

// whole is a set, and what its LeaderWorkerSets are together.
type whole struct {
	*dsv1.DisaggregatedSet
	line       fleet.Line
	isUpdating bool
}

func newWhole(of *dsv1.DisaggregatedSet) *whole {
	revision, _ := disaggregated.RevisionOf(of.Spec.Roles) // it was decoded
	w := &whole{DisaggregatedSet: of, line: fleet.Line{
		APIGroup: dsv1.GroupVersion.Group, Kind: string(identity.KindDisaggregatedSet), Prefix: "dset/", Namespace: of.Namespace, Name: of.Name,
		UID: of.UID, CreatedAt: of.CreationTimestamp, DeletedAt: of.DeletionTimestamp, Revision: revision, State: fleet.Ready,
	}}
	for i := range of.Spec.Roles {
		if role := &of.Spec.Roles[i]; !disaggregated.IsExternal(role) {
			w.want(role, int64(ptr.Deref(role.Spec.Replicas, 1))*int64(disaggregated.Slices(of)))
		}
	}
	return w
}

func (w *whole) want(role *dsv1.DisaggregatedRole, groups int64) {
	w.line.Groups.Wanted += groups
	w.line.Pods.Wanted += groups * int64(ptr.Deref(role.Spec.LeaderWorkerTemplate.Size, 1))
}

// Observed implements lws.Whole.
func (w *whole) Observed() int64 { return w.Status.ObservedGeneration }

// Add implements lws.Whole. How many groups an External role is to have is on its LeaderWorkerSets.
func (w *whole) Add(part *lwsv1.LeaderWorkerSet, l fleet.Line) {
	place := disaggregated.PlaceOf(part)
	l.Groups.Wanted, l.Pods.Wanted, l.Message = 0, 0, part.Name+": "+l.Message
	if place.Revision != w.line.Revision {
		l.Groups.Updated, l.Pods.Updated, w.isUpdating = 0, 0, true
	}
	w.line.Add(l)
	for i := range w.Spec.Roles {
		if role := &w.Spec.Roles[i]; role.Name == place.Role && disaggregated.IsExternal(role) && place.Revision == w.line.Revision {
			w.want(role, int64(disaggregated.Intended(part)))
		}
	}
}

// told are the conditions that say the state of a set by being True. The first one counts.
var told = []struct {
	condition string
	state     fleet.State
}{{action.CodeUnsupported, fleet.Stalled}, {string(lwsv1.LeaderWorkerSetStalled), fleet.Stalled}, {string(lwsv1.LeaderWorkerSetReady), fleet.Ready}}

// Line implements lws.Whole. The set is in its own state, or in the worst one of its LeaderWorkerSets.
func (w *whole) Line(unattended *action.Reason) fleet.Line {
	l := w.line
	parts := l.State
	l.State, l.Reason, l.Message = w.state(unattended)
	if w.DeletionTimestamp == nil {
		l.Worsen(parts, w.line.Reason, w.line.Message)
	}
	return l
}

func (w *whole) state(unattended *action.Reason) (state fleet.State, reason, message string) {
	switch {
	case w.DeletionTimestamp != nil:
		return fleet.Deleting, "", "waits for its finalizers: " + strings.Join(w.Finalizers, ", ")
	case unattended != nil && w.Observed() < w.Generation:
		return fleet.Unattended, unattended.Code, unattended.Sentence
	}
	for _, t := range told {
		if c, _ := condition.Of(w.Status.Conditions, t.condition); c.Status == metav1.ConditionTrue {
			return t.state, c.Reason, c.Message
		}
	}
	unready, _ := condition.Of(w.Status.Conditions, string(lwsv1.LeaderWorkerSetReady))
	switch isUsual := slices.Contains([]string{"", set.CodeInProgress}, unready.Reason); {
	case isUsual && w.isUpdating:
		state = fleet.Updating
	case isUsual:
		state = fleet.Starting
	case unready.Reason == set.CodePaused:
		state = fleet.Paused
	default:
		state = fleet.Waiting
	}
	return state, unready.Reason, unready.Message
}
