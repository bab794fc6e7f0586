package survey

import (
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/lws"
)

// Refusals are FailedCreate events: of pods by the StatefulSet controller, of worker StatefulSets by
// the operator. No object says why another one is missing.
type Refusals struct{ newest []corev1.Event }

// RefusalsOf returns the refusals of events. It sorts them.
func RefusalsOf(events []corev1.Event) Refusals {
	slices.SortFunc(events, func(a, b corev1.Event) int { return lastSeen(&b).Compare(lastSeen(&a)) })
	return Refusals{newest: events}
}

// OfPod returns why a pod of a StatefulSet could not be created, or is empty.
func (r Refusals) OfPod(sts *appsv1.StatefulSet, pod string) string {
	return r.first(func(e *corev1.Event) bool {
		return e.InvolvedObject.UID == sts.UID && strings.Contains(e.Message, "Pod "+pod+" in StatefulSet ")
	})
}

// OfWorkers returns why the StatefulSet of a leader's workers could not be created, or is empty.
func (r Refusals) OfWorkers(leader *corev1.Pod) string {
	return r.first(func(e *corev1.Event) bool { return e.Related != nil && e.Related.UID == leader.UID })
}

func (r Refusals) first(about func(*corev1.Event) bool) string {
	if i := slices.IndexFunc(r.newest, func(e corev1.Event) bool { return about(&e) }); i >= 0 {
		return r.newest[i].Message
	}
	return ""
}

// refusalsIn reads the events of a namespace. A user who may not list events sees no reasons.
func (s *Surveyor) refusalsIn(ctx context.Context, namespace string) Refusals {
	var events corev1.EventList
	if err := s.live.List(ctx, &events, client.InNamespace(namespace), client.MatchingFields{"reason": "FailedCreate"}); err != nil {
		return Refusals{}
	}
	return RefusalsOf(events.Items)
}

// lastSeen is when an event was last reported, in the fields of either events API.
func lastSeen(e *corev1.Event) time.Time {
	last := e.EventTime.Time
	if e.LastTimestamp.After(last) {
		last = e.LastTimestamp.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}

// lacks reports whether a group of the set is missing or not ready.
func (s *Survey) lacks() bool {
	return s.Set.Set.DeletionTimestamp == nil && s.Standing.Ready < lws.Replicas(s.Set.Set)
}
