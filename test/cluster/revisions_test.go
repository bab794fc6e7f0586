package cluster

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Revisions that are deleted in mid-rollout restart no pod: the current one is created
// again under its key.
func TestDeletedRevisionsRestartNoPod(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.newSet("a", 2, 2, imageA, budget(1, 0, 1))
	s.create(set)
	set = s.awaitSettled(set)
	first := s.revision(set)
	set = s.become(set, pull(imageB))
	s.awaitImages(set, map[int]string{0: imageA, 1: imageB})
	second := s.revisionBeside(set, first)
	// Deleted in mid-rollout, both: the one that the spec says is made anew.
	before := s.uids()
	s.remove(first.DeepCopy())
	s.remove(second.DeepCopy())
	s.eventually("the second revision is made anew", func() error {
		for _, now := range live[*appsv1.ControllerRevision](s.recorder) {
			if metav1.IsControlledBy(now, set) && now.UID != second.UID && now.Labels[lwsv1.RevisionKey] == second.Labels[lwsv1.RevisionKey] {
				return nil
			}
		}
		return errStill
	})
	same(t, "pods", before, s.uids())
	set = s.become(set, `{"spec":{"rolloutStrategy":{"rollingUpdateConfiguration":{"partition":0}}}}`)
	set = s.awaitSettled(set)
	s.awaitImages(set, map[int]string{0: imageB, 1: imageB})
	for _, name := range []string{"a-1", "a-1-1"} {
		if s.uids()[name] != before[name] {
			t.Errorf("pod %s is another one", name)
		}
	}
}

func (s *scene) awaitImages(set *lwsv1.LeaderWorkerSet, want map[int]string) {
	s.Helper()
	s.eventually(fmt.Sprintf("the groups run %v", want), func() error {
		if have := s.readyGroups(set); fmt.Sprint(have) != fmt.Sprint(want) {
			return fmt.Errorf("have %v", have)
		}
		return nil
	})
}

// revisionBeside is a set's revision that is not the given one.
func (s *scene) revisionBeside(set *lwsv1.LeaderWorkerSet, other *appsv1.ControllerRevision) *appsv1.ControllerRevision {
	s.Helper()
	for _, revision := range live[*appsv1.ControllerRevision](s.recorder) {
		if metav1.IsControlledBy(revision, set) && revision.UID != other.UID {
			return revision
		}
	}
	s.Fatalf("set %s has no revision but %s", set.Name, other.Name)
	return nil
}
