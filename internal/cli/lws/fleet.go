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

// Fleet reads the sets of the session that a question asks for.
func (s *Session) Fleet(ctx context.Context, asked fleet.Question, now time.Time) (*fleet.Status, error) {
	var sets lwsv1.LeaderWorkerSetList
	var all corev1.PodList
	selector, err := asked.Selector(false)
	if err == nil {
		err = cmp.Or(s.Cached.List(ctx, &sets, client.MatchingLabelsSelector{Selector: selector}), s.Cached.List(ctx, &all))
	}
	if err != nil {
		return nil, err
	}
	pods := map[types.NamespacedName][]*corev1.Pod{} // by set
	for i := range all.Items {
		key := types.NamespacedName{Namespace: all.Items[i].Namespace, Name: all.Items[i].Labels[lwsv1.SetNameLabelKey]}
		pods[key] = append(pods[key], &all.Items[i])
	}
	live, absent := &listedOnce{Reader: s.Live, namespace: s.namespace, lists: map[string]answer{}}, s.noOperator(ctx, now)
	var lines []fleet.Line
	for i := range sets.Items {
		set, key := &sets.Items[i], client.ObjectKeyFromObject(&sets.Items[i])
		found, _, err := readSet(ctx, s.Cached, live, key, now)
		switch {
		case apierrors.IsNotFound(err): // it was deleted after it was listed
			continue
		case err != nil:
			return nil, err
		case absent == nil:
			found.Unattended = s.notObserved(ctx, set, now)
		case set.Status.ObservedGeneration < set.Generation:
			found.Unattended = absent
		}
		lines = append(lines, lineOf(found, pods[key]))
	}
	return fleet.Of(asked, lines, ptr.Deref(absent, action.Reason{}).Sentence), nil
}

func lineOf(found Survey, pods []*corev1.Pod) fleet.Line {
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
	case found.Unattended != nil:
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
func addPods(l *fleet.Line, w lws.SetSnapshot, pods []*corev1.Pod) {
	groups := map[types.UID]*lws.Group{} // by the UIDs of leaders and of worker StatefulSets
	for i := range w.Groups {
		groups[w.Groups[i].Leader.UID] = &w.Groups[i]
		for _, sts := range w.Groups[i].Workers.Owned {
			groups[sts.UID] = &w.Groups[i]
		}
	}
	nodes := map[string]bool{}
	for _, pod := range pods {
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

// listedOnce is a live reader for all sets of a session. It lists a kind once, and answers for each set from that list.
type listedOnce struct {
	client.Reader
	namespace string
	lists     map[string]answer
}

type answer struct {
	client.ObjectList
	err error
}

// List implements client.Reader.
func (o *listedOnce) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{LabelSelector: labels.Everything()}).ApplyOptions(options)
	var has client.HasLabels // other sets have other values
	requirements, _ := asked.LabelSelector.Requirements()
	for _, r := range requirements {
		has = append(has, r.Key())
	}
	key := fmt.Sprint(into.GetObjectKind().GroupVersionKind(), reflect.TypeOf(into), has)
	all, isListed := o.lists[key]
	if !isListed {
		all.ObjectList = into.DeepCopyObject().(client.ObjectList)
		all.err = o.Reader.List(ctx, all.ObjectList, client.InNamespace(o.namespace), has)
		o.lists[key] = all
	}
	if all.err != nil {
		return all.err
	}
	var fit []runtime.Object
	_ = meta.EachListItem(all.ObjectList, func(object runtime.Object) error {
		if m := object.(client.Object); m.GetNamespace() == asked.Namespace && asked.LabelSelector.Matches(labels.Set(m.GetLabels())) {
			fit = append(fit, object)
		}
		return nil
	})
	return meta.SetList(into, fit)
}
