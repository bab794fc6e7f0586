package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// crashed is what a kubelet tells of a pod whose container ran out of memory and
// was started again.
const crashed = `{"status":{"containerStatuses":[{"name":"serve","image":"x","imageID":"","restartCount":%d,"ready":true,"started":true,
"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}},
"lastState":{"terminated":{"exitCode":137,"reason":"OOMKilled","message":"loading shard 7\nno memory left"}}}]}}`

func restartPolicy(policy lwsv1.RestartPolicyType) edit {
	return func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.RestartPolicy = policy }
}

// crash has a container of a pod restart for the n-th time.
func (s *scene) crash(name string, n int) {
	s.Helper()
	pod, ok := find[*corev1.Pod](s.recorder, name)
	if !ok {
		s.Fatalf("no pod %s to crash", name)
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, crashed, n))
	if err := s.client.Status().Patch(s.Context(), pod.DeepCopy(), patch); err != nil {
		s.Fatalf("crash pod %s: %v", name, err)
	}
}

// evict removes a pod without any grace.
func (s *scene) evict(name string) {
	s.Helper()
	s.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}, client.GracePeriodSeconds(0))
}

// uids are those of the pods of a set, by name.
func (s *scene) uids() map[string]types.UID {
	found := map[string]types.UID{}
	for _, pod := range live[*corev1.Pod](s.recorder) {
		if pod.DeletionTimestamp == nil {
			found[pod.Name] = pod.UID
		}
	}
	return found
}

// awaitRecreated waits until every pod of some groups is another one and the set is
// settled, and checks that no pod of another group is.
func (s *scene) awaitRecreated(set *lwsv1.LeaderWorkerSet, before map[string]types.UID, groups ...int) {
	s.Helper()
	within := func(name string) bool {
		for _, group := range groups {
			leader := fmt.Sprintf("%s-%d", set.Name, group)
			if name == leader || strings.HasPrefix(name, leader+"-") {
				return true
			}
		}
		return false
	}
	s.eventually(fmt.Sprintf("groups %v are recreated", groups), func() error {
		now := s.uids()
		for name, uid := range before {
			if within(name) && (now[name] == uid || now[name] == "") {
				return fmt.Errorf("pod %s is not another one", name)
			}
		}
		return s.unsettled(set)
	})
	for name, uid := range s.uids() {
		if !within(name) && uid != before[name] {
			s.dump()
			s.Fatalf("pod %s is another one, and its group did not fail", name)
		}
	}
}

// leadersDeleted counts how often the operator deleted each leader.
func (s *scene) leadersDeleted(since int) map[string]int {
	count := map[string]int{}
	for _, w := range s.lockstepWrote(since) {
		if w.Verb == "delete" && w.Resource == "pods" && w.Code < 300 && strings.Count(w.Name, "-") == 1 {
			count[w.Name]++
		}
	}
	return count
}

// A container that restarts has its group recreated: all of its pods, once, and
// those of no other. What was seen of it stays to be read.
func TestContainerRestartRecreatesTheGroup(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.newSet("a", 3, 4, imageA)
	s.create(set)
	set = s.awaitSettled(set)
	before, mark := s.uids(), s.changes()
	s.crash("a-1-2", 1)
	s.awaitRecreated(set, before, 1)
	if have, want := s.bornInto(set.UID, mark), (births{Pods: 4, StatefulSets: 1}); have != want {
		s.dump()
		t.Fatalf("created: %+v, want %+v", have, want)
	}
	s.awaitTold(set, telling{"RecreateGroup", "Delete", "Pod", "Worker pod a-1-2 failed, deleted leader pod a-1 to recreate group 1"})
	now, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
	if r := now.Status.Restarts; len(r) != 1 || r[0].Index != 1 || r[0].Count != 1 || len(r[0].Failures) != 1 ||
		r[0].Failures[0].Reason != "OOMKilled" || *r[0].Failures[0].ExitCode != 137 || r[0].Failures[0].Node == "" {
		t.Errorf("evidence: %+v", r)
	}
	if status, _, err := s.plugin("", "status", "a"); err != nil || !strings.Contains(status, "no memory left") || !strings.Contains(status, "137") {
		t.Errorf("the plugin does not show it: %v\n%s", err, status)
	}
}

// Under None only what failed is replaced.
func TestPolicyNoneLeavesTheGroup(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.newSet("a", 2, 3, imageA, restartPolicy(lwsv1.NoneRestartPolicy))
	s.create(set)
	set = s.awaitSettled(set)
	before := s.uids()
	s.crash("a-0-1", 1)
	s.evict("a-1-2")
	s.eventually("the worker is replaced", func() error {
		if now := s.uids()["a-1-2"]; now == before["a-1-2"] || now == "" {
			return errStill
		}
		return s.unsettled(set)
	})
	outlast(t)
	delete(before, "a-1-2")
	for name, uid := range before {
		if s.uids()[name] != uid {
			s.dump()
			t.Fatalf("pod %s is another one", name)
		}
	}
}

// A worker that is replaced while no operator runs is missed by the next one.
func TestWorkerThatVanishesWhileTheOperatorIsDown(t *testing.T) {
	s := newScene(t)
	set := s.newSet("a", 3, 3, imageA)
	s.create(set)
	set = s.awaitSettled(set)
	before, since := s.uids(), bed.audit.position()
	s.check("kill the operator", bed.operator.kill())
	s.evict("a-1-1")
	s.check("start the operator", bed.operator.start()) // its webhook lets the replacement in
	s.awaitRecreated(set, before, 1)
	same(t, "leaders deleted", 1, len(s.leadersDeleted(since)))
}

// Forty groups lose a worker each in one moment: each is recreated, once, and the
// others are not.
func TestMassEviction(t *testing.T) {
	const groups, failing = 45, 40
	s := newScene(t)
	set := s.newSet("a", groups, 3, imageA)
	s.create(set)
	set = s.awaitSettled(set)
	t.Logf("%d writes made it", len(s.lockstepWrote(s.audited))-s.told(s.audited))
	before, since, mark := s.uids(), bed.audit.position(), s.changes()
	var failed []int
	var evictions sync.WaitGroup
	for i := range failing {
		failed = append(failed, i)
		evictions.Go(func() { s.evict(fmt.Sprintf("a-%d-%d", i, 1+i%2)) })
	}
	evictions.Wait()
	s.awaitRecreated(set, before, failed...)
	deleted := s.leadersDeleted(since)
	for i := range failing {
		if name := fmt.Sprintf("a-%d", i); deleted[name] != 1 {
			t.Errorf("leader %s was deleted %d times", name, deleted[name])
		}
	}
	t.Logf("%d writes; created %+v", len(s.lockstepWrote(since))-s.told(since), s.bornInto(set.UID, mark))
}

// told counts the events among the operator's writes.
func (s *scene) told(since int) int {
	count := 0
	for _, w := range s.lockstepWrote(since) {
		if w.Resource == "events" {
			count++
		}
	}
	return count
}

// A group that fails again waits, says until when, and is as it was meanwhile.
func TestCrashLoopBacksOff(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.newSet("a", 2, 2, imageA, func(set *lwsv1.LeaderWorkerSet) {
		set.Annotations = map[string]string{"lockstep.dev/restart-backoff": "first=5s,max=10s"}
	})
	s.create(set)
	set = s.awaitSettled(set)
	before := s.uids()
	s.crash("a-1-1", 1)
	s.awaitRecreated(set, before, 1)
	before = s.uids()
	s.crash("a-1-1", 1)
	var due time.Time
	s.eventually("the group waits, and the set says so", func() error {
		now, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
		if err := holds(now, "RestartBackOff", "GroupsFailing"); err != nil {
			return err
		}
		due = now.Status.Restarts[0].DueAt.Time
		return lacking("failures in a row", 2, now.Status.Restarts[0].Count)
	})
	if status, _, err := s.plugin("", "status", "a"); err != nil || !strings.Contains(status, "is recreated at") {
		t.Errorf("the plugin does not say so: %v\n%s", err, status)
	}
	leader, _ := find[*corev1.Pod](s.recorder, "a-1")
	if time.Now().Before(due) && leader.UID != before["a-1"] {
		s.dump()
		t.Fatalf("it did not wait until %s", due)
	}
	s.awaitRecreated(set, before, 1)
	for _, rec := range s.pick(func(r *record) bool { return r.last.GetUID() == before["a-1"] }) {
		if rec.gone.Before(due) {
			t.Errorf("the leader went at %s, and was to go from %s on", rec.gone, due)
		}
	}
	s.eventually("the set no longer says so", func() error {
		now, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
		if holds(now, "RestartBackOff", "GroupsFailing") == nil {
			return errStill
		}
		return nil
	})
}

// A worker StatefulSet that somebody deletes has its group recreated.
func TestDeletedWorkerStatefulSetRecreatesTheGroup(t *testing.T) {
	for _, policy := range deletions {
		t.Run(string(policy), func(t *testing.T) {
			aside(t)
			s := newScene(t)
			set := s.newSet("a", 3, 3, imageA)
			s.create(set)
			set = s.awaitSettled(set)
			before := s.uids()
			sts, _ := find[*appsv1.StatefulSet](s.recorder, "a-1")
			s.remove(sts.DeepCopy(), propagation(policy))
			s.awaitRecreated(set, before, 1)
		})
	}
}

// In mid-rollout a group that fails comes back at the revision of its leader, with
// its workers, and takes nobody with it.
func TestRestartInMidRollout(t *testing.T) {
	for name, surge := range map[string]int32{"without surge": 0, "with surge": 1} {
		t.Run(name, func(t *testing.T) {
			aside(t)
			s := newScene(t)
			set := s.newSet("a", 4, 2, imageA, budget(1, surge, 2))
			s.create(set)
			set = s.awaitSettled(set)
			set = s.become(set, pull(imageB))
			half := map[int]string{0: imageA, 1: imageA, 2: imageB, 3: imageB}
			rolled := func() error {
				have := s.readyGroups(set)
				for index, image := range half {
					if have[index] != image {
						return fmt.Errorf("have %v", have)
					}
				}
				return nil
			}
			s.eventually("the groups from the partition on are rolled", rolled)
			for _, failing := range []int{1, 3} {
				before := s.uids()
				s.eventually("the group is held to its start", func() error { return s.unrecorded(fmt.Sprintf("a-%d", failing)) })
				s.crash(fmt.Sprintf("a-%d-1", failing), 1)
				s.eventually(fmt.Sprintf("group %d is recreated", failing), func() error {
					if now := s.uids(); now[fmt.Sprintf("a-%d", failing)] == before[fmt.Sprintf("a-%d", failing)] {
						return errStill
					}
					return rolled()
				})
				for group := range half {
					if leader := fmt.Sprintf("a-%d", group); group != failing && s.uids()[leader] != before[leader] {
						s.dump()
						t.Fatalf("leader %s is another one", leader)
					}
				}
			}
			set = s.become(set, `{"spec":{"rolloutStrategy":{"rollingUpdateConfiguration":{"partition":0}}}}`)
			s.awaitRolled(set, 3)
		})
	}
}

// unrecorded is an error until the set tells what the group of a leader started with.
func (s *scene) unrecorded(leader string) error {
	set, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
	for _, started := range set.Status.Started {
		if started.Leader == s.uids()[leader] {
			return nil
		}
	}
	return errors.New("it is not")
}

// All pods of a group end together: none waits for another's grace period, and
// nobody waits for the garbage collector.
func TestAGroupEndsInOneGracePeriod(t *testing.T) {
	s := newScene(t)
	set := s.newSet("a", 2, 4, imageA, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Annotations = map[string]string{"local.lockstep.dev/vanish-after": "5s"}
	})
	s.create(set)
	set = s.awaitSettled(set)
	over := withoutGarbageCollector(s, 0)
	before := s.uids()
	s.crash("a-1-1", 1)
	s.awaitRecreated(set, before, 1)
	s.check("start the garbage collector again", over())
	left := s.pick(func(r *record) bool { _, pod := r.last.(*corev1.Pod); return pod && r.died != 0 })
	if len(left) != 4 {
		t.Fatalf("the group had 4 pods, and these went: %s", names(left))
	}
	first := slices.MinFunc(left, func(a, b record) int { return a.died - b.died })
	for _, rec := range left {
		if rec.doomed == 0 || rec.doomed > first.died {
			t.Errorf("pod %s was not deleted before pod %s had gone", rec.last.GetName(), first.last.GetName())
		}
	}
}
