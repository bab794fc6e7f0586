package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// historyLabel is the label of revisions that no group runs.
const historyLabel = "lockstep.dev/history-of"

func budget(unavailable, surge, partition int32) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{
			Partition: &partition, MaxUnavailable: intstr.FromInt32(unavailable), MaxSurge: intstr.FromInt32(surge),
		}
	}
}

// stuck gives the pods a node that does not exist.
const stuck = `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"nodeSelector":{"nowhere":"yes"}}}}}}`

func pull(image string) string {
	return fmt.Sprintf(`{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"containers":[{"name":"serve","image":%q}]}}}}}`, image)
}

// become patches a set and returns the result.
func (s *scene) become(set *lwsv1.LeaderWorkerSet, document string) *lwsv1.LeaderWorkerSet {
	s.Patch(set, document)
	var now *lwsv1.LeaderWorkerSet
	s.Until("the change is seen", func() bool {
		now = s.Set(set.Name)
		return now != nil && now.Generation > set.Generation
	})
	return now
}

// readyGroups returns the images of the groups whose pods are all ready and alike.
func (s *scene) readyGroups(set *lwsv1.LeaderWorkerSet) map[int]string {
	size := int(*set.Spec.LeaderWorkerTemplate.Size)
	count, images := map[int]int{}, map[int]string{}
	for _, pod := range s.podsOf(set) {
		var index int
		if _, err := fmt.Sscan(pod.Labels[lwsv1.GroupIndexLabelKey], &index); err == nil && drill.PodReady(pod) && (images[index] == "" || images[index] == imageOf(pod)) {
			count[index]++
			images[index] = imageOf(pod)
		}
	}
	for index := range images {
		if count[index] != size {
			delete(images, index)
		}
	}
	return images
}

// awaitRolled waits until a set is settled, and checks with every change that enough groups are ready.
func (s *scene) awaitRolled(set *lwsv1.LeaderWorkerSet, least int) {
	fewest := len(s.readyGroups(set))
	s.Eventually("set "+set.Name+" is rolled", func() error {
		fewest = min(fewest, len(s.readyGroups(set)))
		return s.unsettled(set)
	})
	s.Logf("never fewer than %d groups were ready", fewest)
	if fewest < least {
		s.Fatalf("only %d groups were ready, %d must be", fewest, least)
	}
}

func (s *scene) rollTen() {
	set := s.newSet("a", 0, groupSize, imageA, budget(3, 1, 0))
	s.Create(set)
	s.Eventually("what is made from now on is younger than the set", func() error {
		return drill.Lacking("another second than the set's", true, time.Now().Unix() > set.CreationTimestamp.Unix())
	})
	set = s.awaitSettled(s.become(set, fmt.Sprintf(`{"spec":{"replicas":%d}}`, groups)))
	mark, since := s.Changes(), bed.Position()
	set = s.become(set, pull(imageB))
	s.awaitRolled(set, groups-3)
	s.wantBorn(set.UID, mark, births{Pods: allPods + groupSize, StatefulSets: groups + 1, Revisions: 1})
	s.wroteLittle(s.LockstepWrote(since), 4*groups)
}

// wroteLittle checks the number of writes, without events, refused ones and deletions of pods. Each pod
// is deleted at most once, by the garbage collector or by Lockstep.
func (s *scene) wroteLittle(wrote []drill.Request, most int) {
	count, ended := map[string]int{}, map[string]int{}
	for _, r := range wrote {
		switch {
		case r.Resource == "events":
			count["events"]++
		case r.Code >= http.StatusMultipleChoices:
			count["refused"]++
		case r.Resource == "pods" && r.Verb == "delete":
			ended[r.Name]++
		default:
			count["writes"]++
		}
	}
	s.Logf("%v, and %d pods were deleted", count, len(ended))
	if count["writes"] > most {
		s.Errorf("%d writes, at most %d are needed: %v", count["writes"], most, wrote)
	}
	for name, times := range ended {
		if times > 1 {
			s.Errorf("pod %s was deleted %d times: %v", name, times, wrote)
		}
	}
}

func TestRollout(t *testing.T) {
	s := asideScene(t)
	s.rollTen()
	set := s.Set("a")
	s.AwaitEvent("a", "GroupsProgressing", "Delete", "a-10")
	s.AwaitEvent("a", "GroupsUpdating", "Update", "10 groups ready of total 10 groups")
	s.AwaitEvent("a", "GroupsUpdating", "ControllerRevision", "replica")
	for _, event := range s.events(set, "GroupsProgressing") {
		if strings.Contains(event.Note, "10 groups ready of total 10 groups") {
			t.Errorf("the set was available, and then not: %s", event.Note)
		}
	}
}

// Without maxUnavailable in the API, the StatefulSet controller replaces one leader at a time.
func TestRolloutWithoutMaxUnavailable(t *testing.T) {
	gate := func(value string) error {
		flags := []string{"--feature-gates", "MaxUnavailableStatefulSet=" + value}
		return errors.Join(bed.Plane.Restart(apiServer, flags...), bed.Plane.Restart(controllerManager, flags...),
			bed.Plane.Restart(scheduler))
	}
	if err := gate("false"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := gate("true"); err != nil {
			t.Error(err)
		}
	})
	s := newScene(t)
	s.rollTen()
	sts := s.StatefulSet("a")
	if kept := sts.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable; kept != nil {
		t.Fatalf("invalid run: the server keeps maxUnavailable %s", kept)
	}
}

func TestPartitionHoldsGroups(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 4, 2, imageA, budget(1, 0, 2)))
	set = s.become(set, pull(imageB))
	half := map[int]string{0: imageA, 1: imageA, 2: imageB, 3: imageB}
	s.awaitImages(set, half)
	outlast(t)
	same(t, "groups", half, s.readyGroups(set))
	for _, r := range s.revisions(set) {
		same(t, "label of revision "+r.Name, "a", r.Labels[lwsv1.SetNameLabelKey])
	}
	same(t, "revisions in use", 2, len(s.revisions(set)))

	// A group below it that is lost comes back as it was, with its workers.
	held := s.Pod("a-1")
	s.Remove(held)
	drill.Another(s.Scene, held)
	s.awaitImages(set, half)
	set = s.become(set, `{"spec":{"rolloutStrategy":{"rollingUpdateConfiguration":{"partition":0}}}}`)
	s.awaitRolled(set, 3)
	for _, group := range []string{"3", "2", "1", "0"} { // none is taken for another
		s.AwaitEvent("a", "GroupsUpdating", "ControllerRevision", "Update", "replica "+group)
	}
}

// A template that never becomes ready costs the budget only. Going back needs no new revision.
func TestBrokenTemplateUndone(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 4, 2, imageA, budget(1, 0, 0)))
	first, mark := s.revision(set), s.Changes()
	set = s.become(set, stuck)
	s.Until("group 3 is stuck at the broken template", func() bool {
		pod := s.Pod("a-3")
		return pod != nil && pod.Spec.NodeSelector["nowhere"] != ""
	})
	outlast(t)
	same(t, "groups that serve", map[int]string{0: imageA, 1: imageA, 2: imageA}, s.readyGroups(set))

	set = s.become(set, `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"nodeSelector":null}}}}}`)
	s.awaitRolled(set, 3)
	s.wantBorn(set.UID, mark, births{Pods: 4, StatefulSets: 2, Revisions: 1})
	s.Eventually("the broken revision is history, and the first one is in use", func() error {
		return s.unfiled(set, first)
	})
}

// unfiled is an error unless the current revision has the label of those in use, and the others that of
// history.
func (s *scene) unfiled(set *lwsv1.LeaderWorkerSet, current *appsv1.ControllerRevision) error {
	for _, r := range s.revisions(set) {
		key := lwsv1.SetNameLabelKey
		if r.UID != current.UID {
			key = historyLabel
		}
		if r.Labels[key] != "a" || r.Labels[lwsv1.SetNameLabelKey]+r.Labels[historyLabel] != "a" {
			return fmt.Errorf("revision %s has labels %v", r.Name, r.Labels)
		}
	}
	return nil
}

// A surge group stays while the partition holds groups back. The set is Available with it, and not
// without a wanted group.
func TestCanaryAtRestIsAvailable(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 3, 2, imageA, budget(1, 1, 2)))
	set = s.become(set, pull(imageB))
	available := func(want metav1.ConditionStatus, ready int32) func() error {
		return func() error {
			now := s.Set("a")
			have := meta.FindStatusCondition(now.Status.Conditions, string(lwsv1.LeaderWorkerSetAvailable))
			if have == nil || have.Status != want || now.Status.ObservedGeneration != set.Generation || now.Status.ReadyReplicas != ready {
				return fmt.Errorf("have %+v with %d ready groups", have, now.Status.ReadyReplicas)
			}
			return nil
		}
	}
	s.Eventually("the canary is Available beside a surge group", available(metav1.ConditionTrue, 4))
	same(t, "groups", map[int]string{0: imageA, 1: imageA, 2: imageB, 3: imageB}, s.readyGroups(set))

	wanted := s.Pod("a-0")
	s.Check("make group 0 unready", s.Client.Status().Patch(s.Context(), wanted.DeepCopy(),
		drill.Merge(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)))
	s.Eventually("the set is not Available with group 0 down", available(metav1.ConditionFalse, 3))
}
