package lws

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/cli/fleet"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lws/status"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Whole is a set that has LeaderWorkerSets: its line is for all of them.
type Whole interface {
	client.Object
	// Observed is the generation that the operator has observed.
	Observed() int64
	// Add counts one of its LeaderWorkerSets, which has a line.
	Add(part *lwsv1.LeaderWorkerSet, line fleet.Line)
	// Line is its line. unattended is why no operator acts on it, or nil.
	Line(unattended *action.Reason) fleet.Line
}

// Fleet reads the sets of the session that a question asks for. A LeaderWorkerSet of a whole has no line of its own.
func (s *Session) Fleet(ctx context.Context, asked fleet.Question, now time.Time, wholes ...Whole) (*fleet.Status, error) {
	var sets lwsv1.LeaderWorkerSetList
	selector, err := asked.Selector(false)
	if err := cmp.Or(err, s.Cached.List(ctx, &sets)); err != nil {
		return nil, err
	}
	cached, live := s.listedOnce(s.Cached), s.listedOnce(s.Live)
	isAbandoned, why := s.isAbandoned(ctx, now), ""
	if isAbandoned {
		why = s.noOperator().Sentence
	}
	var lines []fleet.Line
	for i := range sets.Items {
		var pods corev1.PodList
		set := &sets.Items[i]
		above := slices.IndexFunc(wholes, func(w Whole) bool { return metav1.IsControlledBy(set, w) })
		if above < 0 && !selector.Matches(labels.Set(set.Labels)) {
			continue
		}
		found, _, err := readSet(ctx, cached, live, client.ObjectKeyFromObject(set), now)
		if err == nil {
			err = cached.List(ctx, &pods, client.InNamespace(set.Namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: set.Name})
		}
		switch {
		case apierrors.IsNotFound(err): // it was deleted after it was listed
			continue
		case err != nil:
			return nil, err
		}
		found.Unattended = s.unattended(ctx, found.Set.Set, isAbandoned, now)
		if above >= 0 {
			wholes[above].Add(set, lineOf(found, pods.Items))
		} else {
			lines = append(lines, lineOf(found, pods.Items))
		}
	}
	for _, w := range wholes {
		lines = append(lines, w.Line(s.unobserved(ctx, w, w.Observed(), isAbandoned, now)))
	}
	return fleet.Of(asked, lines, why), nil
}

func lineOf(found Survey, pods []corev1.Pod) fleet.Line {
	set, standing, groups := found.Set.Set, found.Standing, int64(workload.Replicas(found.Set.Set))
	l := fleet.Line{
		APIGroup: lwsv1.GroupVersion.Group, Kind: string(identity.KindLeaderWorkerSet), Namespace: set.Namespace, Name: set.Name,
		UID: set.UID, CreatedAt: set.CreationTimestamp, DeletedAt: set.DeletionTimestamp, Revision: standing.Key,
		Groups: fleet.Count{Wanted: groups, Existing: int64(len(found.Set.Groups)), Ready: int64(standing.Ready), Updated: int64(standing.Updated)},
		Pods:   fleet.Count{Wanted: groups * int64(workload.Size(set))},
	}
	l.State, l.Reason, l.Message = stateOf(found)
	addPods(&l, found, pods)
	return l
}

// told are the conditions that say the state of a set by being True. The first one counts.
var told = []struct{ condition, state string }{
	{string(lwsv1.LeaderWorkerSetStalled), string(fleet.Stalled)}, {string(lwsv1.LeaderWorkerSetReady), string(fleet.Ready)},
	{string(lwsv1.LeaderWorkerSetDegraded), string(fleet.Degraded)}, {lwsset.ConditionBackoff, string(fleet.BackingOff)},
}

// stateOf returns the state of a set, with the reason and the message of the condition that says so. The conditions are
// those that the status is to have.
func stateOf(found Survey) (state fleet.State, reason, message string) {
	set, standing := found.Set.Set, found.Standing
	switch {
	case set.DeletionTimestamp != nil:
		return fleet.Deleting, "", "waits for its finalizers: " + strings.Join(set.Finalizers, ", ")
	case found.Unattended != nil && set.Status.ObservedGeneration < set.Generation:
		return fleet.Unattended, found.Unattended.Code, found.Unattended.Sentence
	}
	for _, t := range told {
		if c, _ := condition.Of(standing.Conditions, t.condition); c.Status == metav1.ConditionTrue {
			return fleet.State(t.state), c.Reason, c.Message
		}
	}
	unready, _ := condition.Of(standing.Conditions, string(lwsv1.LeaderWorkerSetReady))
	progressing, updating := status.Usual(lwsv1.LeaderWorkerSetProgressing), status.Usual(lwsv1.LeaderWorkerSetUpdateInProgress)
	switch {
	case unready.Reason == lws.CodePaused:
		state = fleet.Paused
	case unready.Reason != progressing.Reason && unready.Reason != updating.Reason:
		state = fleet.Waiting
	case standing.States[lws.GroupRestarting] > 0:
		state = fleet.Restarting
	case standing.States[lws.GroupUnready] > 0:
		state = fleet.Unready
	case condition.IsTrue(standing.Conditions, updating.Type):
		state = fleet.Updating
	default:
		state = fleet.Starting
	}
	return state, unready.Reason, unready.Message
}

// addPods counts the pods with the label of a set. Accelerators are idle unless the group of their pod is ready: the
// other pods of a group wait for the one that is not.
func addPods(l *fleet.Line, found Survey, pods []corev1.Pod) {
	groups := map[types.UID]*lws.Group{} // by the UIDs of leaders and of worker StatefulSets
	for i := range found.Set.Groups {
		g := &found.Set.Groups[i]
		groups[g.Leader.UID] = g
		for _, sts := range g.Workers.Owned {
			groups[sts.UID] = g
		}
	}
	l.On = sets.New[string]()
	for i := range pods {
		pod := &pods[i]
		g := cmp.Or(groups[pod.UID], groups[ptr.Deref(metav1.GetControllerOfNoCopy(pod), metav1.OwnerReference{}).UID])
		if g != nil && pod.DeletionTimestamp == nil {
			l.Pods.Existing++
			l.Pods.Ready += int64(lws.One(lws.PodReady(pod)))
			l.Pods.Updated += int64(lws.One(g.UpToDate(l.Revision)))
		}
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		l.On.Insert(pod.Spec.NodeName)
		isIdle := int64(lws.One(g == nil || !g.Ready(found.Set.Set)))
		for name, n := range gang.AcceleratorsOf(pod) {
			l.Accelerators = l.Accelerators.With(fleet.Accelerator{Resource: string(name), Held: n.Value(), Idle: n.Value() * isIdle})
		}
	}
	l.Nodes = len(l.On)
}

// listedOnce reads for all sets of a session. It lists a kind once, and answers for each set from that list.
type listedOnce struct {
	client.Reader
	namespace string
	lists     map[string]*answers
}

// answers are the objects of a list by their namespace and the values of the labels that were asked for.
type answers struct {
	err error
	of  map[string][]runtime.Object
}

func (s *Session) listedOnce(from client.Reader) *listedOnce {
	return &listedOnce{from, s.namespace, map[string]*answers{}}
}

// List implements client.Reader.
func (o *listedOnce) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{LabelSelector: labels.Everything()}).ApplyOptions(options)
	if asked.FieldSelector != nil {
		return o.Reader.List(ctx, into, options...)
	}
	var keys client.HasLabels
	place := asked.Namespace
	requirements, _ := asked.LabelSelector.Requirements()
	for _, r := range requirements { // other sets have other values
		value, _ := asked.LabelSelector.RequiresExactMatch(r.Key())
		keys, place = append(keys, r.Key()), place+"/"+value
	}
	kind := fmt.Sprint(reflect.TypeOf(into), into.GetObjectKind().GroupVersionKind(), keys)
	if o.lists[kind] == nil {
		o.lists[kind] = o.list(ctx, into.DeepCopyObject().(client.ObjectList), keys)
	}
	return cmp.Or(o.lists[kind].err, meta.SetList(into, o.lists[kind].of[place]))
}

func (o *listedOnce) list(ctx context.Context, all client.ObjectList, keys client.HasLabels) *answers {
	a := &answers{o.Reader.List(ctx, all, client.InNamespace(o.namespace), keys), map[string][]runtime.Object{}}
	_ = meta.EachListItem(all, func(object runtime.Object) error {
		place := object.(client.Object).GetNamespace()
		for _, key := range keys {
			place += "/" + object.(client.Object).GetLabels()[key]
		}
		a.of[place] = append(a.of[place], object)
		return nil
	})
	return a
}
