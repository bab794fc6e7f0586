package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/standin"
)

// gangFlags are those of an operator whose sets with spec.scheduling are placed by a scheduler.
func gangFlags(t *testing.T, scheduler string) []string {
	return configured(t, "featureGates: {WorkloadAwareScheduling: true}\ngangSchedulingManagement: {schedulerProvider: "+scheduler+"}\n")
}

// levels are spec.scheduling at each level. The roles of a group are gangs of their own.
var levels = map[string]string{
	"lws":     `{schedulingPolicy: {gang: {}}}`,
	"replica": `{}`,
	"role":    `{replica: {leader: {}, worker: {schedulingPolicy: {gang: {}}}}}`,
}

// withNativeGangs switches on, until the test ends, that Kubernetes' own scheduler places gangs. It returns the
// flags of the operator.
func withNativeGangs(t *testing.T) []string {
	t.Helper()
	become := func(gate string, flags ...string) error {
		return errors.Join(bed.Operator.Kill(), serveGangs(gate), bed.Operator.Start(flags...))
	}
	t.Cleanup(func() { must(t, become("false")) })
	flags := gangFlags(t, "kubernetes")
	must(t, become("true", flags...))
	return flags
}

// serveGangs restarts the control plane with a value of the feature gate of gangs.
func serveGangs(gate string) error {
	flags := []string{"--feature-gates", "GenericWorkload=" + gate}
	return errors.Join(bed.Plane.Restart(apiServer, flags...), bed.Plane.Restart(controllerManager, flags...), bed.Plane.Restart(scheduler, flags...))
}

// scheduledAs adds spec.scheduling.
func scheduledAs(text string) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.Scheduling = &lwsv1.Scheduling{}
		if err := yaml.UnmarshalStrict([]byte(text), set.Spec.Scheduling); err != nil {
			panic(err)
		}
	}
}

// onNode keeps the pods of a set on one node, of which each takes a part.
func onNode(node string, cpu int64) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		spec := &set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec
		spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI)}
	}
}

// nativePodGroups returns the PodGroups of the scene by name.
func (s *scene) nativePodGroups() map[string]*schedulingv1beta1.PodGroup {
	var list schedulingv1beta1.PodGroupList
	s.Check("list PodGroups", s.Client.List(s.Context(), &list, client.InNamespace(s.Namespace)))
	all := map[string]*schedulingv1beta1.PodGroup{}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all
}

// groupedWrongly names a pod of a set that is in no PodGroup, or a PodGroup that waits for another number of
// pods than are in it, or that has no pods.
func (s *scene) groupedWrongly(set *lwsv1.LeaderWorkerSet) error {
	members, all := map[string]int{}, s.nativePodGroups()
	for _, pod := range s.podsOf(set) {
		group := pod.Spec.SchedulingGroup
		if group == nil || all[*group.PodGroupName] == nil {
			return fmt.Errorf("pod %s is in no PodGroup: %v", pod.Name, group)
		}
		members[*group.PodGroupName]++
	}
	for name, group := range all {
		want := 0
		if gang := group.Spec.SchedulingPolicy.Gang; gang != nil {
			want = int(gang.MinCount)
		}
		if members[name] == 0 || want > 0 && members[name] != want || group.DeletionTimestamp != nil {
			return fmt.Errorf("PodGroup %s (deleted %v) has %d pods, and waits for %d", name, group.DeletionTimestamp, members[name], want)
		}
	}
	created := string(lwsv1.LeaderWorkerSetWorkloadSchedulingCreated)
	return holds(s.Set(set.Name), lwsv1.LeaderWorkerSetConditionType(created), "SchedulingObjectsCreated")
}

// awaitGrouped waits until a set is settled, with all of its pods in PodGroups.
func (s *scene) awaitGrouped(what string, set *lwsv1.LeaderWorkerSet) *lwsv1.LeaderWorkerSet {
	set = s.awaitSettled(set)
	s.Eventually(what+": all pods are in PodGroups, and no other is left", func() error { return s.groupedWrongly(set) })
	return set
}

// TestNativeGangs places sets by Kubernetes' own scheduler, at each level.
func TestNativeGangs(t *testing.T) {
	withNativeGangs(t)
	for _, level := range []string{"lws", "replica"} {
		t.Run("two sets, room for one, level "+level, func(t *testing.T) { roomForOne(newScene(t), levels[level]) })
	}
	for level := range levels {
		t.Run("a life, level "+level, func(t *testing.T) { gangLife(newScene(t), levels[level]) })
	}
	for level := range levels {
		t.Run("groups with keys, level "+level, func(t *testing.T) { gangLife(newScene(t), levels[level], withKeys, slowly("2s")) })
	}
	t.Run("a leader that is recreated", func(t *testing.T) { recreatedLeader(newScene(t)) })
}

// roomForOne creates two sets that each need a whole node. One runs, and no pod of the other has a node until the
// first is gone.
func roomForOne(s *scene, scheduling string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.aNode()}}
	s.Check("read the node", s.Read(node))
	cpus := node.Status.Allocatable.Cpu().Value()
	replicas := int32(1)
	if strings.Contains(scheduling, "gang") { // all groups are one gang
		replicas = 2
	}
	names := []string{"a", "b"}
	for _, name := range names {
		s.Create(s.newSet(name, replicas, 8/replicas, imageA, scheduledAs(scheduling), onNode(node.Labels[corev1.LabelHostname], cpus/8)))
	}
	var winner string
	s.Eventually("one set runs", func() error {
		for _, name := range names {
			if set := s.Set(name); set != nil && s.unsettled(set) == nil {
				winner = name
				return nil
			}
		}
		return drill.ErrStill
	})
	loser := names[1-slices.Index(names, winner)]
	checkNone := func() {
		for _, pod := range s.Pods() {
			expect.Must(s, pod.Labels[lwsv1.SetNameLabelKey] != loser || pod.Spec.NodeName == "",
				"pod %s of a gang without room has node %s", pod.Name, pod.Spec.NodeName)
		}
	}
	s.Eventually("the other set has all of its pods", func() error { return drill.Lacking("pods", 8, len(s.podsOf(s.Set(loser)))) })
	outlast(s.T)
	checkNone()
	s.Remove(s.Set(winner))
	s.awaitGrouped("with room", s.Set(loser))
	s.Remove(s.Set(loser))
	s.awaitNoGangs()
}

// awaitNoGangs waits until no PodGroup and no Workload of the scene is left.
func (s *scene) awaitNoGangs() {
	s.Eventually("no PodGroup and no Workload is left", func() error {
		var list schedulingv1beta1.WorkloadList
		err := s.Client.List(s.Context(), &list, client.InNamespace(s.Namespace))
		return errors.Join(err, drill.Lacking("PodGroups", 0, len(s.nativePodGroups())), drill.Lacking("Workloads", 0, len(list.Items)))
	})
}

// gangLife scales a set up and down, to nothing and back, rolls it with surge, changes its size, and restarts the
// operator. No PodGroup waits for pods that do not come, and none is left.
func gangLife(s *scene, scheduling string, how ...edit) {
	set := s.newSet("a", 2, 3, imageA, scheduledAs(scheduling), budget(1, 1, 0), together(how...))
	s.Create(set)
	set = s.awaitGrouped("created", set)
	mark := bed.Position()
	set = s.awaitGrouped("scaled up", s.become(set, `{"spec":{"replicas":4}}`))
	if scheduling == levels["lws"] && len(how) == 0 {
		wrote := s.LockstepWrote(mark) // the count of the gang before its leaders
		leaders := slices.IndexFunc(wrote, func(w drill.Request) bool { return w.Resource == "statefulsets" && w.Name == set.Name })
		count := slices.IndexFunc(wrote, func(w drill.Request) bool { return w.Resource == "podgroups" })
		s.Check("the count was raised before leaders were created", drill.Lacking("so", true, count >= 0 && count < leaders))
	}
	s.become(set, `{"spec":{"replicas":0}}`)
	set = s.awaitGrouped("scaled to nothing and back at once", s.become(s.Set("a"), `{"spec":{"replicas":2}}`))
	for _, step := range []struct{ name, change string }{
		{"scaled down", `{"spec":{"replicas":1}}`},
		{"scaled to nothing", `{"spec":{"replicas":0}}`},
		{"scaled back", `{"spec":{"replicas":3}}`},
		{"rolled with surge", pull(imageB)},
		{"larger", `{"spec":{"leaderWorkerTemplate":{"size":5}}}`},
		{"smaller", `{"spec":{"leaderWorkerTemplate":{"size":2}}}`},
		{"smaller, and fewer", `{"spec":{"replicas":2,"leaderWorkerTemplate":{"size":3}}}`},
	} {
		set = s.awaitGrouped(step.name, s.become(set, step.change))
	}
	mark = bed.Position()
	s.restartGroup(set, s.leadersOf(set)[1].Name)
	s.awaitGrouped("restarted", set)
	s.Remove(s.workerOf(s.leadersOf(set)[0]))
	s.awaitGrouped("after a worker was lost", set)
	for _, w := range s.LockstepWrote(mark) {
		expect.That(s, w.Resource != "workloads", "the Workload was written though nothing changed: %s", w)
	}
	s.Remove(set)
	s.awaitNoGangs()
}

// TestTakeoverOfNativeGangs: the Workload, the PodGroups and the pods of a set of version 0.11 stay as they are.
func TestTakeoverOfNativeGangs(t *testing.T) {
	flags := withNativeGangs(t)
	for _, level := range []string{standin.WholeSet, standin.EachGroup} {
		t.Run("level "+level, func(t *testing.T) { gangsTakenOver(t, flags, level) })
	}
}

// gangsTakenOver creates a set as version 0.11 does, lets Lockstep run, and then scales the set and recreates a group.
// At level replica the names of PodGroups are those of a later version: the webhook adds to them. The unit test
// TestPodGroupsOf011Stay has those of version 0.11.
func gangsTakenOver(t *testing.T, flags []string, level string) {
	s := newScene(t)
	other, err := standin.New(bed.Rest)
	s.Check("stand in", err)
	s.Check("serve webhooks alone", errors.Join(bed.Operator.Kill(), bed.Operator.Start(append(flags, "--controllers=")...)))
	e := &standinSet{otherSet: otherSet{name: "a", replicas: 2, size: 2}, scene: s, other: other}
	e.set = s.newSet("a", 2, 2, imageA, scheduledAs(levels[level]), uniquePerReplica)
	s.Create(e.set)
	s.Check("describe the set", other.Describe(s.Context(), e.set, level))
	e.spoil = standin.AsScheduled(level, standin.WorkloadName(e.set))
	e.workers = func(sts *appsv1.StatefulSet) {
		standin.AsScheduled(level, s.Pod(sts.Name).Annotations[lwsv1.WorkloadNameAnnotationKey])(sts)
	}
	e.record(1)
	e.keys = []string{e.key, e.key}
	e.apply(0, 2)
	for _, name := range []string{"a-0", "a-1"} {
		s.Until("leader "+name+" is there", func() bool { return s.Pod(name) != nil })
		if level == standin.EachGroup {
			s.Check("describe the group of leader "+name, other.DescribeGroup(s.Context(), e.set, s.Pod(name)))
		}
	}
	e.tend()
	e.tell(2, false)
	uids := func() map[string]types.UID {
		uids := s.UIDs()
		for name, group := range s.nativePodGroups() {
			uids[name] = group.UID
		}
		return uids
	}
	before, templates, mark := uids(), s.templates(), bed.Position()
	s.Check("let the controllers run", errors.Join(bed.Operator.Kill(), bed.Operator.Start(flags...)))
	s.awaitGrouped("taken over", e.set)
	outlast(t)
	same(t, "pods and PodGroups", before, uids())
	unchangedTemplates(t, s, templates)
	for _, w := range s.LockstepWrote(mark) {
		expect.That(t, w.Resource != "podgroups" && w.Resource != "workloads", "Lockstep wrote %s", w)
	}
	set := s.awaitGrouped("scaled", s.become(e.set, `{"spec":{"replicas":3}}`))
	s.restartGroup(set, "a-0")
	s.Remove(s.awaitGrouped("a group recreated", set))
	s.awaitNoGangs()
}

// TestNativeGangsNeedTheirAPI: a new set is refused while the API server does not serve PodGroups. A set that runs goes
// on, and says what is missing.
func TestNativeGangsNeedTheirAPI(t *testing.T) {
	withNativeGangs(t)
	s := newScene(t)
	set := s.settled(s.newSet("a", 1, 2, imageA, scheduledAs(levels["replica"])))
	set = s.awaitGrouped("created", set)
	s.Check("serve no PodGroups", serveGangs("false"))
	created := string(lwsv1.LeaderWorkerSetWorkloadSchedulingCreated)
	s.Eventually("the set says what is missing", func() error {
		told := meta.FindStatusCondition(s.Set("a").Status.Conditions, created)
		return drill.Lacking("reason of "+created, "APINotAvailable", told.Reason)
	})
	s.Eventually("a new set is refused", func() error {
		err := s.Client.Create(s.Context(), s.newSet("b", 1, 2, imageA, scheduledAs(levels["replica"])), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "scheduling.k8s.io/v1beta1 Workload API is not available") {
			return fmt.Errorf("it is not refused: %w", err)
		}
		return nil
	})
	set = s.awaitSettled(s.become(set, `{"spec":{"replicas":2}}`))
	s.prints("does not serve scheduling.k8s.io/v1beta1", "status", "a")
	s.Check("serve PodGroups", serveGangs("true"))
	s.awaitHolds("a", lwsv1.LeaderWorkerSetWorkloadSchedulingCreated, "SchedulingObjectsCreated")
	s.restartGroup(set, "a-1")
	s.Remove(s.awaitGrouped("served again", set))
	s.awaitNoGangs()
}

// TestVolcanoPlacesSetsWithScheduling: each leader owns a PodGroup of Volcano, as where the set names Volcano. No pod
// is in a PodGroup of Kubernetes.
func TestVolcanoPlacesSetsWithScheduling(t *testing.T) {
	must(t, errors.Join(bed.Operator.Kill(), bed.Operator.Start(gangFlags(t, "volcano")...)))
	t.Cleanup(func() { must(t, errors.Join(bed.Operator.Kill(), bed.Operator.Start())) })
	s := newScene(t)
	s.Lend(s.podGroupDefinition())
	set := s.settled(s.newSet("a", 2, 3, imageA, scheduledAs(levels["replica"])))
	s.Eventually("both groups are gangs", func() error { return s.notGangs(set, 0, 1) })
	s.restartGroup(set, "a-1")
	s.Eventually("both groups are gangs again", func() error { return s.notGangs(set, 0, 1) })
	for _, pod := range s.podsOf(set) {
		expect.That(t, pod.Spec.SchedulingGroup == nil && pod.Annotations[lwsv1.WorkloadNameAnnotationKey] == "",
			"pod %s is in a PodGroup of Kubernetes: %v", pod.Name, pod.Spec.SchedulingGroup)
	}
	err := s.Client.Create(s.Context(), s.newSet("b", 2, 3, imageA, scheduledAs(levels["lws"])))
	expect.ErrorSays(t, err, "the Volcano provider supports the typed API only at replica level")
	s.Remove(set)
	s.awaitNothing(set.UID)
}

// recreatedLeader keeps the PodGroup of a leader that was deleted: the next one does not wait for it.
func recreatedLeader(s *scene) {
	set := s.newSet("a", 1, 3, imageA, scheduledAs(levels["replica"]))
	s.Create(set)
	set = s.awaitGrouped("created", set)
	for range 3 {
		leader := s.Pod("a-0")
		former := s.nativePodGroups()[*leader.Spec.SchedulingGroup.PodGroupName]
		s.Patch(former, fmt.Sprintf(`{"metadata":{"finalizers":[%q,"scheduling.k8s.io/podgroup-protection"]}}`, foreign))
		s.Remove(leader)
		next := drill.Another(s.Scene, leader)
		s.awaitSettled(set)
		expect.Must(s, *next.Spec.SchedulingGroup.PodGroupName != former.Name,
			"leader %s (%s) is in the PodGroup of its predecessor", next.Name, next.UID)
		s.Eventually("the former PodGroup is deleted", func() error {
			return drill.Lacking("is terminating", true, s.nativePodGroups()[former.Name].DeletionTimestamp != nil)
		})
		s.Patch(former, drill.NoFinalizers)
		s.awaitGrouped("recreated", set)
	}
}
