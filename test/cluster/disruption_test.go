package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// ofScene is the taint and the label of nodes that take the pods of one scene alone.
const ofScene = "test.lockstep.dev/scene"

// lendNodes lends the scene nodes that take its pods alone: what becomes of them disturbs no other scene.
func (s *scene) lendNodes(n int) (names []string) {
	like := &corev1.Node{}
	s.Check("read a node", s.Client.Get(s.Context(), client.ObjectKey{Name: s.aNode()}, like))
	taints := []corev1.Taint{{Key: ofScene, Value: s.Namespace, Effect: corev1.TaintEffectNoSchedule}}
	for i := range n {
		name := fmt.Sprintf("%s-node-%d", s.Namespace, i)
		node := &corev1.Node{Status: like.Status, Spec: corev1.NodeSpec{Taints: taints}, ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}, Labels: map[string]string{corev1.LabelHostname: name, ofScene: s.Namespace},
		}}
		s.Lend(node)
		s.awaitTaints(name, 1)
		names = append(names, name)
	}
	return names
}

// awaitTaints waits until a node has so many taints, its own included.
func (s *scene) awaitTaints(name string, want int) {
	s.Eventually(fmt.Sprintf("node %s has %d taints", name, want), func() error {
		node := &corev1.Node{}
		err := s.Client.Get(s.Context(), client.ObjectKey{Name: name}, node)
		return errors.Join(err, drill.Lacking("taints", want, len(node.Spec.Taints)))
	})
}

// byGroup limits evictions of a set.
func byGroup(set *lwsv1.LeaderWorkerSet) {
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, workload.DisruptionBudgetAnnotationKey, workload.DisruptionByGroup)
}

// spreadOver places one pod of each group on each of some nodes of the scene, while they can take pods.
func (s *scene) spreadOver(names ...string) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		template := &set.Spec.LeaderWorkerTemplate.WorkerTemplate
		template.Spec.Tolerations = append(template.Spec.Tolerations, corev1.Toleration{Key: ofScene, Value: s.Namespace})
		template.Spec.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
				Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: names},
				}},
			}}},
			PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey:    corev1.LabelHostname,
				LabelSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{lwsv1.SetNameLabelKey: set.Name}},
				MatchLabelKeys: []string{lwsv1.GroupIndexLabelKey},
			}}},
		}
	}
}

// drain runs kubectl drain.
func (s *scene) drain(names ...string) error {
	local, err := drill.Program("lockstep-local")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Minute)
	defer cancel()
	kubectl := exec.CommandContext(ctx, local, append([]string{"kubectl", "--kubeconfig", bed.Plane.Kubeconfig(), "drain",
		"--ignore-daemonsets", "--delete-emptydir-data", "--force"}, names...)...)
	if said, err := kubectl.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

// drainEach drains nodes at once, each by a command of its own, and returns what waits for the ends.
func (s *scene) drainEach(names ...string) (wait func()) {
	var drains sync.WaitGroup
	for _, name := range names {
		drains.Go(func() { s.Want("drain node "+name, s.drain(name)) })
	}
	return drains.Wait
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
		err := s.Get("a.groups", budget)
		return errors.Join(err, drill.Lacking("observed generation", budget.Generation, budget.Status.ObservedGeneration),
			drill.Lacking("disruptions allowed", want, budget.Status.DisruptionsAllowed))
	})
}

// witness records what a scene sees of a set whose evictions are limited.
type witness struct {
	*scene
	set    *lwsv1.LeaderWorkerSet
	mark   int
	lowest atomic.Int32 // ready groups
	most   atomic.Int32 // disruptions allowed
}

// witness begins to watch a set.
func (s *scene) witness(set *lwsv1.LeaderWorkerSet) *witness {
	w := &witness{scene: s, set: set, mark: s.Changes()}
	w.lowest.Store(workload.Replicas(set))
	go func() {
		for s.Context().Err() == nil {
			change := s.Next()
			w.lowest.Store(min(w.lowest.Load(), int32(len(s.readyGroups(set)))))
			select {
			case <-change:
			case <-s.Context().Done():
			}
		}
	}()
	s.Check("watch budgets", drill.Watch(s.Context(), s.Client, s.Namespace, []client.ObjectList{&policyv1.PodDisruptionBudgetList{}}, func(o client.Object, _ bool) {
		w.most.Store(max(w.most.Load(), o.(*policyv1.PodDisruptionBudget).Status.DisruptionsAllowed))
	}))
	return w
}

// settles waits until the set is settled, and one group may be evicted. Fewer groups were never ready, and evictions of
// more than one pod were never allowed.
func (w *witness) settles(least int32) {
	w.set = w.awaitSettled(w.set)
	w.awaitAllowed(1)
	expect.That(w, w.lowest.Load() >= least, "only %d groups were ready, want %d", w.lowest.Load(), least)
	expect.That(w, w.most.Load() <= 1, "%d evictions were allowed at once", w.most.Load())
}

// recreated checks that each group was recreated once, one after the other. A leader that was evicted while it was gated
// had no node: it does not count. Of so many groups a pod may be gone before the operator reads it: it leaves no evidence,
// and its StatefulSet may replace it before the group is deleted.
func (w *witness) recreated(unread int) {
	replicas, size := int(workload.Replicas(w.set)), int(workload.Size(w.set))
	w.settles(int32(replicas) - 1)
	placed, spare := map[string]int{}, unread
	for _, pod := range w.Pick(func(r *drill.Record) bool { return r.Kind == "Pod" && r.Born > w.mark && r.Bound > 0 }) {
		placed[pod.Last.GetLabels()[lwsv1.GroupIndexLabelKey]]++
	}
	for group, n := range placed {
		spare -= n - size
		expect.That(w, n >= size && spare >= 0, "%d pods of group %s were scheduled, want %d", n, group, size)
	}
	expect.That(w, len(placed) == replicas, "groups %v were recreated, want all %d", placed, replicas)
	for _, r := range w.set.Status.Restarts {
		isHeld := r.HeldUntil != nil || w.set.Spec.GroupIdentity == lwsv1.HashGroupIdentity
		if unread -= int(lws.One(!isHeld || r.Count > 0)); len(r.Failures) != 1 || unread < 0 {
			w.Errorf("group %d failed %d times, counts %d, and is held until %s", r.Index, len(r.Failures), r.Count, r.HeldUntil)
		}
	}
}

// drainAll drains nodes at once that host a pod of each group, each by a command of its own, and checks that each group
// was recreated once, one after the other.
func drainAll(s *scene, replicas, size int32, vanish string, edits ...edit) {
	names := s.lendNodes(max(2, int(size)))
	w := s.witness(s.limited(s.newSet("a", replicas, size, imageA, append(append([]edit{slowly(vanish)}, edits...), byGroup, s.spreadOver(names...))...)))
	s.drainEach(names...)()
	w.recreated(0)
}

// Two nodes that each host a pod of both groups are drained at once.
func TestADrainTakesOneGroupAtATime(t *testing.T) { drainAll(asideScene(t), 2, 2, "1s") }

// Nodes that each host a pod of every group are drained at once: without a budget, no group stays ready.
func TestDrainsTakeOneGroupAtATime(t *testing.T) {
	aside(t)
	type row struct {
		replicas, size int32
		edit           edit
	}
	each(t, map[string]row{
		"four nodes":         {4, 4, nil},
		"ready after a time": {2, 2, readyAfter("5s")},
		"workers later":      {2, 2, func(set *lwsv1.LeaderWorkerSet) { set.Spec.StartupPolicy = lwsv1.LeaderReadyStartupPolicy }},
		"no workers":         {3, 1, nil},
		"no restart allowed": {2, 2, limited(new(int32(0)))},
		"with keys":          {2, 2, withKeys},
	}, func(s *scene, row row) { drainAll(s, row.replicas, row.size, "3s", row.edit) })
}

// drainer is a client that evicts the pods of a node, and is not kubectl.
type drainer struct {
	byUID        bool // not by name
	every, limit time.Duration
}

// drain evicts the pods of a node that takes no more.
func (d drainer) drain(s *scene, name string) error {
	node, ends := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, make(chan error)
	if err := s.Client.Patch(s.Context(), node, drill.Merge(`{"spec":{"unschedulable":true}}`)); err != nil {
		return err
	}
	victims := s.on(name)
	for _, pod := range victims {
		go func() { ends <- d.evict(s, pod) }()
	}
	var all []error
	for range victims {
		all = append(all, <-ends)
	}
	return errors.Join(all...)
}

// evict asks again until a pod is evicted or gone.
func (d drainer) evict(s *scene, pod *corev1.Pod) error {
	return wait.PollUntilContextTimeout(s.Context(), d.every, d.limit, true, func(ctx context.Context) (bool, error) {
		eviction := &policyv1.Eviction{ObjectMeta: s.Meta(pod.Name)}
		if d.byUID {
			eviction.DeleteOptions = &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
		}
		switch err := s.Client.SubResource("eviction").Create(ctx, pod.DeepCopy(), eviction); {
		case apierrors.IsTooManyRequests(err):
			return false, nil
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			return true, nil
		default:
			return err == nil, err
		}
	})
}

// Two nodes that each host a pod of both groups are drained at once, as Karpenter and as the cluster autoscaler do.
func TestOtherDrainersTakeOneGroupAtATime(t *testing.T) {
	aside(t)
	each(t, map[string]drainer{
		"by UID":  {true, time.Second, 5 * time.Minute},
		"by name": {false, 10 * time.Second, 2 * time.Minute},
	}, func(s *scene, d drainer) {
		names := s.lendNodes(2)
		w := s.witness(s.limited(s.newSet("a", 2, 2, imageA, byGroup, slowly("1s"), s.spreadOver(names...))))
		var drains sync.WaitGroup
		for _, name := range names {
			drains.Go(func() { s.Want("drain node "+name, d.drain(s, name)) })
		}
		drains.Wait()
		w.recreated(0)
	})
}

// A client evicts pods of every group at once and takes a refusal for an answer, as the descheduler does: one group is
// recreated.
func TestOfManyEvictionsOneIsAdmitted(t *testing.T) {
	s := asideScene(t)
	w := s.witness(s.limited(s.newSet("a", 3, 2, imageA, byGroup, slowly("1s"))))
	admitted := 0
	for _, pod := range s.Pods() {
		switch err := s.askedToGo(pod); {
		case err == nil:
			admitted++
		case !apierrors.IsTooManyRequests(err):
			s.Check("evict pod "+pod.Name, err)
		}
	}
	same(t, "evictions that were admitted", 1, admitted)
	w.settles(2)
	s.wantBorn(w.set.UID, w.mark, births{Pods: 2, StatefulSets: 1})
}

// Two sets have pods on the same two nodes, which are drained at once: of each set one group at a time is recreated.
func TestDrainsOfTwoSets(t *testing.T) {
	aside(t)
	first, second := newScene(t), newScene(t)
	names := first.lendNodes(2)
	var all []*witness
	for _, s := range []*scene{first, second} {
		all = append(all, s.witness(s.limited(s.newSet("a", 2, 2, imageA, byGroup, slowly("1s"), first.spreadOver(names...)))))
	}
	first.drainEach(names...)()
	for _, w := range all {
		w.recreated(0)
	}
}

// Each of two nodes is the domain of one group, and there is no third. While the group of a drained node has no domain, no
// other may be evicted.
func TestADrainWaitsForADomain(t *testing.T) {
	s := asideScene(t)
	names := s.lendNodes(2)
	only := func(set *lwsv1.LeaderWorkerSet) {
		spec := &set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec
		spec.Tolerations = []corev1.Toleration{{Key: ofScene, Value: s.Namespace}}
		spec.NodeSelector = map[string]string{ofScene: s.Namespace}
	}
	w := s.witness(s.limited(s.newSet("a", 2, 2, imageA, byGroup, slowly("1s"), only, annotated(lwsv1.ExclusiveKeyAnnotationKey, hostname))))
	s.Want("drain the first node", s.drain(names[0]))
	ends := s.drainEach(names[1])
	s.Until("the group is recreated and has no domain", func() bool {
		return slices.ContainsFunc(s.Pods(), func(pod *corev1.Pod) bool {
			return pod.Spec.NodeName == "" && workload.Condition(pod, corev1.PodScheduled).Reason == corev1.PodReasonUnschedulable
		})
	})
	outlast(t)
	same(t, "pods that run", 2, len(s.on(names[1])))
	s.uncordon(names[0])
	ends()
	s.uncordon(names[1])
	w.recreated(0)
}

// uncordon lets a node take pods again.
func (s *scene) uncordon(name string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Check("uncordon node "+name, s.Client.Patch(s.Context(), node, drill.Merge(`{"spec":{"unschedulable":false}}`)))
}

// readyAfter lets the pods of a template take a while until they are ready.
func readyAfter(after string) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		metav1.SetMetaDataAnnotation(&set.Spec.LeaderWorkerTemplate.WorkerTemplate.ObjectMeta, "local.lockstep.dev/ready-after", after)
	}
}

// Four nodes of one group are drained by one command, and then one node that hosts a pod of each of three groups.
func TestADrainRecreatesEachGroupOnce(t *testing.T) {
	aside(t)
	type row struct {
		replicas int32
		nodes    int
	}
	each(t, map[string]row{"four nodes": {1, 4}, "one node": {3, 1}}, func(s *scene, row row) {
		names := s.lendNodes(row.nodes)
		w := s.witness(s.limited(s.newSet("a", row.replicas, int32(max(2, row.nodes)), imageA, byGroup, slowly("1s"), s.spreadOver(names...))))
		s.Want("drain", s.drain(names...))
		w.recreated(0)
	})
}

// An operator is killed between its decision and the first delete, and before an eviction is admitted. A minute later it
// continues: each group is recreated once, and no other is evicted before it is whole. Of each set one pod is gone by then.
func TestADrainOutlivesTheOperator(t *testing.T) {
	var all [2]*witness
	var nodes [2][]string
	for i := range all {
		s := newScene(t)
		nodes[i] = s.lendNodes(2)
		all[i] = s.witness(s.limited(s.newSet("a", 2, 2, imageA, byGroup, slowly("1s"), readyAfter("2s"), s.spreadOver(nodes[i]...))))
	}
	decided, hit := all[0], all[1]
	since := bed.Position()
	ends := []func(){decided.drainEach(nodes[0]...)}
	decided.Until("a group is to be recreated", func() bool {
		return slices.ContainsFunc(decided.Pods(), func(pod *corev1.Pod) bool { return pod.Annotations[restart.AnnotationKey] != "" })
	})
	decided.Check("kill the operator", bed.Operator.Kill())
	down := time.Now()
	if wrote := decided.LockstepWrote(since); slices.ContainsFunc(wrote, func(r drill.Request) bool { return r.Verb == "delete" }) {
		t.Fatalf("invalid run: the operator deleted before it was killed: %v", wrote)
	}
	ends = append(ends, hit.drainEach(nodes[1]...))
	for _, w := range all {
		w.Until("a pod is gone", func() bool { return len(w.Pods()) < 4 }) // no webhook admits another one
	}
	time.Sleep(time.Until(down.Add(time.Minute)))
	decided.Check("start the operator", bed.Operator.Start())
	for i, w := range all {
		ends[i]()
		w.recreated(1)
	}
}

// Drains begin beside changes of a set. Its rollout replaces no more groups than without them, and its budget never allows
// two evictions.
func TestDrainsBesideChanges(t *testing.T) {
	aside(t)
	const pausedNoMore = `{"metadata":{"annotations":{"lockstep.dev/paused":null}}}`
	type row struct {
		edit    edit
		least   int32    // ready groups of four
		changes []string // while the drains wait
		then    string
	}
	each(t, map[string]row{
		"a rollout":                     {budget(1, 0, 0), 3, []string{pull(imageB)}, ""},
		"a rollout of two groups each":  {budget(2, 0, 0), 2, []string{pull(imageB)}, ""},
		"a rollout with surge":          {budget(1, 1, 0), 3, []string{pull(imageB)}, ""},
		"a rollout of groups with keys": {together(withKeys, budget(1, 1, 0)), 3, []string{pull(imageB)}, ""},
		"a rollout that is undone":      {budget(1, 0, 0), 3, []string{pull(imageB), pull(imageA)}, ""},
		"a paused rollout":              {together(annotated(lwsv1.PausedAnnotationKey, "true"), budget(1, 0, 0)), 3, []string{pull(imageB)}, pausedNoMore},
		"a scaling":                     {nil, 1, []string{`{"spec":{"replicas":8}}`, `{"spec":{"replicas":2}}`}, ""},
		"pods that come back alone":     {fakeapi.Policy(lwsv1.NoneRestartPolicy), 3, nil, ""},
		"another size":                  {budget(1, 0, 0), 0, []string{`{"spec":{"leaderWorkerTemplate":{"size":1}}}`}, ""},
	}, func(s *scene, row row) {
		names := s.lendNodes(2)
		w := s.witness(s.limited(s.newSet("a", 4, 2, imageA, row.edit, byGroup, slowly("1s"), s.spreadOver(names...))))
		ends := s.drainEach(names...)
		s.Until("a group is evicted", func() bool { return len(s.readyGroups(w.set)) < 4 })
		for _, change := range row.changes {
			s.Patch(w.set, change)
			outlast(s.T)
		}
		ends()
		if row.then != "" {
			same(s.T, "groups of the new template", 0, s.groupsBy(w.set)[imageB])
			s.Patch(w.set, row.then)
		}
		w.set = s.Set("a")
		w.settles(row.least)
	})
}

// A deletion asks no budget. The group is recreated once and at once, and no other may be evicted until it is whole.
func TestADeletionAsksNoBudget(t *testing.T) {
	aside(t)
	type row struct {
		count int32 // a preemption is no failure
		lose  func(s *scene, victim *corev1.Pod)
	}
	each(t, map[string]row{
		"a deletion": {1, func(s *scene, victim *corev1.Pod) { s.Remove(victim) }},
		"preemption": {0, func(s *scene, victim *corev1.Pod) {
			class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}, Value: 1000}
			s.Lend(class)
			first := &corev1.Pod{ObjectMeta: s.Meta("first"), Spec: template(imageA).Spec}
			first.Spec.PriorityClassName, first.Spec.Tolerations = class.Name, victim.Spec.Tolerations
			first.Spec.NodeSelector = map[string]string{corev1.LabelHostname: victim.Spec.NodeName}
			first.Spec.Containers[0].Resources = victim.Spec.Containers[0].Resources
			s.Eventually("admission knows the class", func() error { return s.Client.Create(s.Context(), first.DeepCopy()) })
		}},
	}, func(s *scene, row row) {
		names := s.lendNodes(4)
		most := func(set *lwsv1.LeaderWorkerSet) { // of a node
			set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200")}
		}
		w := s.witness(s.limited(s.newSet("a", 2, 2, imageA, byGroup, slowly("2s"), s.spreadOver(names...), most)))
		victim := s.Pod("a-1-1")
		row.lose(s, victim)
		s.awaitAllowed(0)
		drill.Another(s.Scene, victim)
		w.settles(1)
		s.wantBorn(w.set.UID, w.mark, births{Pods: 2, StatefulSets: 1})
		r := w.set.Status.Restarts
		expect.That(s, len(r) == 1 && r[0].HeldUntil == nil && r[0].Count == row.count, "restarts: %+v", r)
	})
}

// A budget of another owner that selects pods of the set takes the place of ours, and one that has its name only does too.
// A set without the annotation has none.
func TestAnotherBudgetTakesThePlaceOfOurs(t *testing.T) {
	aside(t)
	theirs := func(s *scene, name, of string) client.Object {
		o := workload.DisruptionBudget(s.newSet(of, 2, 2, imageA), 1)
		return &policyv1.PodDisruptionBudget{ObjectMeta: s.Meta(name), Spec: o.Spec}
	}
	type row struct{ budget, of, reason, says string }
	each(t, map[string]row{
		"over its pods": {"team", "a", "OtherBudget", "not limited: PodDisruptionBudget team"},
		"of its name":   {"a.groups", "b", lws.CodeNameConflict, "not limited: PodDisruptionBudget a.groups is not of this set"},
	}, func(s *scene, row row) {
		before := theirs(s, row.budget, row.of)
		s.Create(before)
		set := s.settled(s.newSet("a", 2, 2, imageA, byGroup))
		s.awaitBudget(patience, row.budget, row.reason)
		s.prints(row.says, "status", "a")
		s.Remove(before)
		s.awaitBudget(soon, "a.groups", "")
		s.awaitAllowed(1)

		during := theirs(s, "team", "a")
		s.Create(during)
		s.awaitBudget(soon, "team", "OtherBudget")
		s.awaitSettled(s.become(set, `{"spec":{"replicas":3}}`))
		s.Remove(during)
		s.awaitBudget(soon, "a.groups", "")
		s.prints("1 group may go", "status", "a")

		s.Patch(s.Set("a"), fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, workload.DisruptionBudgetAnnotationKey))
		s.awaitBudget(soon, "", "")
	})
}

// soon is how long pods may have two budgets, or none.
const soon = 5 * time.Second

// A set whose budget a quota refuses says so. It is scaled and rolled all the same.
func TestAQuotaRefusesTheBudget(t *testing.T) {
	s := asideScene(t)
	quota := &corev1.ResourceQuota{ObjectMeta: s.Meta("none"), Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"count/poddisruptionbudgets.policy": resource.MustParse("0")},
	}}
	s.Create(quota)
	s.Eventually("the quota is known", func() error {
		return errors.Join(s.Read(quota), drill.Lacking("limits", 1, len(quota.Status.Hard)))
	})
	s.goesOn(s.settled(s.newSet("a", 2, 2, imageA, byGroup)))
	s.Remove(quota)
	s.awaitBudget(patience, "a.groups", "")
}

// goesOn checks that a set whose budget is refused says so, and is scaled and rolled.
func (s *scene) goesOn(set *lwsv1.LeaderWorkerSet) {
	s.awaitBudget(patience, "", lws.CodeRefused)
	set = s.awaitSettled(s.become(set, `{"spec":{"replicas":3}}`))
	s.awaitSettled(s.become(set, pull(imageB)))
	s.awaitBudget(patience, "", lws.CodeRefused)
}

// An operator without the right to read budgets runs the set, and says what it lacks. It creates the budget once it has the right.
func TestTheRightToReadBudgetsIsMissing(t *testing.T) {
	s := newScene(t)
	t.Cleanup(func() { must(t, bed.Operator.Install()) })
	role := &rbacv1.ClusterRole{}
	s.Check("read the role", s.Client.Get(t.Context(), client.ObjectKey{Name: "lws-manager-role"}, role))
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "poddisruptionbudgets") })
	s.Check("take the right", s.Client.Update(t.Context(), role))
	s.RestartOperator()
	s.goesOn(s.settled(s.newSet("a", 2, 2, imageA, byGroup)))
	s.Check("give the right", bed.Operator.Install())
	s.awaitBudget(patience, "a.groups", "")
}

// A set that is deleted with its pods left, and created again at once, takes over its budget with its groups. Uninstalling
// deletes the budget and keeps the set. Once Lockstep is installed again, the set has a budget and the same pods.
func TestABudgetPassesToTheNextSet(t *testing.T) {
	s := newScene(t)
	set := s.limited(s.newSet("a", 2, 2, imageA, byGroup))
	before, was := s.UIDs(), &policyv1.PodDisruptionBudget{}
	s.Check("read the budget", s.Get("a.groups", was))
	next := s.recreate(set, s.newSet("a", 2, 2, imageA, byGroup), metav1.DeletePropagationOrphan).set
	s.awaitSettled(next)
	s.Eventually("the budget is of the next set", func() error {
		is := &policyv1.PodDisruptionBudget{}
		return errors.Join(s.Get("a.groups", is), drill.Lacking("UID", was.UID, is.UID), drill.Lacking("owned", true, metav1.IsControlledBy(is, next)))
	})
	s.awaitAllowed(1)
	same(t, "pods", before, s.UIDs())

	install := sync.OnceValue(func() error { return errors.Join(bed.Operator.Install(), bed.Operator.Start()) })
	t.Cleanup(func() { must(t, install()) })
	s.uninstalled()
	s.awaitBudget(soon, "", "")
	same(t, "pods", before, s.UIDs())
	s.Check("install again", install())
	s.awaitBudget(patience, "a.groups", "")
	same(t, "pods", before, s.UIDs())
}

// A budget costs a set no write for a failure, an eviction or at rest, and two for a rollout: it is closed, and opened again.
func TestABudgetCostsTwoWritesOfARollout(t *testing.T) {
	both := map[bool]*scene{false: asideScene(t), true: newScene(t)}
	for isLimited, s := range both {
		set := s.newSet("a", 4, 2, imageA, slowly("1s"), budget(1, 0, 0))
		if isLimited {
			byGroup(set)
		}
		s.restful(set)
	}
	both[true].awaitAllowed(1)
	for _, step := range []struct {
		name    string
		budgets int
		do      func(s *scene, set *lwsv1.LeaderWorkerSet)
	}{
		{"a failure", 0, func(s *scene, set *lwsv1.LeaderWorkerSet) {
			before := s.UIDs()
			s.crash("a-1-1", 1)
			s.awaitRecreated(set, before, 1)
		}},
		{"an eviction", 0, func(s *scene, set *lwsv1.LeaderWorkerSet) {
			before := s.UIDs()
			s.Check("evict a pod", s.askedToGo(s.Pod("a-2-1")))
			s.awaitRecreated(set, before, 2)
		}},
		{"a rollout", 2, func(s *scene, set *lwsv1.LeaderWorkerSet) { s.awaitSettled(s.become(set, pull(imageB))) }},
	} {
		wrote := map[bool]map[string]int{}
		for isLimited, s := range both {
			since := bed.Position()
			step.do(s, s.Set("a"))
			outlast(s.T)
			wrote[isLimited] = map[string]int{}
			for _, r := range s.LockstepWrote(since) {
				wrote[isLimited][strings.Trim(r.Verb+" "+r.Resource+" "+r.Subresource, " ")]++
			}
		}
		t.Logf("%s: without %v, with %v", step.name, wrote[false], wrote[true])
		same(t, "writes of the budget for "+step.name, step.budgets, wrote[true]["patch poddisruptionbudgets"])
	}
	since := bed.Position()
	outlast(t)
	both[true].silent(since)
}

// Without Kubernetes' controller of budgets, no status tells that an admitted eviction is over. A rollout waits for it no
// longer than two minutes.
func TestARolloutDoesNotWaitForTheControllerOfBudgets(t *testing.T) {
	s := newScene(t)
	set := s.limited(s.newSet("a", 2, 2, imageA, byGroup, slowly("1s")))
	t.Cleanup(func() { must(t, bed.Plane.Restart(controllerManager, "--kcm-controllers", "*")) })
	s.Check("stop the controller", bed.Plane.Restart(controllerManager, "--kcm-controllers", "*,-disruption-controller"))
	before, admitted := s.UIDs(), time.Now()
	s.Check("evict a pod", s.askedToGo(s.Pod("a-1-1")))
	s.awaitRecreated(set, before, 1)
	set = s.become(set, pull(imageB))
	s.awaitRolled(set, 0)
	late := time.Since(admitted)
	expect.That(s, late <= 2*time.Minute+20*time.Second, "the rollout ended %s after the eviction", late)
}

// silence takes the lease of a node from its kubelet: no kubelet reports the node, nor ends its pods.
func (s *scene) silence(name string) {
	taken := fmt.Sprintf(`{"spec":{"holderIdentity":"nobody","leaseDurationSeconds":3600,"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	s.Check("silence node "+name, s.Client.Patch(s.Context(), leaseOf(name), drill.Merge(taken)))
}

// leaseOf is the lease of a node. A kubelet creates it again.
func leaseOf(node string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node}}
}

// A node that hosts a pod of each group does not answer for a minute: no group is recreated. Then its machine is lost for
// good: groups with keys are replaced once its pods are deleted, and others once its Node object is.
func TestALostNode(t *testing.T) {
	aside(t)
	immediate := func(set *lwsv1.LeaderWorkerSet) { set.Spec.GroupReplacementPolicy = lwsv1.ImmediateGroupReplacement }
	each(t, map[string]edit{"ordinals": nil, "keys": together(withKeys, immediate)}, func(s *scene, edit edit) {
		tolerates := func(set *lwsv1.LeaderWorkerSet) {
			template := &set.Spec.LeaderWorkerTemplate.WorkerTemplate
			for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
				template.Spec.Tolerations = append(template.Spec.Tolerations, corev1.Toleration{
					Key: key, Effect: corev1.TaintEffectNoExecute, Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(30)),
				})
			}
		}
		names := s.lendNodes(2)
		lost := names[0]
		set := s.limited(s.newSet("a", 2, 2, imageA, edit, byGroup, s.spreadOver(names...), tolerates))
		before := s.UIDs()
		s.silence(lost)
		s.awaitTaints(lost, 3) // its own, unreachable:NoSchedule and unreachable:NoExecute
		s.awaitAllowed(0)
		s.Remove(leaseOf(lost))
		s.awaitTaints(lost, 1)
		for _, pod := range s.on(lost) { // as its kubelet does
			s.PatchStatus(pod, `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
		}
		s.awaitSettled(set)
		s.awaitAllowed(1)
		same(s.T, "pods", before, s.UIDs())
		same(s.T, "restarts", 0, len(s.Set("a").Status.Restarts))

		mark := s.Changes()
		s.silence(lost)
		s.Until("its pods are deleted", func() bool {
			return !slices.ContainsFunc(s.on(lost), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil })
		})
		same(s.T, "pods that no kubelet ends", 2, len(s.on(lost)))
		if edit != nil {
			s.Until("other groups are ready", func() bool { return len(s.readyGroups(set)) == 2 })
		}
		gone := time.Now()
		s.Check("delete the node", s.Client.Delete(s.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: lost}}))
		s.Within(80*time.Second, "the names of its pods are free", func() error { return drill.Lacking("pods", 0, len(s.on(lost))) })
		s.Logf("pods of a deleted node are gone after %s", time.Since(gone))
		s.awaitSettled(set)
		s.awaitAllowed(1)
		s.wantBorn(set.UID, mark, births{Pods: 4, StatefulSets: 2})
	})
}

// on returns the pods of a node.
func (s *scene) on(node string) []*corev1.Pod {
	return slices.DeleteFunc(s.Pods(), func(pod *corev1.Pod) bool { return pod.Spec.NodeName != node })
}

// awaitBudget waits until a namespace has one budget, or none, and set a says why it lacks its own.
func (s *scene) awaitBudget(limit time.Duration, name, reason string) {
	s.Within(limit, fmt.Sprintf("the budget is %q", name), func() error {
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
		is := strings.Join(names, " ")
		return errors.Join(drill.Lacking("budgets", name, is), drill.Lacking("reason of the condition", reason, says))
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
	expect.That(s, opened.Load() == 0, "the budget was open %d times while groups were replaced", opened.Load())
}
