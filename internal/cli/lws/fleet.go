package lws

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/fleet"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lws/status"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Fleet reads the sets of the session that a question asks for.
func (s *Session) Fleet(ctx context.Context, asked fleet.Question, now time.Time) (*fleet.Status, error) {
	var sets lwsv1.LeaderWorkerSetList
	selector, err := asked.Selector(false)
	if err == nil {
		err = s.Cached.List(ctx, &sets, client.MatchingLabelsSelector{Selector: selector})
	}
	if err != nil {
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
		lines = append(lines, lineOf(found, pods.Items))
	}
	return fleet.Of(asked, lines, why), nil
}

func lineOf(found Survey, pods []corev1.Pod) fleet.Line {
	set := found.Set.Set
	l := fleet.Line{
		APIGroup: lwsv1.GroupVersion.Group, Kind: string(identity.KindLeaderWorkerSet), Namespace: set.Namespace, Name: set.Name,
		UID: set.UID, CreatedAt: set.CreationTimestamp, DeletedAt: set.DeletionTimestamp, Revision: found.Standing.Key,
	}
	l.State, l.Reason, l.Message = stateOf(found)
	l.Groups.Wanted, l.Groups.Ready, l.Groups.Updated = workload.Replicas(set), found.Standing.Ready, found.Standing.Updated
	l.Pods.Wanted = int64(workload.Replicas(set)) * int64(workload.Size(set))
	addPods(&l, found.Set, pods)
	return l
}

// stateOf returns the state of a set, with the reason and the message of the condition that says so. The conditions are
// those that the status is to have.
func stateOf(found Survey) (state fleet.State, reason, message string) {
	switch set := found.Set.Set; {
	case set.DeletionTimestamp != nil:
		return fleet.Deleting, "", "waits for its finalizers: " + strings.Join(set.Finalizers, ", ")
	case found.Unattended != nil && set.Status.ObservedGeneration < set.Generation:
		return fleet.Unattended, found.Unattended.Code, found.Unattended.Sentence
	}
	ready, _ := condition.Of(found.Standing.Conditions, string(lwsv1.LeaderWorkerSetReady))
	for _, says := range []struct {
		kind  string
		state fleet.State
	}{
		{string(lwsv1.LeaderWorkerSetStalled), fleet.Stalled}, {ready.Type, fleet.Ready},
		{string(lwsv1.LeaderWorkerSetDegraded), fleet.Degraded}, {lwsset.ConditionBackoff, fleet.BackingOff},
	} {
		if c, _ := condition.Of(found.Standing.Conditions, says.kind); c.Status == metav1.ConditionTrue {
			return says.state, c.Reason, c.Message
		}
	}
	return progressOf(found.Standing, ready.Reason), ready.Reason, ready.Message
}

// progressOf is the state of a set that the operator works on, by the reason why it is not ready, and by its groups.
func progressOf(standing lws.Standing, reason string) fleet.State {
	progressing, updating := status.Usual(lwsv1.LeaderWorkerSetProgressing), status.Usual(lwsv1.LeaderWorkerSetUpdateInProgress)
	switch {
	case reason == lws.CodePaused:
		return fleet.Paused
	case reason != progressing.Reason && reason != updating.Reason:
		return fleet.Waiting
	case standing.States[lws.GroupRestarting] > 0:
		return fleet.Restarting
	case standing.States[lws.GroupUnready] > 0:
		return fleet.Unready
	case condition.IsTrue(standing.Conditions, updating.Type):
		return fleet.Updating
	}
	return fleet.Starting
}

// addPods counts the pods with the label of a set. Accelerators are idle unless the group of their pod is ready: the
// other pods of a group wait for the one that is not.
func addPods(l *fleet.Line, w lws.SetSnapshot, pods []corev1.Pod) {
	groups := map[types.UID]*lws.Group{} // by the UIDs of leaders and of worker StatefulSets
	for i := range w.Groups {
		groups[w.Groups[i].Leader.UID] = &w.Groups[i]
		for _, sts := range w.Groups[i].Workers.Owned {
			groups[sts.UID] = &w.Groups[i]
		}
	}
	nodes := map[string]bool{}
	for i := range pods {
		pod := &pods[i]
		g := groups[pod.UID]
		if owner := metav1.GetControllerOfNoCopy(pod); g == nil && owner != nil {
			g = groups[owner.UID]
		}
		if g != nil && pod.DeletionTimestamp == nil {
			l.Pods.Existing++
			l.Pods.Ready += int64(lws.One(lws.PodReady(pod)))
		}
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		nodes[pod.Spec.NodeName] = true
		isIdle := g == nil || !g.Ready(w.Set)
		for name, n := range gang.AcceleratorsOf(pod) {
			l.Accelerators = l.Accelerators.With(fleet.Accelerator{Resource: string(name), Held: n.Value(), Idle: n.Value() * int64(lws.One(isIdle))})
		}
	}
	l.Nodes = len(nodes)
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
