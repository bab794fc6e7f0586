package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
	"lockstep.dev/lockstep/test/standin"
)

// withKeys gives the groups of a set keys instead of ordinals.
func withKeys(set *lwsv1.LeaderWorkerSet) { set.Spec.GroupIdentity = lwsv1.HashGroupIdentity }

// leadersOf returns the leaders of a set that live, by name.
func (s *scene) leadersOf(set *lwsv1.LeaderWorkerSet) []*corev1.Pod {
	return slices.DeleteFunc(s.Pods(), func(pod *corev1.Pod) bool {
		return pod.Labels[lwsv1.SetNameLabelKey] != set.Name || pod.Labels[lwsv1.WorkerIndexLabelKey] != "0" || pod.DeletionTimestamp != nil
	})
}

// groupOf returns the pods with the key of a leader.
func (s *scene) groupOf(leader *corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(s.Pods(), func(pod *corev1.Pod) bool {
		return pod.Labels[lwsv1.GroupUniqueHashLabelKey] != leader.Labels[lwsv1.GroupUniqueHashLabelKey]
	})
}

// awaitKeyed waits until a set of Hash groups is settled, and returns its leaders.
func (s *scene) awaitKeyed(want *lwsv1.LeaderWorkerSet) (leaders []*corev1.Pod) {
	s.awaitSettled(want)
	return s.leadersOf(want)
}

// unlike returns what a Hash group lacks beside pods that are ready.
func (s *scene) unlike(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) error {
	key, pods := leader.Labels[lwsv1.GroupUniqueHashLabelKey], s.groupOf(leader)
	host := set.Name + "-" + key[:min(8, len(key))]
	if len(key) != 40 || leader.Labels[lwsv1.GroupIndexLabelKey] != key || leader.Spec.Hostname != host {
		return fmt.Errorf("leader %s has key %q, labels %v, host name %q", leader.Name, key, leader.Labels, leader.Spec.Hostname)
	}
	if leader.Annotations[corev1.PodDeletionCost] != "" {
		return fmt.Errorf("leader %s still has a deletion cost", leader.Name)
	}
	address := corev1.EnvVar{Name: lwsv1.LwsLeaderAddress, Value: host + "." + leader.Spec.Subdomain + "." + set.Namespace}
	for _, pod := range pods {
		if env := pod.Spec.Containers[0].Env; !slices.Contains(env, address) {
			return fmt.Errorf("pod %s has variables %v without %v", pod.Name, env, address)
		}
	}
	return drill.Lacking("pods of group "+host, int(*set.Spec.LeaderWorkerTemplate.Size), len(pods))
}

func TestGroupsWithKeys(t *testing.T) {
	t.Run("scaled", func(t *testing.T) { asideScene(t).scaleKeyed() })
	t.Run("rolled", func(t *testing.T) { asideScene(t).rollKeyed() })
	each(t, map[string]edit{
		"of one pod": func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.Size = new(int32(1)) },
		"whose workers wait for the leader": func(set *lwsv1.LeaderWorkerSet) {
			set.Spec.StartupPolicy = lwsv1.LeaderReadyStartupPolicy
		},
		"with Services of their own": uniquePerReplica,
		"replaced at once":           func(set *lwsv1.LeaderWorkerSet) { set.Spec.GroupReplacementPolicy = lwsv1.ImmediateGroupReplacement },
	}, func(s *scene, how edit) {
		set := s.newSet("a", 2, 3, imageA, withKeys, how)
		s.Create(set)
		before := s.awaitKeyed(set)
		s.Remove(before[0])
		s.Until("the group is another one", func() bool { return s.Pod(before[0].Name) == nil })
		s.awaitKeyed(set)
	})
}

// readKeyed reads a set with the plugin, which calls groups by their keys. The table has one row for equal groups.
func (s *scene) readKeyed(set *lwsv1.LeaderWorkerSet, leaders []*corev1.Pod) {
	status := s.answer(bed.Plane, "", "status", set.Name, "--tree")
	for _, leader := range leaders {
		key := leader.Labels[lwsv1.GroupUniqueHashLabelKey][:7]
		expect.That(s, strings.Contains(status, key), "status does not name group %s:\n%s", key, status)
	}
	for _, verb := range [][]string{{"plan", set.Name}, {"rollout", "status", set.Name}, {"rollout", "history", set.Name}} {
		s.Logf("%v:\n%s", verb, s.answer(bed.Plane, "", verb...))
	}
}

// scaleKeyed scales a set to nothing and back. The group that is not ready goes first.
func (s *scene) scaleKeyed() {
	set := s.newSet("a", 3, 3, imageA, withKeys, fakeapi.Policy(lwsv1.NoneRestartPolicy))
	s.Create(set)
	leaders := s.awaitKeyed(set)
	deployment := &appsv1.Deployment{}
	s.Check("read the deployment", s.Get("a", deployment))
	if !metav1.IsControlledBy(deployment, set) || s.Get("a", &appsv1.StatefulSet{}) == nil {
		s.Fatalf("deployment %v", deployment.OwnerReferences)
	}
	s.readKeyed(set, leaders)
	victim := leaders[1]
	s.unready(victim)
	set = s.become(s.Set("a"), `{"spec":{"replicas":2}}`)
	left := s.awaitKeyed(set)
	expect.Must(s, !slices.ContainsFunc(left, func(pod *corev1.Pod) bool { return pod.UID == victim.UID }),
		"the group that was not ready stayed: %v", podNames(left))
	set = s.become(s.Set("a"), `{"spec":{"replicas":0}}`)
	s.awaitKeyed(set)
	s.Until("no pod is left", func() bool { return len(s.podsOf(set)) == 0 })
	s.awaitKeyed(s.become(s.Set("a"), `{"spec":{"replicas":2}}`))
}

func podNames(pods []*corev1.Pod) (all []string) {
	return fakeapi.Each(pods, func(pod *corev1.Pod) string { return pod.Name })
}

// rollKeyed changes the template. No group is down beyond the budget, and the revision of groups that run is kept.
func (s *scene) rollKeyed() {
	set := s.newSet("a", 4, 3, imageA, withKeys, budget(1, 1, 0))
	s.Create(set)
	fewest := len(s.awaitKeyed(set))
	set = s.become(s.Set("a"), pull(imageB))
	s.Eventually("all groups are new", func() error {
		fewest = min(fewest, len(s.readyGroups(set)))
		return s.revisionsMissing(set)
	})
	s.Check("groups ready at any time", drill.Lacking("at least 3", true, fewest >= 3))
	after := s.awaitKeyed(set)
	updating := func() bool {
		return meta.IsStatusConditionTrue(s.Set("a").Status.Conditions, string(lwsv1.LeaderWorkerSetUpdateInProgress))
	}
	if updating() {
		s.Errorf("the rollout is over: %v", s.Set("a").Status.Conditions)
	}
	s.unready(after[0])
	s.awaitHolds("a", lwsv1.LeaderWorkerSetProgressing, "GroupsProgressing")
	if updating() {
		s.Errorf("a group that is not ready is no rollout: %v", s.Set("a").Status.Conditions)
	}
	s.says("rolled back", "undo", "a")
	s.Eventually("all groups are as before", func() error { return s.mixed(set, imageA) })
	s.readKeyed(set, s.awaitKeyed(s.Set("a")))
}

// revisionsMissing returns what a rollout to imageB lacks. Each pod that lives has its revision.
func (s *scene) revisionsMissing(set *lwsv1.LeaderWorkerSet) error {
	known := map[string]bool{}
	for _, r := range drill.Live[*appsv1.ControllerRevision](s.Recorder) {
		known[r.Labels[lwsv1.RevisionKey]] = true
	}
	for _, pod := range s.podsOf(set) {
		if key := pod.Labels[lwsv1.RevisionKey]; !known[key] {
			s.Fatalf("pod %s runs revision %s, and the revisions are %v", pod.Name, key, known)
		}
	}
	return s.mixed(set, imageB)
}

// slowly keeps the pods of a template for a while after their deletion.
func slowly(after string) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Annotations = map[string]string{"local.lockstep.dev/vanish-after": after}
	}
}

// workerOf returns a worker of a leader's group.
func (s *scene) workerOf(leader *corev1.Pod) *corev1.Pod {
	group := s.groupOf(leader)
	return group[slices.IndexFunc(group, func(pod *corev1.Pod) bool { return pod.Name != leader.Name })]
}

// unready makes a worker not ready, and waits until its leader is not ready either.
func (s *scene) unready(leader *corev1.Pod) {
	s.PatchStatus(s.workerOf(leader), `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	drill.Await(s.Scene, leader.Name, "is not ready", func(pod *corev1.Pod) error {
		return drill.Lacking("ready", false, drill.PodReady(pod))
	})
}

// awaitFailed waits until a group is gone that failed, and another one has its place.
func (s *scene) awaitFailed(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) (leaders []*corev1.Pod) {
	s.Eventually("group of "+leader.Name+" is gone", func() error { return drill.Lacking("pods", 0, len(s.groupOf(leader))) })
	return s.awaitKeyed(set)
}

func TestAGroupWithAKeyIsRecreated(t *testing.T) {
	t.Run("after its end", func(t *testing.T) { asideScene(t).replaceKeyed() })
	t.Run("a few times", func(t *testing.T) { asideScene(t).exhaustKeyed() })
	t.Run("apart", func(t *testing.T) { asideScene(t).separateKeyed() })
	t.Run("without a policy", func(t *testing.T) { asideScene(t).rejoinKeyed() })
	t.Run("resized", func(t *testing.T) { asideScene(t).resizeKeyed() })
	t.Run("paused", func(t *testing.T) { asideScene(t).pauseKeyed() })
}

// replaceKeyed lets a group fail whose pods take their time. All of them end together, and the next leader waits for
// the last. One event says so, and another that it goes on.
func (s *scene) replaceKeyed() {
	set := s.newSet("a", 2, 3, imageA, withKeys, slowly("4s"))
	s.Create(set)
	leader := s.awaitKeyed(set)[0]
	before := s.UIDs()
	s.crash(s.workerOf(leader).Name, 1)
	next := &corev1.Pod{}
	s.Eventually("another leader waits", func() error {
		for _, pod := range s.leadersOf(set) {
			if pod.Spec.NodeName == "" {
				next = pod
				return drill.Lacking("workers", 1, len(s.groupOf(pod)))
			}
		}
		return drill.ErrStill
	})
	s.Eventually("it waits until the last pod is gone", func() error {
		now := s.Pod(next.Name)
		if now.Spec.NodeName != "" && len(s.groupOf(leader)) > 0 {
			s.Fatalf("leader %s is on %s beside %v", next.Name, now.Spec.NodeName, podNames(s.groupOf(leader)))
		}
		return drill.Lacking("scheduled", true, now.Spec.NodeName != "")
	})
	s.awaitEnd(before, true, leader.Name)
	s.awaitKeyed(set)
	s.AwaitEvent("a", "GroupReplacementDeferred", "Leader pod "+next.Name+" waits for 1 terminating group(s) to be removed before scheduling")
	s.AwaitEvent("a", "GroupReplacementAdmitted", "Leader pod "+next.Name+" admitted for scheduling")
	for _, reason := range []string{"GroupReplacementDeferred", "RecreateGroup"} {
		same(s.T, reason, 1, len(s.Events(s.Set("a"), reason)))
	}
}

// exhaustKeyed recreates a group as often as it may. Its key changes, and its count stays.
func (s *scene) exhaustKeyed() {
	set := s.newSet("a", 2, 2, imageA, withKeys, limited(new(int32(2))))
	s.Create(set)
	healthy := s.awaitKeyed(set)[1]
	failing := func() *corev1.Pod {
		leaders := s.awaitKeyed(set)
		return leaders[slices.IndexFunc(leaders, func(pod *corev1.Pod) bool { return pod.UID != healthy.UID })]
	}
	for range 2 {
		leader := failing()
		s.crash(s.workerOf(leader).Name, 1)
		s.awaitFailed(set, leader)
	}
	for _, drained := range []func(leader *corev1.Pod) *corev1.Pod{s.workerOf, func(leader *corev1.Pod) *corev1.Pod { return leader }} {
		leader := failing()
		s.drained(drained(leader).Name, leader.Name)
		s.awaitFailed(set, leader)
	}
	leader := failing()
	worker := s.workerOf(leader)
	s.crash(worker.Name, 1)
	s.Eventually("the group is stopped", func() error {
		return errors.Join(s.stopped(leader.Name, worker.Name), holds(s.Set("a"), lwsv1.LeaderWorkerSetDegraded, exceeded))
	})
	same(s.T, "entries", 1, len(s.Set("a").Status.Restarts))
	same(s.T, "recreations", 2, int(*s.Set("a").Status.Restarts[0].Recreations))
	s.Until("one leader waits for good", func() bool {
		return slices.ContainsFunc(s.leadersOf(set), func(pod *corev1.Pod) bool { return len(pod.Spec.SchedulingGates) > 0 })
	})
	s.Patch(s.Pod(leader.Name), recovers)
	s.awaitFailed(set, leader)
	same(s.T, "recreations after that", true, s.Set("a").Status.Restarts == nil || s.Set("a").Status.Restarts[0].Recreations == nil)

	for range 3 { // its count begins anew
		leader = failing()
		s.crash(s.workerOf(leader).Name, 1)
		s.Eventually("the group ends", func() error {
			pod := s.Pod(leader.Name)
			return drill.Lacking("ended", true, pod == nil || s.stopped(pod.Name) == nil)
		})
		if s.Pod(leader.Name) == nil {
			s.awaitKeyed(set)
		}
	}
	s.Eventually("it is stopped again", func() error { return holds(s.Set("a"), lwsv1.LeaderWorkerSetDegraded, exceeded) })
	set = s.become(s.Set("a"), `{"spec":{"replicas":1}}`)
	s.Eventually("no place is left for it", func() error { return drill.Lacking("pods", 2, len(s.podsOf(set))) })
	expect.Equalf(s, healthy.UID, s.awaitKeyed(set)[0].UID, "%s was scaled away", healthy.Name)
}

// separateKeyed gives each group a topology domain of its own.
func (s *scene) separateKeyed() {
	set := s.newSet("a", 3, 3, imageA, withKeys, annotated(lwsv1.ExclusiveKeyAnnotationKey, rack), partsOf(3, lwsv1.SubGroupPolicyTypeLeaderWorker))
	s.Create(set)
	leader := s.awaitKeyed(set)[0]
	s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, rack, 3)
	s.crash(s.workerOf(leader).Name, 1)
	s.awaitFailed(set, leader)
	s.judgeDomains(set, lwsv1.GroupUniqueHashLabelKey, rack, 3)
}

// rejoinKeyed loses a worker, which comes back, and a leader, which takes its group along.
func (s *scene) rejoinKeyed() {
	set := s.newSet("a", 2, 2, imageA, withKeys, fakeapi.Policy(lwsv1.NoneRestartPolicy))
	s.Create(set)
	before := s.awaitKeyed(set)
	worker := s.workerOf(before[0])
	s.Remove(worker)
	drill.Another(s.Scene, worker)
	same(s.T, "leaders", podNames(before), podNames(s.awaitKeyed(set)))
	s.PatchStatus(before[0], `{"status":{"phase":"Failed","reason":"Evicted"}}`)
	after := s.awaitFailed(set, before[0])
	same(s.T, "the other group stays", true, slices.ContainsFunc(after, func(pod *corev1.Pod) bool { return pod.UID == before[1].UID }))
}

// resizeKeyed changes size and Services in a rollout that cannot end. Groups of either revision stay as they were made.
func (s *scene) resizeKeyed() {
	set := s.newSet("a", 2, 3, imageA, withKeys, budget(1, 0, 0))
	s.Create(set)
	old := s.awaitKeyed(set)
	set = s.become(s.Set("a"), `{"spec":{"networkConfig":{"subdomainPolicy":"UniquePerReplica"},"leaderWorkerTemplate":{"size":2,"workerTemplate":{"spec":{"nodeSelector":{"nowhere":"yes"}}}}}}`)
	s.Until("a group of the new size waits", func() bool {
		return slices.ContainsFunc(s.leadersOf(set), func(pod *corev1.Pod) bool {
			return pod.Annotations[lwsv1.SizeAnnotationKey] == "2" && len(pod.Spec.SchedulingGates) == 0
		})
	})
	stays := s.leadersOf(set)[slices.IndexFunc(s.leadersOf(set), func(pod *corev1.Pod) bool { return pod.UID == old[0].UID || pod.UID == old[1].UID })]
	s.unready(stays)
	if warned := s.Events(s.Set("a"), "FailedCreate"); len(warned) > 0 {
		s.Errorf("the user is told %v", warned[0].Note)
	}
}

// pauseKeyed changes the template of a paused set. Nothing is rolled, a group that fails comes back as it was, and the
// rollout goes on later.
func (s *scene) pauseKeyed() {
	set := s.newSet("a", 2, 2, imageA, withKeys, annotated(lwsv1.PausedAnnotationKey, "true"))
	s.Create(set)
	s.awaitKeyed(set)
	set = s.become(s.Set("a"), pull(imageB))
	leader := s.leadersOf(set)[0]
	s.crash(s.workerOf(leader).Name, 1)
	s.Eventually("group of "+leader.Name+" is gone", func() error { return drill.Lacking("pods", 0, len(s.groupOf(leader))) })
	s.Eventually("both groups are back", func() error { return s.mixed(set, imageA) })
	s.Patch(s.Set("a"), `{"metadata":{"annotations":{"lockstep.dev/paused":null}}}`)
	s.Eventually("all groups are new", func() error { return s.revisionsMissing(set) })
	s.awaitKeyed(set)
}

// Lockstep takes over sets of Hash groups of version 0.11, at rest, in mid-rollout and while leaders wait. Only
// the rollout replaces pods. Workers stay under the names that they have. Then Lockstep leaves again.
func TestTakeoverOfGroupsWithKeys(t *testing.T) {
	s := newScene(t)
	other := s.other(t)
	var all []*standinSet
	for _, v := range []otherSet{
		{name: "plain", replicas: 2, size: 3, edit: withKeys},
		{name: "alone", replicas: 2, size: 1, edit: withKeys},
		{name: "per-replica", replicas: 2, size: 2, edit: together(withKeys, uniquePerReplica)},
		{name: "rolls", replicas: 3, size: 2, edit: together(withKeys, budget(1, 0, 0))},
		{name: "waits", replicas: 2, size: 2, edit: withKeys},
	} {
		all = append(all, s.found(other, v))
	}
	rolls, waits := all[3], all[4]
	for _, e := range all[:4] {
		e.tendKeyed()
	}
	s.Eventually("leaders wait", func() error {
		leaders := s.leadersOf(waits.set)
		err := drill.Lacking("leaders", 2, len(leaders))
		for _, leader := range leaders {
			err = errors.Join(err, s.waitsForGroup(leader.Name))
		}
		return err
	})
	rolls.set = rolls.become(rolls.set, pull(imageB))
	rolls.record(2)
	rolls.apply(0, rolls.replicas)
	s.Until("a new leader waits", func() bool {
		return slices.ContainsFunc(s.leadersOf(rolls.set), func(pod *corev1.Pod) bool { return imageOf(pod) == imageB })
	})

	before, since := s.UIDs(), bed.Position()
	s.RestartOperator()
	for _, e := range all {
		s.awaitKeyed(e.set)
	}
	s.Eventually("the rollout is finished", func() error { return s.revisionsMissing(rolls.set) })
	s.awaitKeyed(rolls.set)
	outlast(t)
	after := s.UIDs()
	for _, e := range all {
		for _, pod := range s.podsOf(e.set) {
			was, there := before[pod.Name]
			isNew := e == rolls || e == waits && pod.Labels[lwsv1.WorkerIndexLabelKey] != "0"
			if !isNew && (!there || was != after[pod.Name]) {
				t.Errorf("set %s: pod %s is another one", e.name, pod.Name)
			}
		}
	}
	wrote := slices.DeleteFunc(s.LockstepWrote(since), func(r drill.Request) bool { return r.Resource != "deployments" })
	expect.That(t, len(wrote) <= len(all), "%d writes of Deployments: %v", len(wrote), wrote)
	s.silentAfterARestart()
	t.Run("handed back", func(t *testing.T) { keysHandedBack(t, s, other, all) })
}

// keysHandedBack uninstalls Lockstep. The next apply of the other implementation changes no leader Deployment, also of a
// set that Lockstep created, and no pod.
func keysHandedBack(t *testing.T, s *scene, other *standin.Other, all []*standinSet) {
	native := &standinSet{otherSet: otherSet{name: "native", replicas: 2, size: 2}, scene: s, other: other}
	native.set = s.newSet("native", 2, 2, imageA, withKeys)
	s.Create(native.set)
	s.awaitKeyed(native.set)
	native.key = s.revision(native.set).Labels[lwsv1.RevisionKey]

	mark := s.Changes()
	s.uninstalled()
	for _, e := range append(all, native) {
		s.Check("read", s.Client.Get(t.Context(), client.ObjectKeyFromObject(e.set), e.set))
		e.judged()
		was, now := &appsv1.Deployment{}, &appsv1.Deployment{}
		s.Check("read the deployment", s.Get(e.name, was))
		e.apply(0, e.replicas)
		s.Check("read the deployment", s.Get(e.name, now))
		same(t, "spec of the leaders of "+e.name, was.Spec, now.Spec)
	}
	same(t, "gone", "", names(s.Pick(func(r *drill.Record) bool { return r.Died > mark })))
	same(t, "made", "", names(bornSince[*corev1.Pod](s, mark)))
}

// tendKeyed makes the groups of leaders as 0.11 does.
func (e *standinSet) tendKeyed() {
	e.Eventually("the groups of set "+e.name+" stand", func() error {
		for _, leader := range e.leadersOf(e.set) {
			if len(leader.Spec.SchedulingGates) > 0 {
				return errors.Join(e.other.Lift(e.Context(), leader), drill.ErrStill)
			}
			if err := e.other.MakeHashGroup(e.Context(), e.set, leader); err != nil {
				return err
			}
			workers := slices.DeleteFunc(e.groupOf(leader), func(pod *corev1.Pod) bool { return pod.Name == leader.Name || !drill.PodReady(pod) })
			if len(workers) == int(e.size)-1 && !drill.PodReady(leader) {
				return errors.Join(e.other.SyncReadiness(e.Context(), leader), drill.ErrStill)
			}
		}
		return e.standing()
	})
}

// In Parallel, every pod of a Hash group is deleted before the first of them is gone: as its leader is deleted,
// and as its set is.
func TestAGroupWithAKeyEndsInParallel(t *testing.T) {
	s := asideScene(t)
	set := s.newSet("a", 2, 3, imageA, withKeys, vanishing("3s", lwsv1.ParallelPodTermination))
	s.Create(set)
	leaders, before := s.awaitKeyed(set), s.UIDs()
	s.Remove(leaders[0])
	s.awaitEnd(before, true, leaders[0].Name)
	leaders, before = s.awaitKeyed(set), s.UIDs()
	s.Remove(s.Set("a"), propagation(metav1.DeletePropagationBackground))
	s.awaitEnd(before, true, podNames(leaders)...)
}
