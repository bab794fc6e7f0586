package cluster

import (
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// spoilt are what somebody may do to the labels of a revision, by hand.
var spoilt = []string{
	fmt.Sprintf(`{%q:null}`, lwsv1.SetNameLabelKey),
	fmt.Sprintf(`{%q:null}`, lwsv1.RevisionKey),
	fmt.Sprintf(`{%q:"other"}`, lwsv1.RevisionKey),
	fmt.Sprintf(`{%q:"other"}`, lwsv1.SetNameLabelKey),
	fmt.Sprintf(`{%q:null,%q:null}`, lwsv1.SetNameLabelKey, lwsv1.RevisionKey),
}

// Whatever is done by hand to the revisions of a set in mid-rollout, they are found
// again or made anew, groups are mended as they were, and no other is restarted.
func TestRevisionsAreFoundWhateverIsDoneToThem(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.newSet("a", 2, 2, imageA, budget(1, 0, 1))
	s.create(set)
	set = s.awaitSettled(set)
	first := s.revision(set)
	set = s.become(set, pull(imageB))
	s.awaitImages(set, map[int]string{0: imageA, 1: imageB})
	second := s.revisionBeside(set, first)
	mark, before := s.changes(), s.uids()
	for _, revision := range []*appsv1.ControllerRevision{first, second} {
		for _, labels := range spoilt {
			s.patch(revision, `{"metadata":{"labels":`+labels+`}}`)
			s.eventually("revision "+revision.Name+" has its labels again after "+labels, func() error { return s.mislabelled(revision) })
		}
		patched := client.RawPatch(types.MergePatchType, []byte(`{"data":{"spec":null}}`))
		if err := s.client.Patch(s.Context(), revision.DeepCopy(), patched); !apierrors.IsInvalid(err) {
			t.Errorf("what revision %s says was edited: %v", revision.Name, err)
		}
	}
	same(t, "pods", before, s.uids())
	same(t, "created", births{}, s.bornInto(set.UID, mark))

	// A group of the first one comes back as it was, though nobody shows its revision.
	s.patch(first, `{"metadata":{"labels":`+spoilt[4]+`}}`)
	held, _ := find[*corev1.Pod](s.recorder, "a-0")
	s.remove(held.DeepCopy())
	s.eventually("group 0 is another", func() error {
		if now, _ := find[*corev1.Pod](s.recorder, "a-0"); now == nil || now.UID == held.UID {
			return errStill
		}
		return nil
	})
	s.awaitImages(set, map[int]string{0: imageA, 1: imageB})

	// Deleted in mid-rollout, both: the one that the spec says is made anew.
	before = s.uids()
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

// mislabelled says how a revision differs from what it was.
func (s *scene) mislabelled(was *appsv1.ControllerRevision) error {
	now := &appsv1.ControllerRevision{}
	if err := s.client.Get(s.Context(), client.ObjectKeyFromObject(was), now); err != nil {
		return err
	}
	if now.UID != was.UID {
		return errors.New("it is another")
	}
	if fmt.Sprint(now.Labels) != fmt.Sprint(was.Labels) {
		return fmt.Errorf("it has %v", now.Labels)
	}
	return nil
}
