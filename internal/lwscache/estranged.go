package lwscache

import (
	"context"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// Who takes a label off a pod has its StatefulSet let go of it, and our watch. The pod
// lives on, and is not to be taken for one that is gone.

// groupLabels are what the pods of a group bear, as far as its leader still tells.
func groupLabels(w *lws.GroupSnapshot) client.MatchingLabels {
	index := w.Leader.Labels[lwsv1.GroupIndexLabelKey]
	if index == "" {
		index = strconv.Itoa(w.Index)
	}
	return client.MatchingLabels{lwsv1.SetNameLabelKey: w.Set.Name, lwsv1.GroupIndexLabelKey: index}
}

// withEstranged adds to the workers of a group that were found by their labels those
// that live on without them. It ends at the first that is gone for certain.
func (o *Observer) withEstranged(ctx context.Context, w *lws.GroupSnapshot, found []*corev1.Pod) ([]*corev1.Pod, error) {
	for worker := 1; worker < int(lws.SizeOf(w.Leader, w.Set)); worker++ {
		n := name{kind: identity.KindPod, namespace: w.Set.Namespace, name: identity.LeaderName(w.LeaderName, worker)}
		if slices.ContainsFunc(found, func(pod *corev1.Pod) bool { return pod.Name == n.name }) {
			continue
		}
		object, _, err := o.uncover(ctx, n)
		if err != nil {
			return nil, err
		}
		pod, there := object.(*corev1.Pod)
		if !there {
			return found, nil
		}
		found = append(found, pod)
	}
	return found, nil
}

// stillLeads returns the leader as it is now, or nil if it is gone or going.
func (o *Observer) stillLeads(ctx context.Context, leader *corev1.Pod) (*corev1.Pod, error) {
	now := &corev1.Pod{}
	err := o.live.Get(ctx, client.ObjectKeyFromObject(leader), now)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err != nil || now.UID != leader.UID || now.DeletionTimestamp != nil {
		return nil, nil
	}
	return now, nil
}
