package cluster

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// Revisions that are deleted in mid-rollout restart no pod. The current one is created again.
func TestDeletedRevisionsRestartNoPod(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 2, 2, imageA, budget(1, 0, 1)))
	first := s.revision(set)
	set = s.become(set, pull(imageB))
	s.awaitImages(set, map[int]string{0: imageA, 1: imageB})
	i := slices.IndexFunc(s.revisions(set), func(r *appsv1.ControllerRevision) bool { return r.UID != first.UID })
	second := s.revisions(set)[i]
	// Deleted in mid-rollout, both: the one that the spec says is made anew.
	before := s.UIDs()
	s.Remove(first)
	s.Remove(second)
	s.Eventually("the current revision is created again", func() error {
		key := second.Labels[lwsv1.RevisionKey]
		if !slices.ContainsFunc(s.revisions(set), func(r *appsv1.ControllerRevision) bool {
			return r.Labels[lwsv1.RevisionKey] == key && r.UID != second.UID
		}) {
			return drill.ErrStill
		}
		return nil
	})
	same(t, "pods", before, s.UIDs())
	set = s.become(set, `{"spec":{"rolloutStrategy":{"rollingUpdateConfiguration":{"partition":0}}}}`)
	set = s.awaitSettled(set)
	s.awaitImages(set, map[int]string{0: imageB, 1: imageB})
	for _, name := range []string{"a-1", "a-1-1"} {
		if s.UIDs()[name] != before[name] {
			t.Errorf("pod %s is another one", name)
		}
	}
}

func (s *scene) awaitImages(set *lwsv1.LeaderWorkerSet, want map[int]string) {
	s.Eventually(fmt.Sprintf("the groups run %v", want), func() error {
		if have := s.readyGroups(set); fmt.Sprint(have) != fmt.Sprint(want) {
			return fmt.Errorf("have %v", have)
		}
		return nil
	})
}
