package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
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

// unpartitioned lets all groups be rolled.
const unpartitioned = `{"spec":{"rolloutStrategy":{"rollingUpdateConfiguration":{"partition":0}}}}`

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

// readyGroups returns the images of the groups of an incarnation whose pods are all ready and alike, by the labels of
// their indexes.
func (s *scene) readyGroups(set *lwsv1.LeaderWorkerSet) map[string]string {
	count, images := map[string]int32{}, map[string]string{}
	for _, pod := range s.podsOf(set) {
		index := pod.Labels[lwsv1.GroupIndexLabelKey]
		isAlike := images[index] == "" || images[index] == imageOf(pod)
		if drill.PodReady(pod) && s.Root(pod.UID) == set.UID && isAlike {
			count[index]++
			images[index] = imageOf(pod)
		}
	}
	maps.DeleteFunc(images, func(index, _ string) bool { return count[index] != *set.Spec.LeaderWorkerTemplate.Size })
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
	expect.Must(s, fewest >= least, "only %d groups were ready, %d must be", fewest, least)
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

	// Each pod is deleted at most once, by the garbage collector or by Lockstep. Other writes are few.
	count, ended := map[string]int{}, map[string]int{}
	wrote := s.LockstepWrote(since)
	for _, r := range wrote {
		switch {
		case r.Resource == "events":
			count["events"]++
		case r.Code >= http.StatusMultipleChoices:
			count["refused"]++
		case r.Resource == "pods" && r.Verb == "delete":
			if ended[r.Name]++; ended[r.Name] > 1 {
				s.Errorf("pod %s was deleted %d times: %v", r.Name, ended[r.Name], wrote)
			}
		default:
			count["writes"]++
		}
	}
	s.Logf("%v, and %d pods were deleted", count, len(ended))
	expect.That(s, count["writes"] <= 4*groups, "%d writes, at most %d are needed: %v", count["writes"], 4*groups, wrote)
}

func TestRollout(t *testing.T) {
	s := asideScene(t)
	s.rollTen()
	set := s.Set("a")
	s.AwaitEvent("a", "GroupsProgressing", "Delete", "a-10")
	s.AwaitEvent("a", "GroupsUpdating", "Update", "10 groups ready of total 10 groups")
	s.AwaitEvent("a", "GroupsUpdating", "ControllerRevision", "replica")
	for _, event := range s.Events(set, "GroupsProgressing") {
		expect.That(t, !strings.Contains(event.Note, "10 groups ready of total 10 groups"),
			"the set was available, and then not: %s", event.Note)
	}
}

// The partition holds groups back, beside a surge group or without one. The set is Available at rest. A
// group that is lost or fails comes back at the revision of its leader, alone.
func TestPartitionHoldsGroups(t *testing.T) {
	each(t, map[string]int32{"without surge": 0, "with surge": 1}, func(s *scene, surge int32) {
		set := s.settled(s.newSet("a", 4, 2, imageA, budget(1, surge, 2)))
		first := s.revision(set)
		set = s.become(set, pull(imageB))
		half := map[string]string{"0": imageA, "1": imageA, "2": imageB, "3": imageB}
		surgeGroup := map[string]string{"4": imageB}
		if surge == 0 {
			delete(surgeGroup, "4")
		}
		awaitHalf := func() {
			s.Eventually("the groups from the partition on are rolled", func() error {
				have := s.readyGroups(set)
				delete(have, "4")
				return drill.Lacking("groups", fmt.Sprint(half), fmt.Sprint(have))
			})
		}
		awaitHalf()
		s.awaitAvailable(set, metav1.ConditionTrue, 4+surge)
		outlast(s.T)
		maps.Copy(surgeGroup, half)
		same(s.T, "groups at rest", surgeGroup, s.readyGroups(set))
		for _, r := range s.revisions(set) {
			same(s.T, "label of revision "+r.Name, "a", r.Labels[lwsv1.SetNameLabelKey])
		}
		same(s.T, "revisions in use", 2, len(s.revisions(set)))

		held, worker := s.Pod("a-0"), s.Pod("a-0-1")
		s.PatchStatus(held, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
		s.awaitAvailable(set, metav1.ConditionFalse, 3+surge)
		s.Remove(held)
		drill.Another(s.Scene, held)
		drill.Another(s.Scene, worker)
		awaitHalf()
		for _, failing := range []int{1, 3} {
			leader := s.Pod(fmt.Sprintf("a-%d", failing))
			s.Eventually("the group is recorded", func() error { return s.unrecorded(leader.Name) })
			before := s.UIDs()
			s.crash(leader.Name+"-1", 1)
			drill.Another(s.Scene, leader)
			awaitHalf()
			s.wantKept(before, func(name string) bool { return inGroups(set, name, failing, 4) })
		}

		before := s.UIDs()
		s.revisionsDeleted(set, first)
		same(s.T, "pods after the revisions were deleted", before, s.UIDs())
		set = s.become(set, unpartitioned)
		s.awaitRolled(set, 3)
		s.wantKept(before, func(name string) bool { return !inGroups(set, name, 2, 3) })
		if surge > 0 {
			s.AwaitEvent("a", "GroupsUpdating", "ControllerRevision", "Update", "replicas 0 to 1")
			return
		}
		for _, group := range []string{"3", "2", "1", "0"} { // none is taken for another
			s.AwaitEvent("a", "GroupsUpdating", "ControllerRevision", "Update", "replica "+group)
		}
		for _, event := range s.Events(set, "") {
			same(s.T, "field of "+event.Reason, "", event.Regarding.FieldPath)
		}
	})
}

// revisionsDeleted deletes both revisions in mid-rollout. The current one is created again.
func (s *scene) revisionsDeleted(set *lwsv1.LeaderWorkerSet, first *appsv1.ControllerRevision) {
	var second *appsv1.ControllerRevision
	for _, r := range s.revisions(set) {
		if s.Remove(r); r.UID != first.UID {
			second = r
		}
	}
	s.Until("the current revision is created again", func() bool {
		return slices.ContainsFunc(s.revisions(set), func(r *appsv1.ControllerRevision) bool {
			return r.Labels[lwsv1.RevisionKey] == second.Labels[lwsv1.RevisionKey] && r.UID != second.UID
		})
	})
}

// awaitAvailable waits until the status has a value of Available and so many ready groups.
func (s *scene) awaitAvailable(set *lwsv1.LeaderWorkerSet, want metav1.ConditionStatus, ready int32) {
	drill.Await(s.Scene, set.Name, "is Available: "+string(want), func(now *lwsv1.LeaderWorkerSet) error {
		is := meta.IsStatusConditionPresentAndEqual(now.Status.Conditions, string(lwsv1.LeaderWorkerSetAvailable), want)
		return errors.Join(drill.Lacking("condition", true, is), drill.Lacking("ready groups", ready, now.Status.ReadyReplicas),
			drill.Lacking("observedGeneration", set.Generation, now.Status.ObservedGeneration))
	})
}

// missing is a template with an image that no pod runs: the kubelet of this control plane starts any, so its pods load for
// an hour.
const missing = `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"metadata":{"annotations":{"local.lockstep.dev/ready-after":%s}},"spec":{"containers":[
	{"name":"serve","image":%q}]}}}}}`

// TestARolloutFails: an image cannot be pulled. The rollout waits while it is paused, then fails after its deadline, and
// ends once the image is mended.
func TestARolloutFails(t *testing.T) {
	s := asideScene(t)
	const deadline = 20 * time.Second
	set := s.settled(s.newSet("a", 2, 1, imageA, budget(1, 0, 0), annotated(workload.ProgressDeadlineAnnotationKey, deadline.String())))
	s.become(set, fmt.Sprintf(missing, `"1h"`, imageB))
	s.Until("a group has the image", func() bool {
		pod := s.Pod("a-1")
		return pod != nil && imageOf(pod) == imageB && pod.Status.Phase == corev1.PodRunning
	})
	s.says("paused", "pause", "a")
	s.PatchStatus(s.Pod("a-1"), `{"status":{"containerStatuses":[{"name":"serve","image":"x","imageID":"","restartCount":0,"ready":false,
		"state":{"waiting":{"reason":"ImagePullBackOff"}}}]}}`)
	paused := time.Now()
	s.Until("the deadline would be over", func() bool { return time.Since(paused) > deadline+5*time.Second })
	expect.That(s, !meta.IsStatusConditionTrue(s.Set("a").Status.Conditions, "Stalled"), "the clock went on")
	s.says("resumed", "resume", "a")
	_, errOut, err := s.Plugin("", "rollout", "status", "a")
	expect.That(s, err != nil, "rollout status succeeds")
	for _, want := range []string{"ProgressDeadlineExceeded", "1 of 2 groups are ready", "an image that cannot be pulled", "pod a-1"} {
		expect.Says(s, errOut, want, "rollout status")
	}
	for kind, status := range map[string]metav1.ConditionStatus{"Progressing": metav1.ConditionFalse, "Stalled": metav1.ConditionTrue} {
		is := meta.FindStatusCondition(s.Set("a").Status.Conditions, kind)
		expect.That(s, is != nil && is.Status == status && is.Reason == "ProgressDeadlineExceeded", "%s: %+v", kind, is)
	}
	s.AwaitEvent("a", "ProgressDeadlineExceeded", "Wait", "an image that cannot be pulled")
	mended := s.become(s.Set("a"), fmt.Sprintf(missing, "null", imageA))
	s.says("successfully rolled out", "status", "a")
	s.awaitSettled(mended)
	s.Until("it is stalled no longer", func() bool { return meta.FindStatusCondition(s.Set("a").Status.Conditions, "Stalled") == nil })
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
	same(t, "groups that serve", map[string]string{"0": imageA, "1": imageA, "2": imageA}, s.readyGroups(set))

	set = s.become(set, `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"nodeSelector":null}}}}}`)
	s.awaitRolled(set, 3)
	s.wantBorn(set.UID, mark, births{Pods: 4, StatefulSets: 2, Revisions: 1})
	s.Eventually("the broken revision has the label of history, the first one that of those in use", func() error {
		for _, r := range s.revisions(set) {
			key := lwsv1.SetNameLabelKey
			if r.UID != first.UID {
				key = historyLabel
			}
			if r.Labels[key] != "a" || r.Labels[lwsv1.SetNameLabelKey]+r.Labels[historyLabel] != "a" {
				return fmt.Errorf("revision %s has labels %v", r.Name, r.Labels)
			}
		}
		return nil
	})
}

// Node labels of the local control plane: 3 zones, and racks of 4 nodes each.
const (
	zone = "topology.kubernetes.io/zone"
	rack = "local.lockstep.dev/rack"
)

func annotated(key, value string) edit { return fakeapi.Annotation(key, value) }

func partsOf(size int32, policy lwsv1.SubGroupPolicyType) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.SubGroupPolicy = &lwsv1.SubGroupPolicy{SubGroupSize: &size, Type: &policy}
	}
}

// judgeDomains checks that pods with one value of a label share a domain without others.
func (s *scene) judgeDomains(set *lwsv1.LeaderWorkerSet, by, topology string, want int) {
	list := &corev1.NodeList{}
	s.Check("list nodes", s.Client.List(s.Context(), list))
	nodes := map[string]map[string]string{}
	for i := range list.Items {
		nodes[list.Items[i].Name] = list.Items[i].Labels
	}
	domains, inhabitants := map[string]string{}, map[string]string{}
	for _, pod := range s.podsOf(set) {
		who, where := pod.Labels[by], nodes[pod.Spec.NodeName][topology]
		if who == "" || pod.Spec.NodeName == "" {
			continue
		}
		if domains[who] == "" {
			domains[who] = where
		}
		if inhabitants[where] == "" {
			inhabitants[where] = who
		}
		if where == "" || domains[who] != where || inhabitants[where] != who {
			s.Fatalf("pod %s of %s is in %s %q; %s is in %q, and there is %s", pod.Name, who, topology, where, who, domains[who], inhabitants[where])
		}
	}
	expect.Must(s, len(domains) == want, "%d domains, want %d", len(domains), want)
}

func TestExclusiveTopology(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 4, 4, imageA, annotated(lwsv1.ExclusiveKeyAnnotationKey, rack), budget(1, 0, 0)))
	s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, rack, 4)
	s.restartGroup(set, "a-1")
	s.restartGroup(set, "a-3")
	s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, rack, 4)
	set = s.become(set, pull(imageB))
	s.awaitRolled(set, 3)
	s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, rack, 4)
	workers := s.StatefulSet("a-2")
	s.Remove(workers)
	drill.Another(s.Scene, workers)
	s.awaitSettled(set)
	s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, rack, 4)
	l := s.recreate(set, s.newSet("a", 4, 4, imageA, annotated(lwsv1.ExclusiveKeyAnnotationKey, rack)), "Background")
	s.awaitSettled(l.set)
	s.judgeDomains(l.set, lwsv1.GroupUniqueHashLabelKey, rack, 4)
}

// There are five racks: the sixth group has none, and an event of the set says so.
func TestAGroupWithoutADomainIsToldOnTheSet(t *testing.T) {
	s := asideScene(t)
	set := s.newSet("a", 6, 2, imageA, annotated(lwsv1.ExclusiveKeyAnnotationKey, rack))
	s.Create(set)
	s.AwaitEvent("a", "LeaderUnschedulable")
	s.Eventually("the other groups run", func() error { return drill.Lacking("groups ready", 5, len(s.readyGroups(set))) })
	s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, rack, 5)
	s.awaitSettled(s.become(set, `{"spec":{"replicas":5}}`))
}

// copied adds the labels of a running leader to the template.
func copied(set *lwsv1.LeaderWorkerSet) {
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Labels = map[string]string{
		lwsv1.WorkerIndexLabelKey: "0", lwsv1.GroupIndexLabelKey: "0", lwsv1.SubGroupIndexLabelKey: "0",
	}
}

func TestSubgroupTopology(t *testing.T) {
	each(t, map[string]int32{"LeaderWorker": 4, "LeaderExcluded": 5}, func(s *scene, size int32) {
		policy := lwsv1.SubGroupPolicyTypeLeaderWorker
		if size == 5 {
			policy = lwsv1.SubGroupPolicyTypeLeaderExcluded
		}
		set := s.settled(s.newSet("a", 2, size, imageA, copied, partsOf(2, policy), annotated(lwsv1.SubGroupExclusiveKeyAnnotationKey, rack)))
		s.judgeDomains(set, lwsv1.SubGroupUniqueHashLabelKey, rack, 4)
		_, labelled := s.Pod("a-0").Labels[lwsv1.SubGroupIndexLabelKey]
		same(s.T, "the leader is in a subgroup", size == 4, labelled)
		s.restartGroup(set, "a-1")
		s.judgeDomains(set, lwsv1.SubGroupUniqueHashLabelKey, rack, 4)
	})
}

// A changed placement is a new template for the StatefulSet controller. It is rolled out within the
// budget, each pod once.
func TestAChangedPlacementIsRolledOut(t *testing.T) {
	each(t, map[string]int32{"one group away": 0, "with surge": 1}, func(s *scene, surge int32) {
		set := s.settled(s.newSet("a", 2, 2, imageA, annotated(lwsv1.ExclusiveKeyAnnotationKey, zone), budget(1-surge, surge, 0)))
		s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, zone, 2)
		before, mark := s.StatefulSet(set.Name), s.Changes()
		s.Patch(set, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, lwsv1.ExclusiveKeyAnnotationKey, rack))
		fewest := 2
		s.Eventually("every group is placed by rack", func() error {
			fewest = min(fewest, len(s.readyGroups(set)))
			for _, pod := range s.podsOf(set) {
				if pod.Annotations[lwsv1.ExclusiveKeyAnnotationKey] != rack {
					return fmt.Errorf("pod %s is not", pod.Name)
				}
			}
			return s.unsettled(set)
		})
		same(s.T, "fewest groups ready", 1+int(surge), fewest)
		same(s.T, "created", births{Pods: 4 + 2*int(surge), StatefulSets: 2 + int(surge)}, s.bornInto(set.UID, mark))
		s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, rack, 2)
		if after := s.StatefulSet(set.Name); after.Generation > before.Generation+5 { // the template, two groups, surge that goes
			s.Errorf("the leader StatefulSet was written %d times", after.Generation-before.Generation)
		}
	})
}

// A node that lost its label gives workers no domain. No other test runs meanwhile.
func TestANodeWithoutTheLabelIsToldOnTheSet(t *testing.T) {
	s := newScene(t)
	exclusive := annotated(lwsv1.ExclusiveKeyAnnotationKey, rack)
	set := s.settled(s.newSet("a", 1, 2, imageA, exclusive, fakeapi.Policy(lwsv1.NoneRestartPolicy)))
	leader := s.Pod("a-0")
	node := &corev1.Node{}
	s.Check("read the node", s.Client.Get(t.Context(), client.ObjectKey{Name: leader.Spec.NodeName}, node))
	here := node.Labels[rack]
	back := drill.Merge(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, rack, here))
	s.Patch(node, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, rack))
	t.Cleanup(func() { must(t, bed.Client.Patch(context.Background(), node.DeepCopy(), back)) })
	workers := s.StatefulSet("a-0")
	s.Remove(workers)
	s.AwaitEvent("a", "TopologyUnknown")
	s.Check("label the node", s.Client.Patch(t.Context(), node.DeepCopy(), back))
	s.awaitSettled(set)
}
