package cluster

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "k8s.io/api/apps/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// A set that is in step costs no write, whatever changes beside it.
func TestSettledSetIsNotWritten(t *testing.T) {
	aside(t)
	s := newScene(t)
	s.restful(s.newSet("a", 3, 3, imageA, uniquePerReplica))
	s.restful(s.newSet("b", 2, 1, imageA))
	since := bed.audit.position()
	for round := range 3 {
		s.touchEverything(fmt.Sprint(round))
		outlast(t)
	}
	s.silent(since)
}

// restful creates a set and waits until nothing more is to be said about it:
// counts may be written a little later than conditions.
func (s *scene) restful(set *lwsv1.LeaderWorkerSet) *lwsv1.LeaderWorkerSet {
	s.Helper()
	s.create(set)
	now := s.awaitSettled(set)
	outlast(s.T)
	return now
}

// touchEverything changes something that means nothing on every child.
func (s *scene) touchEverything(value string) {
	s.Helper()
	document := fmt.Sprintf(`{"metadata":{"annotations":{"test.lockstep.dev/touched":%q}}}`, value)
	for _, o := range live[*corev1.Pod](s.recorder) {
		s.patch(o, document)
	}
	for _, o := range live[*appsv1.StatefulSet](s.recorder) {
		s.patch(o, document)
	}
	for _, o := range live[*corev1.Service](s.recorder) {
		s.patch(o, document)
	}
}

// outlast returns when the operator has brought a set of its own up and seen it
// go: what happened before has reached it, and what it had to do is done.
func outlast(t *testing.T) {
	t.Helper()
	s := newScene(t)
	set := s.newSet("canary", 1, 2, imageA)
	s.create(set)
	s.awaitSettled(set)
	s.remove(set.DeepCopy())
	s.awaitNothing(set.UID)
}

// silent checks that the operator wrote nothing in the scene since a position.
func (s *scene) silent(since int) {
	s.Helper()
	if wrote := s.lockstepWrote(since); len(wrote) > 0 {
		s.dump()
		s.Fatalf("lockstep wrote though nothing had changed: %v", wrote)
	}
}

// A start of the operator is no reason to write, nor to replace anything.
func TestRestartedOperatorWritesNothing(t *testing.T) {
	s := newScene(t)
	s.restful(s.newSet("a", 3, 3, imageA))
	s.check("read the audit log", bed.audit.sync())
	since, mark := bed.audit.position(), s.changes()
	s.check("restart the operator", errors.Join(bed.operator.kill(), bed.operator.start()))
	outlast(t)
	s.silent(since)
	if made := s.pick(func(r *record) bool { return r.born > mark }); len(made) > 0 {
		s.dump()
		t.Fatalf("created: %s", names(made))
	}
}

// A namespace without a set is none of the operator's business, even if it holds
// objects that look like a set's.
func TestNamespaceWithoutSetIsNotWritten(t *testing.T) {
	aside(t)
	s := newScene(t)
	sts := foreignStatefulSet("a")
	sts.Labels = map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.RevisionKey: "x"}
	s.squat(sts)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a-0",
		Labels:      map[string]string{lwsv1.SetNameLabelKey: "a", lwsv1.WorkerIndexLabelKey: "0"},
		Annotations: map[string]string{lwsv1.SizeAnnotationKey: "2"},
	}, Spec: template(imageA).Spec}
	s.squat(pod)
	s.remove(pod.DeepCopy(), client.GracePeriodSeconds(0))
	outlast(t)
	s.silent(s.audited)
}

// errStill says that something is still there.
var errStill = errors.New("still there")
