package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// finalizer keeps a pod from leaving.
const finalizer = "test.lockstep.dev/stays"

// followWithin bounds how long after the stuck pod's departure its group may take.
const followWithin = 2 * time.Second

// What users are told while an old life is in the way, and when it no longer is.
const (
	waiting = "WaitingForPreviousIncarnation"
	gone    = "PreviousIncarnationGone"
)

// An old worker holds back the workers of its own group; its leader is there.
func TestStuckWorkerHoldsBackItsOwnGroupOnly(t *testing.T) {
	for range faultRounds(t) {
		stuckPod(newScene(t), "a-3-2", 3, 1)
	}
}

// An old leader holds back the whole of its own group.
func TestStuckLeaderHoldsBackItsOwnGroupOnly(t *testing.T) {
	for range faultRounds(t) {
		stuckPod(newScene(t), "a-4", 4, 0)
	}
}

// The first ordinal is where the StatefulSet controller begins.
func TestStuckFirstLeaderHoldsBackItsOwnGroupOnly(t *testing.T) {
	for range faultRounds(t) {
		stuckPod(newScene(t), "a-0", 0, 0)
	}
}

// stuckPod deletes and creates a set one old pod of which does not leave. there
// is how many pods of the group at index exist all the same.
func stuckPod(s *scene, name string, index, there int) {
	s.Helper()
	old, _ := s.firstLife(groups, groupSize)
	pod, _ := find[*corev1.Pod](s.recorder, name)
	s.patch(pod, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, finalizer))
	l := s.recreate(old, s.newSet("a", groups, groupSize, imageB), metav1.DeletePropagationBackground)

	for i := range groups {
		if i != index {
			s.awaitGroupReady(l.set, i)
		}
	}
	s.Logf("the other groups are ready after %.2fs", time.Since(l.began).Seconds())
	s.eventually("the condition names the pod", func() error { return s.unnamed(l.set, name) })
	s.check("the end of waiting is not told", lacking("events for "+gone, 0, len(s.events(l.set, gone))))
	want := allPods - groupSize + there
	s.eventually("there is all that does not wait", func() error {
		return lacking("as many pods", true, s.bornInto(l.set.UID, l.mark).Pods >= want)
	})
	if have := s.bornInto(l.set.UID, l.mark).Pods; have != want {
		s.dump()
		s.Fatalf("pods created beside the stuck one: want %d, have %d", want, have)
	}

	began := time.Now()
	s.patch(pod, `{"metadata":{"finalizers":null}}`)
	s.awaitGroupReady(l.set, index)
	took := time.Since(began)
	s.Logf("group %d follows after %.2fs", index, took.Seconds())
	if soak() && took > followWithin {
		s.Errorf("group %d follows %v after pod %s left: want at most %v", index, took, name, followWithin)
	}
	now := s.awaitSettled(l.set)
	s.judge(l, wholeLife)
	s.eventually("the end of waiting is told", func() error {
		return lacking("some events for "+gone, true, len(s.events(l.set, gone)) > 0)
	})
	s.check("waiting began once and ended once", s.toldOnce(l.set, waiting, gone))
	s.end(now, metav1.DeletePropagationBackground)
}

// unnamed is an error unless the set says that it waits for an object, and that
// the other groups are ready.
func (s *scene) unnamed(want *lwsv1.LeaderWorkerSet, object string) error {
	set, ok := find[*lwsv1.LeaderWorkerSet](s.recorder, want.Name)
	if !ok {
		return errors.New("the set is not there")
	}
	if err := holds(set, lwsv1.LeaderWorkerSetProgressing, waiting); err != nil {
		return err
	}
	for _, c := range set.Status.Conditions {
		if c.Reason == waiting && !mentions(c.Message, object) {
			return fmt.Errorf("the message does not name %s: %s", object, c.Message)
		}
	}
	return lacking("ready groups", groups-1, int(set.Status.ReadyReplicas))
}

// mentions tells whether a text names an object, and not only one whose name is
// longer.
func mentions(text, name string) bool {
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,:;\"()", r) }), name)
}

// toldOnce is an error unless there was exactly one event about a life of a set
// for each of the reasons.
func (s *scene) toldOnce(set *lwsv1.LeaderWorkerSet, reasons ...string) error {
	for _, reason := range reasons {
		if found := s.events(set, reason); len(found) != 1 || found[0].Series != nil {
			return fmt.Errorf("events for %s: want 1, have %v", reason, notes(found))
		}
	}
	return nil
}

// events returns what was told about one life of a set, for a reason if given.
func (s *scene) events(set *lwsv1.LeaderWorkerSet, reason string) []*eventsv1.Event {
	return slices.DeleteFunc(live[*eventsv1.Event](s.recorder), func(e *eventsv1.Event) bool {
		return e.Regarding.UID != set.UID || (reason != "" && e.Reason != reason)
	})
}

func notes(events []*eventsv1.Event) []string {
	var found []string
	for _, e := range events {
		found = append(found, e.Note)
	}
	return found
}

// After a minute users are warned, with what holds the pod, and what frees it.
func TestStuckPodIsReportedAfterAMinute(t *testing.T) {
	aside(t)
	s := newScene(t)
	old, _ := s.firstLife(2, 2)
	pod, _ := find[*corev1.Pod](s.recorder, "a-1-1")
	s.patch(pod, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, finalizer))
	l := s.recreate(old, s.newSet("a", 2, 2, imageB), metav1.DeletePropagationBackground)

	s.eventually("a warning names the pod and its finalizer", func() error {
		for _, e := range s.events(l.set, "") {
			if e.Type == corev1.EventTypeWarning && mentions(e.Note, "a-1-1") && mentions(e.Note, finalizer) {
				return nil
			}
		}
		return fmt.Errorf("events: %v", notes(s.events(l.set, "")))
	})
	s.eventually("the condition names the pod and its finalizer", func() error {
		set, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
		for _, c := range set.Status.Conditions {
			if c.Reason == waiting && mentions(c.Message, "a-1-1") && mentions(c.Message, finalizer) {
				return nil
			}
		}
		return fmt.Errorf("conditions: %+v", set.Status.Conditions)
	})
	if still, ok := find[*corev1.Pod](s.recorder, "a-1-1"); !ok || still.UID != pod.UID {
		t.Fatal("the stuck pod was forced out")
	}
	s.patch(pod, `{"metadata":{"finalizers":null}}`)
	s.awaitSettled(l.set)
	s.judge(l, births{Pods: 4, StatefulSets: 3, Services: 1, Revisions: 1})
}
