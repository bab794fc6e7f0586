package cluster

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// A settled set costs no write, whatever changes beside it.
func TestSettledSetIsNotWritten(t *testing.T) {
	s := asideScene(t)
	s.restful(s.newSet("a", 3, 3, imageA, uniquePerReplica))
	s.restful(s.newSet("b", 2, 1, imageA))
	since := bed.Position()
	for round := range 3 {
		s.touchEverything(fmt.Sprint(round))
		outlast(t)
	}
	s.silent(since)
}

// restful creates a set and waits until no write is left. Counts may be written after conditions.
func (s *scene) restful(set *lwsv1.LeaderWorkerSet) *lwsv1.LeaderWorkerSet {
	s.Create(set)
	now := s.awaitSettled(set)
	outlast(s.T)
	return now
}

// touchEverything changes an annotation without meaning on every child.
func (s *scene) touchEverything(value string) {
	document := fmt.Sprintf(`{"metadata":{"annotations":{"test.lockstep.dev/touched":%q}}}`, value)
	for _, o := range s.Pods() {
		s.Patch(o, document)
	}
	for _, o := range s.StatefulSets() {
		s.Patch(o, document)
	}
	for _, o := range drill.Live[*corev1.Service](s.Recorder) {
		s.Patch(o, document)
	}
}

// outlast returns when the operator has handled a set that was created now, and so all earlier events.
func outlast(t *testing.T) {
	t.Helper()
	s := newScene(t)
	set := s.settled(s.newSet("canary", 1, 2, imageA))
	s.Remove(set)
	s.awaitNothing(set.UID)
}

// silent checks that the operator wrote nothing in the scene since a position.
func (s *scene) silent(since int) {
	if wrote := s.LockstepWrote(since); len(wrote) > 0 {
		s.Fatalf("lockstep wrote though nothing had changed: %v", wrote)
	}
}

// The operator does not write in a namespace without a set, even to objects with a set's labels.
func TestNamespaceWithoutSetIsNotWritten(t *testing.T) {
	s := asideScene(t)
	sts := foreignStatefulSet("a")
	sts.Labels = map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.RevisionKey: "x"}
	s.squat(sts)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a-0",
		Labels:      map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.WorkerIndexLabelKey: "0"},
		Annotations: map[string]string{lwsv1.SizeAnnotationKey: "2"},
	}, Spec: template(imageA).Spec}
	s.squat(pod)
	s.Remove(pod, force)
	outlast(t)
	s.silent(s.Audited)
}
