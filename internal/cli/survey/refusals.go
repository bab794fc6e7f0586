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

// askedAgainAfter is how old what events told may be: a survey that is repeated must
// not read all events with every change.
const askedAgainAfter = 5 * time.Second

// Refusals are what events tell of objects that the API server did not let be made:
// pods, by their StatefulSet's controller, and StatefulSets of workers, by the operator.
// No object says why it is not there.
type Refusals struct{ newest []corev1.Event }

// RefusalsOf are what events tell. It puts them in order.
func RefusalsOf(events []corev1.Event) Refusals {
	slices.SortFunc(events, func(a, b corev1.Event) int { return told(&b).Compare(told(&a)) })
	return Refusals{newest: events}
}

// OfPod says why a pod of a StatefulSet could not be made, or is empty.
func (r Refusals) OfPod(sts *appsv1.StatefulSet, pod string) string {
	return r.first(func(e *corev1.Event) bool {
		return e.InvolvedObject.UID == sts.UID && strings.Contains(e.Message, "Pod "+pod+" in StatefulSet ")
	})
}

// OfWorkers says why the StatefulSet of a leader's workers could not be made, or is
// empty.
func (r Refusals) OfWorkers(leader *corev1.Pod) string {
	return r.first(func(e *corev1.Event) bool { return e.Related != nil && e.Related.UID == leader.UID })
}

func (r Refusals) first(about func(*corev1.Event) bool) string {
	for i := range r.newest {
		if about(&r.newest[i]) {
			return r.newest[i].Message
		}
	}
	return ""
}

// refusalsIn reads what events tell, unless that was done a moment ago. It is a
// courtesy: where events must not be read, what is missing is told without the reason.
func (s *Surveyor) refusalsIn(ctx context.Context, namespace string, now time.Time) Refusals {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.asked.Add(askedAgainAfter)) {
		return s.refusals
	}
	s.asked = now
	var events corev1.EventList
	if err := s.live.List(ctx, &events, client.InNamespace(namespace), client.MatchingFields{"reason": "FailedCreate"}); err != nil {
		return s.refusals
	}
	s.refusals = RefusalsOf(events.Items)
	return s.refusals
}

// told is when an event was last told, by the old way of telling or the new.
func told(e *corev1.Event) time.Time {
	last := e.EventTime.Time
	if e.LastTimestamp.After(last) {
		last = e.LastTimestamp.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}

// lacks tells whether a set has not got all that it is to have.
func (s *Survey) lacks() bool {
	return s.Set.Set.DeletionTimestamp == nil && s.Standing.Ready < lws.Replicas(s.Set.Set)
}
