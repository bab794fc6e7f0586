package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Reasons of events and conditions while a previous object has a name, and after it.
const (
	waiting = "WaitingForPreviousIncarnation"
	gone    = "PreviousIncarnationGone"
)

const noFinalizers = `{"metadata":{"finalizers":null}}`

// keep adds a finalizer to a pod and returns the pod.
func (s *scene) keep(name string) *corev1.Pod {
	s.Helper()
	pod, _ := find[*corev1.Pod](s.recorder, name)
	s.patch(pod, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, foreign))
	return pod
}

// A previous worker holds back the workers of its own group. The leader of the group is there.
func TestStuckWorkerHoldsBackItsOwnGroupOnly(t *testing.T) { stuckPod(t, "a-3-2", 3, 1) }

// A previous leader holds back its own group.
func TestStuckLeaderHoldsBackItsOwnGroupOnly(t *testing.T) { stuckPod(t, "a-4", 4, 0) }

// The StatefulSet controller begins with the first ordinal.
func TestStuckFirstLeaderHoldsBackItsOwnGroupOnly(t *testing.T) { stuckPod(t, "a-0", 0, 0) }

// stuckPod deletes and creates a set while one previous pod stays. The group at index has so many
// pods all the same.
func stuckPod(t *testing.T, name string, index, there int) {
	for range faultRounds(t) {
		s := newScene(t)
		old := s.firstLife(groups, groupSize)
		pod := s.keep(name)
		l := s.recreate(old, s.newSet("a", groups, groupSize, imageB), metav1.DeletePropagationBackground)
		for i := range groups {
			if i != index {
				s.awaitGroupReady(l.set, i)
			}
		}
		s.eventually("the condition names the pod", func() error { return s.unnamed(l.set, name) })
		s.check("events of the end", lacking(gone, 0, len(s.events(l.set, gone))))
		want := allPods - groupSize + there
		s.eventually("all other pods are there", func() error {
			return lacking("enough pods", true, s.bornInto(l.set.UID, l.mark).Pods >= want)
		})
		s.check("pods beside the stuck one", lacking("pods", want, s.bornInto(l.set.UID, l.mark).Pods))

		s.patch(pod, noFinalizers)
		s.awaitGroupReady(l.set, index)
		now := s.awaitSettled(l.set)
		s.judge(l, wholeLife)
		s.eventually("each reason has one event", func() error { return s.toldOnce(l.set, waiting, gone) })
		s.end(now, metav1.DeletePropagationBackground)
	}
}

// unnamed is an error unless the condition names an object that the set waits for, and all other
// groups are ready.
func (s *scene) unnamed(want *lwsv1.LeaderWorkerSet, objects ...string) error {
	set, ok := find[*lwsv1.LeaderWorkerSet](s.recorder, want.Name)
	if !ok {
		return errStill
	}
	if err := holds(set, lwsv1.LeaderWorkerSetProgressing, waiting); err != nil {
		return err
	}
	for _, c := range set.Status.Conditions {
		for _, object := range objects {
			if c.Reason == waiting && !mentions(c.Message, object) {
				return fmt.Errorf("the message does not name %s: %s", object, c.Message)
			}
		}
	}
	return lacking("ready groups", *want.Spec.Replicas-1, set.Status.ReadyReplicas)
}

// mentions reports whether a text has a name as a word of its own.
func mentions(text, name string) bool {
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,:;\"()", r) }), name)
}

// toldOnce is an error unless a set has exactly one event for each reason.
func (s *scene) toldOnce(set *lwsv1.LeaderWorkerSet, reasons ...string) error {
	for _, reason := range reasons {
		if found := s.events(set, reason); len(found) != 1 || found[0].Series != nil {
			return fmt.Errorf("events for %s: want 1, have %v", reason, found)
		}
	}
	return nil
}

// events returns the events of a set, of one reason if it is not empty.
func (s *scene) events(set *lwsv1.LeaderWorkerSet, reason string) []*eventsv1.Event {
	return slices.DeleteFunc(live[*eventsv1.Event](s.recorder), func(e *eventsv1.Event) bool {
		return e.Regarding.UID != set.UID || (reason != "" && e.Reason != reason)
	})
}

// After a minute a warning and the condition name the pod and its finalizer.
func TestStuckPodIsReportedAfterAMinute(t *testing.T) {
	s := asideScene(t)
	old := s.firstLife(2, 2)
	pod := s.keep("a-1-1")
	l := s.recreate(old, s.newSet("a", 2, 2, imageB), metav1.DeletePropagationBackground)
	s.eventually("a warning names the pod and its finalizer", func() error {
		for _, e := range s.events(l.set, "") {
			if e.Type == corev1.EventTypeWarning && mentions(e.Note, "a-1-1") && mentions(e.Note, foreign) {
				return nil
			}
		}
		return fmt.Errorf("events: %v", s.events(l.set, ""))
	})
	s.eventually("so does the condition", func() error { return s.unnamed(l.set, "a-1-1", foreign) })
	if still, ok := find[*corev1.Pod](s.recorder, "a-1-1"); !ok || still.UID != pod.UID {
		t.Fatal("the stuck pod was deleted by force")
	}
	s.patch(pod, noFinalizers)
	s.awaitSettled(l.set)
	s.judge(l, births{Pods: 4, StatefulSets: 3, Services: 1, Revisions: 1})
}
