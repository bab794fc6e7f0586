package lws

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/lws/workload"
)

// Refusals are the FailedCreate events of a namespace, the newest first. Only the StatefulSet
// controller's event says why a pod is missing.
type Refusals []corev1.Event

// OfPod returns why a pod of a StatefulSet could not be created, or is empty.
func (r Refusals) OfPod(sts *appsv1.StatefulSet, pod string) string {
	for _, e := range r {
		if sts != nil && e.InvolvedObject.UID == sts.UID && strings.Contains(e.Message, "Pod "+pod+" in StatefulSet ") {
			return e.Message
		}
	}
	return ""
}

// refusals reads the events if a group is not ready. A user who may not list events sees no reasons.
func (s *Session) refusals(ctx context.Context, found Survey) Refusals {
	set := found.Set.Set
	if set.DeletionTimestamp != nil || found.Standing.Ready >= workload.Replicas(set) {
		return nil
	}
	var events corev1.EventList
	if err := s.Live.List(ctx, &events, client.InNamespace(set.Namespace), client.MatchingFields{"reason": "FailedCreate"}); err != nil {
		return nil
	}
	slices.SortFunc(events.Items, func(a, b corev1.Event) int { return b.LastTimestamp.Compare(a.LastTimestamp.Time) })
	return events.Items
}
