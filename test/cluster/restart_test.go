package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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

// crash reports the n-th restart of a pod's container.
func (s *scene) crash(name string, n int) {
	s.Helper()
	pod, ok := find[*corev1.Pod](s.recorder, name)
	if !ok {
		s.Fatalf("no pod %s to crash", name)
	}
	s.check("crash pod "+name, s.client.Status().Patch(s.Context(), pod.DeepCopy(), merge(fmt.Sprintf(crashed, n))))
}

// evict removes a pod without grace.
func (s *scene) evict(name string) {
	s.Helper()
	s.remove(&corev1.Pod{ObjectMeta: s.meta(name)}, client.GracePeriodSeconds(0))
}

// uids returns the UIDs of the pods that do not terminate, by name.
func (s *scene) uids() map[string]types.UID {
	found := map[string]types.UID{}
	for _, pod := range live[*corev1.Pod](s.recorder) {
		if pod.DeletionTimestamp == nil {
			found[pod.Name] = pod.UID
		}
	}
	return found
}

// inGroups reports whether a pod is in one of these groups of a set.
func inGroups(set *lwsv1.LeaderWorkerSet, pod string, groups ...int) bool {
	return slices.ContainsFunc(groups, func(group int) bool {
		leader := fmt.Sprintf("%s-%d", set.Name, group)
		return pod == leader || strings.HasPrefix(pod, leader+"-")
	})
}

// awaitRecreated waits until every pod of some groups is another one and the set is settled, and
// checks that no pod of another group is.
func (s *scene) awaitRecreated(set *lwsv1.LeaderWorkerSet, before map[string]types.UID, groups ...int) {
	s.Helper()
	s.eventually(fmt.Sprintf("groups %v are recreated", groups), func() error {
		now := s.uids()
		for name, uid := range before {
			if inGroups(set, name, groups...) && (now[name] == uid || now[name] == "") {
				return fmt.Errorf("pod %s is not another one", name)
			}
		}
		return s.unsettled(set)
	})
	s.wantKept(before, func(name string) bool { return inGroups(set, name, groups...) })
}

// wantKept checks that no pod was replaced, but some.
func (s *scene) wantKept(before map[string]types.UID, but func(name string) bool) {
	s.Helper()
	for name, uid := range s.uids() {
		if uid != before[name] && !but(name) {
			s.dump()
			s.Fatalf("pod %s was replaced", name)
		}
	}
}

func isPod(name string) func(string) bool { return func(other string) bool { return other == name } }

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

// A restarted container recreates its group, once. The status and the plugin show the evidence.
func TestContainerRestartRecreatesTheGroup(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 3, 4, imageA))
	before, mark := s.uids(), s.changes()
	s.crash("a-1-2", 1)
	s.awaitRecreated(set, before, 1)
	s.wantBorn(set.UID, mark, births{Pods: 4, StatefulSets: 1})
	s.awaitEvent("a", "RecreateGroup", "Pod", "Delete", "a-1-2", "a-1 ", "group 1")
	now, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
	if r := now.Status.Restarts; len(r) != 1 || r[0].Index != 1 || r[0].Count != 1 || len(r[0].Failures) != 1 ||
		r[0].Failures[0].Reason != "OOMKilled" || *r[0].Failures[0].ExitCode != 137 || r[0].Failures[0].Node == "" {
		t.Errorf("evidence: %+v", r)
	}
	if status, _, err := s.plugin("", "status", "a"); err != nil || !strings.Contains(status, "no memory left") || !strings.Contains(status, "137") {
		t.Errorf("the plugin does not show it: %v\n%s", err, status)
	}
}

// Under None, the StatefulSet controller replaces the failed pod alone.
func TestPolicyNoneLeavesTheGroup(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 2, 3, imageA, restartPolicy(lwsv1.NoneRestartPolicy)))
	before := s.uids()
	s.crash("a-0-1", 1)
	worker, _ := find[*corev1.Pod](s.recorder, "a-1-2")
	s.evict("a-1-2")
	awaitAnother(s, worker)
	s.awaitSettled(set)
	outlast(t)
	s.wantKept(before, isPod("a-1-2"))
}

// The next operator misses a worker that was replaced while none ran.
func TestWorkerThatVanishesWhileTheOperatorIsDown(t *testing.T) {
	s := newScene(t)
	set := s.settled(s.newSet("a", 3, 3, imageA))
	before, since := s.uids(), bed.position()
	s.check("kill the operator", bed.operator.Kill())
	s.evict("a-1-1")
	s.check("start the operator", bed.operator.Start()) // its webhook lets the replacement in
	s.awaitRecreated(set, before, 1)
	same(t, "leaders deleted", 1, len(s.leadersDeleted(since)))
}

// Forty groups lose a worker each at once: each is recreated once, and the others are not.
func TestMassEviction(t *testing.T) {
	const groups, failing = 45, 40
	s := newScene(t)
	set := s.settled(s.newSet("a", groups, 3, imageA))
	before, since := s.uids(), bed.position()
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
}

// A group that fails again waits, and the set says until when. The group stays meanwhile.
func TestCrashLoopBacksOff(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 2, 2, imageA, func(set *lwsv1.LeaderWorkerSet) {
		set.Annotations = map[string]string{"lockstep.dev/restart-backoff": "first=5s,max=10s"}
	}))
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
	if status, _, err := s.plugin("", "status", "a"); err != nil || !strings.Contains(status, "recreated at") {
		t.Errorf("the plugin does not say so: %v\n%s", err, status)
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

// A deleted worker StatefulSet recreates its group.
func TestDeletedWorkerStatefulSetRecreatesTheGroup(t *testing.T) {
	for _, policy := range deletions {
		t.Run(string(policy), func(t *testing.T) {
			s := asideScene(t)
			set := s.settled(s.newSet("a", 3, 3, imageA))
			before := s.uids()
			sts, _ := find[*appsv1.StatefulSet](s.recorder, "a-1")
			s.remove(sts.DeepCopy(), propagation(policy))
			s.awaitRecreated(set, before, 1)
		})
	}
}

// In mid-rollout a group that fails comes back at the revision of its leader, alone.
func TestRestartInMidRollout(t *testing.T) {
	for name, surge := range map[string]int32{"without surge": 0, "with surge": 1} {
		t.Run(name, func(t *testing.T) {
			s := asideScene(t)
			set := s.settled(s.newSet("a", 4, 2, imageA, budget(1, surge, 2)))
			set = s.become(set, pull(imageB))
			half := map[int]string{0: imageA, 1: imageA, 2: imageB, 3: imageB}
			rolled := func() error {
				have := s.readyGroups(set)
				delete(have, 4) // surge
				return lacking("groups", fmt.Sprint(half), fmt.Sprint(have))
			}
			s.eventually("the groups from the partition on are rolled", rolled)
			for _, failing := range []int{1, 3} {
				leader, _ := find[*corev1.Pod](s.recorder, fmt.Sprintf("a-%d", failing))
				s.eventually("the group is recorded", func() error { return s.unrecorded(leader.Name) })
				before := s.uids()
				s.crash(leader.Name+"-1", 1)
				awaitAnother(s, leader)
				s.eventually("the group is back", rolled)
				s.wantKept(before, func(name string) bool { return inGroups(set, name, failing, 4) })
			}
			set = s.become(set, `{"spec":{"rolloutStrategy":{"rollingUpdateConfiguration":{"partition":0}}}}`)
			s.awaitRolled(set, 3)
		})
	}
}

// unrecorded is an error until the status has a record of a leader's group.
func (s *scene) unrecorded(leader string) error {
	set, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
	for _, started := range set.Status.Started {
		if started.Leader == s.uids()[leader] {
			return nil
		}
	}
	return errStill
}

// All pods of a group terminate together, without the garbage collector.
func TestAGroupEndsInOneGracePeriod(t *testing.T) {
	s := newScene(t)
	set := s.settled(s.newSet("a", 2, 4, imageA, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Annotations = map[string]string{"local.lockstep.dev/vanish-after": "5s"}
	}))
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
