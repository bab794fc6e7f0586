package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/drill"
)

// drained is the label of the pods that a drain of these tests evicts, whatever else is on the node.
const drained = "drained-by"

// byGroup limits evictions of a set.
func byGroup(set *lwsv1.LeaderWorkerSet) {
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, workload.DisruptionBudgetAnnotationKey, workload.DisruptionByGroup)
}

// spreadOver places one pod of each group on each of some nodes, while they can take pods.
func (s *scene) spreadOver(names ...string) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		template := &set.Spec.LeaderWorkerTemplate.WorkerTemplate
		metav1.SetMetaDataLabel(&template.ObjectMeta, drained, s.Namespace)
		template.Spec.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
				Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: names},
				}},
			}}},
			PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey:    corev1.LabelHostname,
				LabelSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{drained: s.Namespace}},
				MatchLabelKeys: []string{lwsv1.GroupIndexLabelKey},
			}}},
		}
	}
}

// drain runs kubectl drain, and uncordons the nodes when the test ends.
func (s *scene) drain(names ...string) error {
	local, err := drill.Program("lockstep-local")
	if err != nil {
		return err
	}
	s.Cleanup(func() {
		for _, name := range names {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			_ = s.Client.Patch(context.Background(), node, drill.Merge(`{"spec":{"unschedulable":null}}`))
		}
	})
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Minute)
	defer cancel()
	kubectl := exec.CommandContext(ctx, local, append([]string{"kubectl", "--kubeconfig", bed.Plane.Kubeconfig(), "drain",
		"--ignore-daemonsets", "--delete-emptydir-data", "--force", "--pod-selector", drained + "=" + s.Namespace}, names...)...)
	if said, err := kubectl.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

// watchReady returns the lowest number of ready groups so far.
func (s *scene) watchReady(set *lwsv1.LeaderWorkerSet) *atomic.Int32 {
	lowest := &atomic.Int32{}
	lowest.Store(workload.Replicas(set))
	go func() {
		for s.Context().Err() == nil {
			change := s.Next()
			lowest.Store(min(lowest.Load(), int32(len(s.readyGroups(set)))))
			select {
			case <-change:
			case <-s.Context().Done():
			}
		}
	}()
	return lowest
}

// limited creates a set whose evictions are limited, and waits until one is allowed.
func (s *scene) limited(set *lwsv1.LeaderWorkerSet) *lwsv1.LeaderWorkerSet {
	set = s.settled(set)
	s.awaitAllowed(1)
	return set
}

// awaitAllowed waits until the budget of set a allows so many disruptions.
func (s *scene) awaitAllowed(want int32) {
	s.Eventually(fmt.Sprintf("%d disruptions are allowed", want), func() error {
		budget := &policyv1.PodDisruptionBudget{}
		if err := s.Get("a.groups", budget); err != nil {
			return err
		}
		if is := budget.Status; is.ObservedGeneration != budget.Generation || is.DisruptionsAllowed != want {
			return fmt.Errorf("minAvailable is %s: %+v", budget.Spec.MinAvailable, is)
		}
		return nil
	})
}

// drainAll drains nodes at once, each by a command of its own, and checks that each group was recreated once, one
// after the other. A leader that was evicted while it was gated had no node: it does not count.
func drainAll(s *scene, replicas, size int32, vanish string, names ...string) {
	set := s.limited(s.newSet("a", replicas, size, imageA, byGroup, slowly(vanish), s.spreadOver(names...)))
	s.wantDrained(set, vanish != "", func() {
		var drains sync.WaitGroup
		for _, name := range names {
			drains.Go(func() { s.Want("drain node "+name, s.drain(name)) })
		}
		drains.Wait()
	})
}

// wantDrained drains nodes that host a pod of each group of a set, and checks the rest.
func (s *scene) wantDrained(set *lwsv1.LeaderWorkerSet, isSlow bool, drain func()) {
	replicas, size := workload.Replicas(set), workload.Size(set)
	mark, lowest := s.Changes(), s.watchReady(set)
	drain()
	s.awaitSettled(set)
	s.awaitAllowed(1)
	if n := lowest.Load(); n < replicas-1 {
		s.Errorf("only %d groups were ready, want %d", n, replicas-1)
	}
	placed := map[string]int{}
	for _, pod := range s.Pick(func(r *drill.Record) bool { return r.Kind == "Pod" && r.Born > mark && r.Bound > 0 }) {
		placed[pod.Last.GetLabels()[lwsv1.GroupIndexLabelKey]]++
	}
	for group, n := range placed {
		if n > int(size)+1 || n > int(size) && isSlow { // a pod that is gone at once is replaced before the group is deleted
			s.Errorf("%d pods of group %s were scheduled, want %d", n, group, size)
		}
	}
	if len(placed) != int(replicas) {
		s.Errorf("groups %v were recreated, want all %d", placed, replicas)
	}
	for _, r := range s.Set("a").Status.Restarts {
		if len(r.Failures) != 1 || isSlow && r.HeldUntil == nil { // a pod that is gone leaves no evidence of its eviction
			s.Errorf("group %d failed %d times, and is held until %s", r.Index, len(r.Failures), r.HeldUntil)
		}
	}
}

// Two nodes that each host a pod of both groups are drained at once.
func TestADrainTakesOneGroupAtATime(t *testing.T) {
	drainAll(newScene(t), 2, 2, "1s", "node-018", "node-019")
}

// Four nodes that each host a pod of every group are drained at once: none of four groups stays ready without a budget.
func TestFourDrainsTakeOneGroupAtATime(t *testing.T) {
	drainAll(newScene(t), 4, 4, "3s", "node-016", "node-017", "node-018", "node-019")
}

// Four nodes of one group are drained by one command, and then one node that hosts a pod of each of three groups.
func TestADrainRecreatesEachGroupOnce(t *testing.T) {
	s := newScene(t)
	names := []string{"node-016", "node-017", "node-018", "node-019"}
	set := s.limited(s.newSet("a", 1, 4, imageA, byGroup, slowly("1s"), s.spreadOver(names...)))
	s.wantDrained(set, true, func() { s.Want("drain four nodes", s.drain(names...)) })

	s = newScene(t)
	set = s.limited(s.newSet("a", 3, 2, imageA, byGroup, slowly("1s"), s.spreadOver("node-015")))
	s.wantDrained(set, true, func() { s.Want("drain one node", s.drain("node-015")) })
}

// An operator that is killed after an eviction was admitted recreates that group once, and no other is evicted before.
func TestADrainOutlivesTheOperator(t *testing.T) {
	s := newScene(t)
	names := []string{"node-018", "node-019"}
	set := s.limited(s.newSet("a", 2, 2, imageA, byGroup, slowly("3s"), s.spreadOver(names...)))
	s.wantDrained(set, false, func() {
		var drains sync.WaitGroup
		for _, name := range names {
			drains.Go(func() { s.Want("drain node "+name, s.drain(name)) })
		}
		s.Until("a pod is evicted", func() bool { return len(s.readyGroups(set)) < 2 })
		s.Check("kill the operator", bed.Operator.Kill())
		s.Until("the pod is gone", func() bool { return len(s.Pods()) < 4 }) // no webhook admits another one
		s.Check("start the operator", bed.Operator.Start())
		drains.Wait()
	})
}

// A budget of a user takes the place of ours, and a set without the annotation has none.
func TestABudgetOfAUserTakesThePlaceOfOurs(t *testing.T) {
	s := asideScene(t)
	set := s.limited(s.newSet("a", 2, 2, imageA, byGroup))
	theirs := &policyv1.PodDisruptionBudget{ObjectMeta: s.Meta("team"), Spec: *workload.DisruptionBudget(set, 1).Spec.DeepCopy()}
	s.Create(theirs)
	s.awaitBudget("team", "OtherBudget")
	s.prints("not limited: PodDisruptionBudget team", "status", "a")
	s.Remove(theirs)
	s.awaitBudget("a.groups", "")
	s.prints("1 group may go", "status", "a")

	s.Patch(s.Set("a"), fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, workload.DisruptionBudgetAnnotationKey))
	s.awaitBudget("", "")
}

// awaitBudget waits until a namespace has one budget, or none, and set a says why it lacks its own.
func (s *scene) awaitBudget(name, reason string) {
	s.Eventually(fmt.Sprintf("the budget is %q", name), func() error {
		var list policyv1.PodDisruptionBudgetList
		if err := s.Client.List(s.Context(), &list, client.InNamespace(s.Namespace)); err != nil {
			return err
		}
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		says := ""
		for _, c := range s.Set("a").Status.Conditions {
			if c.Type == lwsset.ConditionBudgetMissing && c.Status == metav1.ConditionTrue {
				says = c.Reason
			}
		}
		if is := strings.Join(names, " "); is != name || says != reason {
			return fmt.Errorf("budgets are %q, and the condition says %q", is, says)
		}
		return nil
	})
}

// A rollout closes the budget before it replaces the first group, and opens it again.
func TestARolloutClosesTheBudget(t *testing.T) {
	s := asideScene(t)
	set := s.limited(s.newSet("a", 3, 2, imageA, byGroup))
	var opened atomic.Int32
	ctx, end := context.WithCancel(s.Context())
	s.Check("watch budgets", drill.Watch(ctx, s.Client, s.Namespace, []client.ObjectList{&policyv1.PodDisruptionBudgetList{}}, func(o client.Object, _ bool) {
		budget := o.(*policyv1.PodDisruptionBudget)
		rolling := s.StatefulSet("a")
		if rolling == nil || rolling.Spec.UpdateStrategy.RollingUpdate == nil || rolling.Spec.UpdateStrategy.RollingUpdate.Partition == nil {
			return
		}
		if p := *rolling.Spec.UpdateStrategy.RollingUpdate.Partition; p > 0 && p < 3 && budget.Spec.MinAvailable.IntVal < 6 {
			opened.Add(1)
		}
	}))
	set = s.become(set, pull(imageB))
	s.awaitAllowed(0)
	s.awaitSettled(set)
	end()
	s.awaitAllowed(1)
	if n := opened.Load(); n > 0 {
		s.Errorf("the budget was open %d times while groups were replaced", n)
	}
}
