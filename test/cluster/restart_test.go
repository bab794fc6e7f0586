package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// crashed is what a kubelet tells of a pod whose container ran out of memory and
// was started again.
const crashed = `{"status":{"containerStatuses":[{"name":"serve","image":"x","imageID":"","restartCount":%d,"ready":true,"started":true,
"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}},
"lastState":{"terminated":{"exitCode":137,"reason":"OOMKilled","message":"loading shard 7\nno memory left"}}}]}}`

// crash reports the n-th restart of a pod's container.
func (s *scene) crash(name string, n int) {
	pod := s.Pod(name)
	expect.Must(s, pod != nil, "no pod %s to crash", name)
	s.PatchStatus(pod, fmt.Sprintf(crashed, n))
}

// evict removes a pod without grace.
func (s *scene) evict(name string) {
	s.Remove(&corev1.Pod{ObjectMeta: s.Meta(name)}, force)
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
	s.Eventually(fmt.Sprintf("groups %v are recreated", groups), func() error {
		now := s.UIDs()
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
	for name, uid := range s.UIDs() {
		expect.Must(s, uid == before[name] || but(name), "pod %s was replaced", name)
	}
}

func isPod(name string) func(string) bool { return func(other string) bool { return other == name } }

// leadersDeleted counts how often the operator deleted each leader.
func (s *scene) leadersDeleted(since int) map[string]int {
	count := map[string]int{}
	for _, w := range s.LockstepWrote(since) {
		if w.Verb == "delete" && w.Resource == "pods" && w.Code < 300 && strings.Count(w.Name, "-") == 1 {
			count[w.Name]++
		}
	}
	return count
}

// A restarted container recreates its group, once. The status and the plugin show the evidence. Pods take a second to
// end, as on nodes: a leader that is gone before the operator reads it leaves none.
func TestContainerRestartRecreatesTheGroup(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 3, 4, imageA, slowly("1s")))
	before, mark := s.UIDs(), s.Changes()
	s.crash("a-1-2", 1)
	s.awaitRecreated(set, before, 1)
	s.wantBorn(set.UID, mark, births{Pods: 4, StatefulSets: 1})
	s.AwaitEvent("a", "RecreateGroup", "Pod", "Delete", "Worker a-1-2 ", "a-1 ", "group 1", "OOMKilled", "exit code 137", "node "+s.Set("a").Status.Restarts[0].Failures[0].Node)
	now := s.Set("a")
	if r := now.Status.Restarts; len(r) != 1 || r[0].Index != 1 || r[0].Count != 1 || len(r[0].Failures) != 1 ||
		r[0].Failures[0].Reason != "OOMKilled" || *r[0].Failures[0].ExitCode != 137 || r[0].Failures[0].Node == "" {
		t.Errorf("evidence: %+v", r)
	}
	same(t, "messages", []string{"a-1-2 loading shard 7\nno memory left "}, lastWords(now))
	s.prints("no memory left", "status", "a")
	s.prints("137", "status", "a")
}

// lastWords are what the failed containers of a set's groups left.
func lastWords(set *lwsv1.LeaderWorkerSet) (words []string) {
	for _, r := range set.Status.Restarts {
		for _, c := range r.Containers {
			words = append(words, c.Pod+" "+c.Message+" "+c.Log)
		}
	}
	return words
}

// The status keeps the end of the log of each container that failed its group. kwok stands in for kubelets: every log of it
// is one text.
func TestLogsOfFailedContainersAreKept(t *testing.T) {
	s := newScene(t)
	s.Check("install with the right to read logs", bed.Operator.Install("--crash-log-lines=5"))
	s.RestartOperator("--crash-log-lines=5")
	t.Cleanup(func() {
		must(t, bed.Operator.Install())
		s.RestartOperator()
	})
	set := s.settled(s.newSet("a", 2, 2, imageA, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.LeaderTemplate = set.Spec.LeaderWorkerTemplate.WorkerTemplate.DeepCopy()
		set.Spec.LeaderWorkerTemplate.LeaderTemplate.Annotations = map[string]string{"local.lockstep.dev/vanish-after": "5s"}
	}))
	before, mark := s.UIDs(), s.Changes()
	s.crash("a-1-1", 1)
	s.crash("a-0", 1)
	s.awaitRecreated(set, before, 0, 1)
	s.wantBorn(set.UID, mark, births{Pods: 4, StatefulSets: 2})
	var logs []string
	for _, r := range s.Set("a").Status.Restarts {
		for _, c := range r.Containers {
			logs = append(logs, c.Log)
		}
	}
	expect.That(t, len(logs) == 2 && logs[0] != "", "the logs that are kept: %q", logs)
	s.prints("| "+strings.SplitN(logs[0], "\n", 2)[0], "status", "a")
	s.prints("| no memory left", "status", "a")
}

// Under None, the StatefulSet controller replaces failed pods alone. Workers that were scaled by hand are
// scaled back. A leader that is deleted without its workers comes again, and adopts them.
func TestPolicyNoneLeavesTheGroup(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 2, 3, imageA, fakeapi.Policy(lwsv1.NoneRestartPolicy)))
	before := s.UIDs()
	s.crash("a-0-1", 1)
	worker := s.Pod("a-1-2")
	s.evict("a-1-2")
	drill.Another(s.Scene, worker)
	s.awaitSettled(set)
	outlast(t)
	s.wantKept(before, isPod("a-1-2"))

	for _, replicas := range []int32{1, 4} {
		before, workers := s.UIDs(), s.StatefulSet("a-1")
		s.Patch(workers, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
		s.Eventually("it is scaled back", func() error {
			if now := s.StatefulSet("a-1"); now == nil || now.Generation < workers.Generation+2 || *now.Spec.Replicas != 2 {
				return drill.ErrStill
			}
			return s.unsettled(set)
		})
		s.wantKept(before, isPod("a-1-2"))
	}

	leader, workers := s.Pod("a-1"), s.StatefulSet("a-1")
	s.Remove(leader, propagation(metav1.DeletePropagationOrphan))
	next := drill.Another(s.Scene, leader)
	s.Until("the next leader adopts the workers", func() bool {
		now := s.Now(workers)
		return now != nil && metav1.IsControlledBy(now, next)
	})
	s.awaitSettled(set)
}

// The next operator misses a worker that was replaced while none ran.
func TestWorkerThatVanishesWhileTheOperatorIsDown(t *testing.T) {
	s := newScene(t)
	set := s.settled(s.newSet("a", 3, 3, imageA))
	before, since := s.UIDs(), bed.Position()
	s.Check("kill the operator", bed.Operator.Kill())
	s.evict("a-1-1")
	s.Check("start the operator", bed.Operator.Start()) // its webhook lets the replacement in
	s.awaitRecreated(set, before, 1)
	same(t, "leaders deleted", 1, len(s.leadersDeleted(since)))
}

// Forty groups lose a worker each at once: each is recreated once, and the others are not.
func TestMassEviction(t *testing.T) {
	const groups, failing = 45, 40
	s := newScene(t)
	set := s.settled(s.newSet("a", groups, 3, imageA))
	before, since := s.UIDs(), bed.Position()
	failed := make([]int, failing)
	for i := range failed {
		failed[i] = i
	}
	s.Check("evict a worker of each", drill.Together(failed, func(i int) error {
		return s.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: s.Meta(fmt.Sprintf("a-%d-%d", i, 1+i%2))}, force)
	}))
	s.awaitRecreated(set, before, failed...)
	deleted := s.leadersDeleted(since)
	for i := range failing {
		expect.Equalf(t, 1, deleted[fmt.Sprintf("a-%d", i)], "how often leader a-%d was deleted", i)
	}
}

// A group that fails again waits, and the set says until when. The group stays meanwhile.
func TestCrashLoopBacksOff(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 2, 2, imageA, annotated("lockstep.dev/restart-backoff", "first=5s,max=10s")))
	before := s.UIDs()
	s.crash("a-1-1", 1)
	s.awaitRecreated(set, before, 1)
	before = s.UIDs()
	s.crash("a-1-1", 1)
	var due time.Time
	s.Eventually("the group waits, and the set says so", func() error {
		now := s.Set("a")
		if err := holds(now, "RestartBackOff", "GroupsFailing"); err != nil {
			return err
		}
		due = now.Status.Restarts[0].DueAt.Time
		return drill.Lacking("failures in a row", 2, now.Status.Restarts[0].Count)
	})
	s.prints("recreated at", "status", "a")
	s.awaitRecreated(set, before, 1)
	for _, rec := range s.Pick(func(r *drill.Record) bool { return r.Last.GetUID() == before["a-1"] }) {
		expect.That(t, !rec.Gone.Before(due), "the leader went at %s, and was to go from %s on", rec.Gone, due)
	}
	s.Until("the set no longer says so", func() bool {
		now := s.Set("a")
		return holds(now, "RestartBackOff", "GroupsFailing") != nil
	})
}

// unrecorded is an error until the status has a record of a leader's group.
func (s *scene) unrecorded(leader string) error {
	set := s.Set("a")
	for _, started := range set.Status.Started {
		if started.Leader == s.UIDs()[leader] {
			return nil
		}
	}
	return drill.ErrStill
}

// over is the status that a kubelet writes of a deleted pod before the pod goes.
const over = `{"metadata":{"uid":%q},"status":{"phase":"Failed","containerStatuses":[{"name":"serve","image":"x","imageID":"","restartCount":0,"ready":false,"started":false,
"state":{"terminated":{"exitCode":143,"reason":"Error","finishedAt":%q}}}]}}`

// askedToGo asks the API server to evict a pod, as a drain does.
func (s *scene) askedToGo(pod *corev1.Pod) error {
	return s.Client.SubResource("eviction").Create(s.Context(), pod.DeepCopy(), &policyv1.Eviction{ObjectMeta: s.Meta(pod.Name)})
}

// drained evicts a pod through the API, which sets the condition DisruptionTarget, and ends
// it as a kubelet does: the pod has a deletion timestamp, then fails, then goes. A finalizer
// keeps it until the operator has written its decision onto the leader.
func (s *scene) drained(name, leader string) {
	pod := s.Pod(name)
	expect.Must(s, pod != nil, "no pod %s to drain", name)
	decided := s.Pod(leader)
	s.Patch(pod, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, foreign))
	s.Check("evict "+name, s.askedToGo(pod))
	s.Eventually("the decision is on leader "+leader, func() error {
		has := func(r *drill.Record) bool {
			return r.Last.GetUID() == decided.UID && r.Last.GetAnnotations()[restart.AnnotationKey] != ""
		}
		return drill.Lacking("pods with a decision", 1, len(s.Pick(has)))
	})
	ended := fmt.Sprintf(over, pod.UID, time.Now().UTC().Format(time.RFC3339))
	s.Check("invalid run: the pod was gone before it had failed",
		s.Client.Status().Patch(s.Context(), pod.DeepCopy(), drill.Merge(ended)))
	s.Check("let the pod go", client.IgnoreNotFound(s.Client.Delete(s.Context(), pod.DeepCopy(),
		force, client.Preconditions{UID: &pod.UID})))
	s.Patch(pod, fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":null}}`, pod.UID))
}

// Nodes are drained one after the other, and each drain evicts a leader and a worker. Their
// groups are recreated at once, and neither failure counts for the back-off, nor for maxGroupRestarts.
func TestDrainedPodsDoNotCount(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 3, 2, imageA, slowly("4s"), func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.MaxGroupRestarts = new(int32(0))
	}))
	for range 2 {
		for _, leader := range []string{"a-0", "a-1"} {
			s.Eventually("the group is recorded", func() error { return s.unrecorded(leader) })
		}
		before := s.UIDs()
		s.drained("a-0", "a-0")
		s.drained("a-1-1", "a-1")
		s.awaitRecreated(set, before, 0, 1)
	}
	s.AwaitEvent("a", "RecreateGroup", "Pod", "Leader a-0 was drained", "EvictionByEvictionAPI", "group 0")
	s.AwaitEvent("a", "RecreateGroup", "Pod", "Worker a-1-1 was drained", "EvictionByEvictionAPI", "group 1")
	now := s.Set("a")
	same(t, "groups in the status", 2, len(now.Status.Restarts))
	for i, r := range now.Status.Restarts {
		expect.That(t, r.Count == 0 && r.Recreations == nil && !r.DueAt.After(r.FailedAt.Time) && len(r.Failures) == 2,
			"status of group %d: %+v, want two failures that do not count", i, r)
		for _, f := range r.Failures {
			same(t, "evidence", lwsv1.PodFailure{Pod: []string{"a-0", "a-1-1"}[i], Reason: "EvictionByEvictionAPI"}, lwsv1.PodFailure{Pod: f.Pod, Reason: f.Reason})
		}
	}
	for _, c := range now.Status.Conditions {
		expect.That(t, c.Type != "RestartBackOff" || c.Status != metav1.ConditionTrue, "a group waits: %s", c.Message)
	}
}

// Rollouts are taken back while they replace groups whose pods take a second to end. No group failed, so that the
// first failure after them counts as the first, and waits for no back-off.
func TestARevertedRolloutIsNoFailure(t *testing.T) {
	each(t, map[string][]edit{
		"one at a time": {budget(1, 0, 0)}, "three at a time": {budget(3, 0, 0)}, "with surge": {budget(1, 1, 0)}, "with keys": {withKeys},
		"after the start": {budget(1, 0, 0), fakeapi.Policy(lwsv1.RecreateGroupAfterStart)},
	}, func(s *scene, how []edit) {
		set := s.newSet("a", 5, 2, imageA, append(how, slowly("1s"))...)
		s.Create(set)
		s.Eventually("all groups are ready", func() error { return s.mixed(set, imageA) })
		for i, moment := range []func() bool{
			func() bool { return s.ends(set) > 0 },
			func() bool { return s.haveImage(set, imageB) > 0 },
			func() bool { return s.haveImage(set, imageB) > 0 && s.ends(set) > 0 },
			func() bool { return s.haveImage(set, imageB) > 1 },
		} {
			s.become(s.Set("a"), pull(imageB))
			s.Until("the rollout is in its middle", moment)
			if i%2 == 0 {
				s.says("rolled back", "undo", "a")
			} else {
				s.Patch(s.Set("a"), pull(imageA))
			}
			s.Eventually("all groups are as before", func() error { return s.mixed(set, imageA) })
		}
		outlast(s.T)
		expect.Emptyf(s, s.Set("a").Status.Restarts, "no group failed")
		leader := s.leadersOf(set)[0]
		s.Eventually("the group is recorded", func() error { return s.unrecorded(leader.Name) })
		s.crash(s.workerOf(leader).Name, 1)
		s.Until("the failure is counted", func() bool { return len(s.Set("a").Status.Restarts) > 0 })
		r := s.Set("a").Status.Restarts[0]
		expect.That(s, r.Count == 1 && !r.DueAt.After(r.FailedAt.Time), "the first failure: %+v", r)
	})
}

// ends counts the leaders of a set that are terminating.
func (s *scene) ends(set *lwsv1.LeaderWorkerSet) int {
	return len(slices.DeleteFunc(s.podsOf(set), func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp == nil || pod.Labels[lwsv1.WorkerIndexLabelKey] != "0"
	}))
}

// haveImage counts the leaders of a set with an image.
func (s *scene) haveImage(set *lwsv1.LeaderWorkerSet, image string) int {
	return len(slices.DeleteFunc(s.leadersOf(set), func(pod *corev1.Pod) bool { return imageOf(pod) != image }))
}

// An older CustomResourceDefinition drops the fields of the status that restarts need. A
// condition says so, and no group is recreated until the present definition is installed.
func TestOlderDefinitionDropsTheRecord(t *testing.T) {
	s := newScene(t)
	s.forgetfulDefinition()
	set := s.settled(s.newSet("a", 2, 2, imageA))
	s.Eventually("the condition says so", func() error {
		now := s.Set("a")
		expect.Must(t, len(now.Status.Started) == 0, "invalid run: the record is kept")
		return holds(now, "RestartsUnrecorded", "DefinitionTooOld")
	})
	before := s.UIDs()
	s.crash("a-1-1", 1)
	s.Check("kill the operator", bed.Operator.Kill())
	s.crash("a-0-1", 1)
	s.Check("start the operator", bed.Operator.Start())
	outlast(t)
	same(t, "pods", before, s.UIDs())
	s.Check("install the present definition", bed.Operator.Install())
	s.Until("the groups are recorded, and the condition has ended", func() bool {
		now := s.Set("a")
		return len(now.Status.Started) >= 2 && holds(now, "RestartsUnrecorded", "DefinitionTooOld") != nil
	})
	s.crash("a-1-1", 2)
	s.awaitRecreated(set, before, 1)
}

// forgetfulDefinition removes the fields of restarts from the status of the installed
// definition until the test ends.
func (s *scene) forgetfulDefinition() {
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName("leaderworkersets.leaderworkerset.x-k8s.io")
	s.Cleanup(func() { s.Check("install the present definition", bed.Operator.Install()) })
	s.Check("read the definition", s.Read(definition))
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, field := range []string{"started", "restarts", "restartsSince"} {
		unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "status", "properties", field)
	}
	s.Check("change the definition", unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"))
	s.Check("write the definition", s.Client.Update(s.Context(), definition))

	probe := s.newSet("probe", 0, 1, imageA, fakeapi.Policy(lwsv1.NoneRestartPolicy))
	s.Create(probe)
	s.Eventually("the server goes by it", func() error {
		mark := probe.DeepCopy()
		data := `{"status":{"restartsSince":"2026-01-01T00:00:00Z"}}`
		if err := s.Client.Status().Patch(s.Context(), mark, drill.Merge(data)); err != nil {
			return err
		}
		return drill.Lacking("the mark is dropped", true, mark.Status.RestartsSince == nil)
	})
	s.Remove(probe)
}
