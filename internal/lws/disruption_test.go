package lws_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/restart"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/reconcile"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

type Budget = *policyv1.PodDisruptionBudget

// byGroup asks for a PodDisruptionBudget.
var byGroup = fakeapi.Annotation(workload.DisruptionBudgetAnnotationKey, workload.DisruptionByGroup)

// limited lets the operator read budgets as its cache shows them, and the pod webhook gate pods.
func (c *cluster) limited() {
	c.budgets = func(context.Context, bool) (client.Reader, error) { return c.cached, nil }
	gangs := c.Added
	c.Added = func(object client.Object) {
		gangs(object)
		pod, is := object.(Pod)
		if is && expect.Value(lwscache.NewKin(c.cached, c.Live(), false).MustWait(ctx, pod, c.Now))(c.t) && !workload.IsGated(pod) {
			fakeapi.Edit(c.Server, pod.Name, func(pod Pod) {
				pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: lwsv1.GroupReplacementGate})
			})
		}
	}
	c.awake()
}

// evict asks the API server to evict a pod, and reports whether a budget let it through.
func (c *cluster) evict(pod Pod) (spent bool) {
	if pod.DeletionTimestamp != nil {
		return false
	}
	var over []Budget
	for _, budget := range fakeapi.All[Budget](c.Objects) {
		if labels.SelectorFromSet(budget.Spec.Selector.MatchLabels).Matches(labels.Set(pod.Labels)) {
			over = append(over, budget)
		}
	}
	isFree := pod.Status.Phase != corev1.PodRunning || len(over) == 0 // no budget is asked, or there is none
	if len(over) == 1 && !isHealthy(pod) {
		isFree = isFree || *over[0].Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow
	}
	switch {
	case isFree:
	case len(over) > 1, over[0].Status.ObservedGeneration < over[0].Generation, over[0].Status.DisruptionsAllowed < 1:
		return false
	default:
		spent = true
		fakeapi.Edit(c.Server, over[0].Name, func(budget Budget) {
			budget.Status.DisruptionsAllowed--
			budget.Status.DisruptedPods = map[string]metav1.Time{pod.Name: metav1.NewTime(c.Now)}
		})
	}
	evicted := fakeapi.Edit(c.Server, pod.Name, func(pod Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
		})
	})
	c.Remove(evicted, metav1.DeletePropagationBackground)
	return spent
}

func isHealthy(pod Pod) bool {
	return workload.Condition(pod, corev1.PodReady).Status == corev1.ConditionTrue
}

// count counts healthy pods as Kubernetes' disruption controller does.
func (c *cluster) count(name string) {
	budget := fakeapi.Find[Budget](c.Server, name)
	if budget == nil {
		return
	}
	status := policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, DisruptedPods: map[string]metav1.Time{}}
	for _, pod := range fakeapi.All[Pod](c.Objects) {
		if !labels.SelectorFromSet(budget.Spec.Selector.MatchLabels).Matches(labels.Set(pod.Labels)) || pod.DeletionTimestamp != nil {
			continue
		}
		if at, isDisrupted := budget.Status.DisruptedPods[pod.Name]; isDisrupted && c.Now.Before(at.Add(2*time.Minute)) {
			status.DisruptedPods[pod.Name] = at
		} else if isHealthy(pod) {
			status.CurrentHealthy++
		}
	}
	status.DesiredHealthy = budget.Spec.MinAvailable.IntVal
	status.DisruptionsAllowed = max(0, status.CurrentHealthy-status.DesiredHealthy)
	if fmt.Sprint(status) != fmt.Sprint(budget.Status) {
		fakeapi.Edit(c.Server, name, func(budget Budget) { budget.Status = status })
	}
}

// groupsDown are the groups of the leader StatefulSet that are not whole and ready.
func (c *cluster) groupsDown() (down []int) {
	sts := fakeapi.Find[StatefulSet](c.Server, "w")
	for i := range int(workload.PodsOf(sts)) {
		leader := fakeapi.Find[Pod](c.Server, identity.LeaderName("w", i))
		isReady := leader != nil && leader.DeletionTimestamp == nil && fakeapi.Ready(leader)
		for j := 1; isReady && j < int(workload.SizeOf(leader, find[Set](c, "w"))); j++ {
			worker := fakeapi.Find[Pod](c.Server, identity.LeaderName(leader.Name, j))
			isReady = worker != nil && worker.DeletionTimestamp == nil && fakeapi.Ready(worker)
		}
		if !isReady {
			down = append(down, i)
		}
	}
	return down
}

// TestDrainsTakeOneGroupAtATime: laws D1 to D6 of evictions, of rollouts and scaling beside them.
func TestDrainsTakeOneGroupAtATime(t *testing.T) {
	inWorlds(t, 1, func(t *rapid.T, m *met) {
		set := fakeapi.Set("w", rapid.Int32Range(1, 4).Draw(t, "replicas"), rapid.Int32Range(1, 3).Draw(t, "size"),
			byGroup, fakeapi.Policy(rapid.SampledFrom(append(restartPolicies, recreating...)).Draw(t, "policy")))
		if rapid.Bool().Draw(t, "surge") {
			rollingOf(set).MaxSurge = intstr.FromInt32(1)
		}
		w := newWorld(t, m, scenario{changes: []string{"workers", "undo", "size", "fewer replicas", "replicas", "pause", "resume", "partition", "startup", "network", "budget"}, mostEdits: 4}, set)
		w.limited()
		w.settle()
		w.lag()
		decided := map[types.UID]bool{}
		var down []int // groups that were down when the budget was counted: Kubernetes' controller lags
		count := func() {
			w.count("w.groups")
			down = w.groupsDown()
		}
		w.judge = func(a action.Action) error { return w.judgeEvictions(a, decided) }
		w.after = func() {
			if own := fakeapi.Find[Budget](w.Server, "w.groups"); own != nil && own.Status.DisruptionsAllowed > 1 {
				w.t.Fatalf("%d disruptions are allowed: %+v\n%s", own.Status.DisruptionsAllowed, own, w.all())
			}
		}
		for range rapid.IntRange(0, 120).Draw(t, "steps") {
			switch rapid.IntRange(0, 7).Draw(t, "drain") {
			case 0, 1:
				if pods := fakeapi.All[Pod](w.Objects); len(pods) > 0 {
					w.drain(pick(t, pods), down)
				}
			case 2, 3:
				count()
			case 4:
				w.cached.Deliver(identity.KindPodDisruptionBudget)
			case 5:
				if rapid.IntRange(0, 5).Draw(t, "edit") == 0 {
					w.user()
				}
			default:
				w.step()
			}
			w.after()
		}
		w.edit(func(set Set) {
			delete(set.Annotations, lwsv1.PausedAnnotationKey)
			rollingOf(set).Partition = new(int32(0))
			rollingOf(set).MaxUnavailable = intstr.FromInt32(1)
		})
		targets := map[types.UID]bool{} // of a drain of all nodes
		turn := func() {
			w.reconcileAll(false)
			w.controllers()
			w.count("w.groups")
			for _, pod := range fakeapi.All[Pod](w.Objects) {
				if targets[pod.UID] {
					w.evict(pod)
				}
			}
			w.pass(3 * time.Second)
		}
		for range 3 { // an eviction that Kubernetes' controller did not see counts for 2 min
			if !w.still(12, 600, turn) {
				w.t.Fatalf("never settles: %v; %v", brief(w.status()), w.decideAll())
			}
			w.pass(2 * time.Minute)
			for _, pod := range fakeapi.All[Pod](w.Objects) {
				if targets[pod.UID] {
					w.t.Fatalf("pod %s is not drained\n%s", pod.Name, w.all())
				}
				targets[pod.UID] = true
			}
		}
		w.checkAtRest()
		own := fakeapi.Find[Budget](w.Server, "w.groups")
		replicas := workload.Replicas(find[Set](w.cluster, "w"))
		if w.met.when("a set scaled to nothing", replicas == 0); replicas > 0 && (own == nil || own.Status.DisruptionsAllowed != 1) {
			w.t.Fatalf("all %d groups are ready, and evictions are not allowed: %+v\n%s", replicas, own, w.all())
		}
	}, "an eviction admitted", "an eviction refused", "a rollout granted", "a budget raised", "a budget lowered", "a set scaled to nothing", "HeldAfterEviction")
}

// drain evicts a pod. One that is counted takes a group down only if all were ready when pods were last counted (D2).
func (w *world) drain(pod Pod, down []int) {
	group, _ := indexOf(pod.Name)
	down = slices.DeleteFunc(slices.Clone(down), func(index int) bool { return index == group }) // its own group is no further one
	spent := w.evict(pod)
	w.met.when("an eviction admitted", spent)
	w.met.when("an eviction refused", !spent && fakeapi.Find[Pod](w.Server, pod.Name) == pod)
	if spent && len(down) > 0 {
		w.t.Fatalf("pod %s was evicted while groups %v are down: %+v\n%s", pod.Name, down, fakeapi.Find[Budget](w.Server, "w.groups"), w.all())
	}
}

// judgeEvictions judges a write: a leader gets one decision (D3), the budget keeps all but one of the living pods (D4),
// and no group is granted to a rollout while an eviction may pass.
func (w *world) judgeEvictions(a action.Action, decided map[types.UID]bool) error {
	own := fakeapi.Find[Budget](w.Server, "w.groups")
	switch a := a.(type) {
	case action.Annotate:
		if a.Annotations[restart.AnnotationKey] == "" {
			return nil
		}
		if current := w.Of(a.Object); current == nil || current.GetResourceVersion() != a.Object.ResourceVersion {
			return nil // the API server refuses it
		}
		if decided[a.Object.UID] {
			return fmt.Errorf("a second decision about leader %s", a.Object.Name)
		}
		decided[a.Object.UID] = true
	case action.Create:
		if a.Kind == identity.KindPodDisruptionBudget && own == nil {
			return w.judgeNumber(a.Object.(Budget))
		}
	case action.Apply:
		if budget, is := a.Object.(Budget); is && own != nil && own.ResourceVersion == a.Onto.ResourceVersion {
			was := own.Spec.MinAvailable.IntVal
			w.met.when("a budget raised", budget.Spec.MinAvailable.IntVal > was)
			if w.met.when("a budget lowered", budget.Spec.MinAvailable.IntVal < was) {
				return w.judgeNumber(budget)
			}
			return nil
		}
		sts, is := a.Object.(StatefulSet)
		live := fakeapi.Find[StatefulSet](w.Server, "w")
		if !is || sts.Name != "w" || sts.Spec.Template.Spec.Containers == nil || live == nil || live.ResourceVersion != a.Onto.ResourceVersion || own == nil {
			return nil
		}
		if grants := partition(sts) < min(partition(live), workload.PodsOf(live)) && sts.Labels[lwsv1.RevisionKey] == live.Labels[lwsv1.RevisionKey]; !grants {
			return nil
		}
		if outdated := slices.ContainsFunc(fakeapi.All[Pod](w.Objects), func(pod Pod) bool {
			return workload.IsLeader(pod, "w") && int32(workload.IndexOf(pod)) >= partition(sts) && pod.Labels[lwsv1.RevisionKey] != live.Labels[lwsv1.RevisionKey]
		}); !outdated {
			return nil
		}
		w.met.when("a rollout granted", true)
		if isOpen := own.Status.ObservedGeneration >= own.Generation && own.Status.DisruptionsAllowed > 0; isOpen {
			return fmt.Errorf("a group is given up while an eviction may pass: %+v", own)
		}
	}
	return nil
}

func (w *world) judgeNumber(budget Budget) error {
	living := int32(0)
	for _, pod := range fakeapi.All[Pod](w.Objects) {
		living += int32(map[bool]int{true: 1}[pod.DeletionTimestamp == nil && pod.Labels[lwsv1.SetNameLabelKey] == "w"])
	}
	if n := budget.Spec.MinAvailable.IntVal; n < living-1 {
		return fmt.Errorf("minAvailable is %d, and %d pods live\n%s", n, living, w.all())
	}
	return nil
}

// A group with a pod that is not ready is down already: its other pods stay, and that pod may leave its node.
func TestAPodThatIsNotReadyMayBeEvicted(t *testing.T) {
	c := limitedCluster(t, 2, 2)
	on("w-1-1", unready)(c)
	c.count("w.groups")
	expect.That(t, !c.evict(find[Pod](c, "w-0-1")), "a pod of the other group was evicted")
	c.evict(find[Pod](c, "w-1-1"))
	expect.That(t, find[Pod](c, "w-1-1").DeletionTimestamp != nil, "the pod was not evicted")
}

// A drained group neither backs off nor is stopped, however often it is drained (D7).
func TestADrainedGroupIsNeverStopped(t *testing.T) {
	c := limitedCluster(t, 1, 2, func(set Set) { set.Spec.LeaderWorkerTemplate.MaxGroupRestarts = new(int32(0)) })
	for range 4 {
		c.count("w.groups")
		c.evict(find[Pod](c, "w-0-1"))
		c.settle()
		if entry := c.status().Restarts[0]; entry.Count != 0 || !entry.DueAt.Equal(&entry.FailedAt) || len(c.groupsDown()) > 0 {
			t.Fatalf("groups %v are down: %+v", c.groupsDown(), entry)
		}
	}
}

// An eviction that was admitted counts for two minutes: a rollout does not take another group down beside it.
func TestNoGroupIsGivenUpBesideAnEviction(t *testing.T) {
	c := limitedCluster(t, 2, 2)
	admitted := map[string]metav1.Time{"w-0-1": metav1.NewTime(c.Now)}
	fakeapi.Edit(c.Server, "w.groups", func(budget Budget) { budget.Status.DisruptedPods = admitted })
	leader := find[Pod](c, "w-1").UID
	user(fakeapi.Image("image:2"))(c)
	c.settle()
	expect.Equalf(t, leader, find[Pod](c, "w-1").UID, "a leader beside the eviction")
	c.pass(2 * time.Minute)
	c.settle()
	expect.That(t, leader != find[Pod](c, "w-1").UID, "the rollout does not begin")
}

// While no operator ran, the hold ended before the group was deleted: it begins again.
func TestAHoldOutlivesTheOperator(t *testing.T) {
	c := limitedCluster(t, 1, 2)
	c.count("w.groups")
	c.evict(find[Pod](c, "w-0-1"))
	c.reconcileGroup("w-0")
	c.pass(time.Minute)
	back := c.Now
	c.settle()
	entry := c.status().Restarts[0]
	expect.That(t, len(entry.Failures) == 1 && !entry.HeldUntil.Time.Before(back.Add(10*time.Second)), "%+v", entry)
}

// A replica whose cache is late gates a worker of a group that starts, and nothing recreates that group.
func TestAWorkerIsGatedNoLongerThanItsGroupFails(t *testing.T) {
	c := limitedCluster(t, 1, 3)
	for _, name := range []string{"w-0-1", "w-0-2"} {
		on(name, func(pod Pod) {
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: lwsv1.GroupReplacementGate}}
		})(c)
	}
	c.settle()
	for _, name := range []string{"w-0-1", "w-0-2"} {
		expect.That(t, !workload.IsGated(find[Pod](c, name)), "worker %s is gated", name)
	}
}

func TestAHigherBudgetIsWrittenBeforeTheLeaders(t *testing.T) {
	c := limitedCluster(t, 2, 2)
	user(func(set Set) { *set.Spec.Replicas = 3 })(c)
	expect.Equalf(t, identity.KindPodDisruptionBudget, c.decideSet().Actions[0].Target().Kind, "what is written first")
}

// The number does not fall below what lives: a cache may lack a leader that is new.
func TestALowerBudgetReliesOnTheLeadersThatWereCounted(t *testing.T) {
	c := limitedCluster(t, 2, 2)
	c.cached = c.Lagging()
	c.awake()
	c.writer = func(w reconcile.Writer) reconcile.Writer { return w }
	fakeapi.Edit(c.Server, "w.groups", func(budget Budget) { budget.Spec.MinAvailable = new(intstr.FromInt32(5)) })
	c.cached.Deliver(identity.KindPodDisruptionBudget)
	fakeapi.Add(c.Server, fakeapi.Edited(find[Pod](c, "w-1").DeepCopy(), func(pod Pod) { pod.Name, pod.UID = "w-2", "new" }))
	_, _, _ = c.loop.Set(ctx, request("w")) // it looks again
	expect.Equalf(t, 5, find[Budget](c, "w.groups").Spec.MinAvailable.IntVal, "minAvailable beside a leader that is new")
}

// A set that never ran has no budget: it would block drains.
func TestASetThatNeverRanBlocksNoDrain(t *testing.T) {
	c := newCluster(t)
	c.limited()
	c.pass(time.Minute)
	c.Starts = time.Hour
	fakeapi.Add(c.Server, fakeapi.Set("w", 2, 2, byGroup))
	c.settle()
	c.checkBudgets("")
}

// budgetOver is a budget of a user.
func budgetOver(name string, labels map[string]string) Budget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
}

func TestTheBudgetGivesWay(t *testing.T) {
	ofSet, ofOthers := map[string]string{lwsv1.SetNameLabelKey: "w"}, map[string]string{"app": "other"}
	for name, tt := range map[string]struct {
		budget       Budget
		reason, left string
	}{
		"a user's budget over all pods":      {budgetOver("team", ofSet), "OtherBudget", "team"},
		"a user's budget over leaders":       {budgetOver("team", map[string]string{lwsv1.WorkerIndexLabelKey: "0"}), "OtherBudget", "team"},
		"a user's budget over a label":       {budgetOver("team", map[string]string{"team": "a"}), "OtherBudget", "team"},
		"a user's budget over the namespace": {budgetOver("team", nil), "OtherBudget", "team"},
		"a budget over other pods":           {budgetOver("team", ofOthers), "", "team w.groups"},
		"the budget of another set":          {budgetOver("v.groups", map[string]string{lwsv1.SetNameLabelKey: "v"}), "", "v.groups w.groups"},
	} {
		t.Run(name, func(t *testing.T) {
			c := limitedCluster(t, 2, 2)
			fakeapi.Add(c.Server, tt.budget)
			c.settle()
			c.checkBudgets(tt.left)
			got := condition(c.status(), lwsset.ConditionBudgetMissing)
			expect.Equalf(t, tt.reason, got.Reason, "the reason of the condition: %s", got.Message)
			gone[Budget](tt.budget.Name)(c)
			c.settle()
			c.checkBudgets("w.groups")
			got = condition(c.status(), lwsset.ConditionBudgetMissing)
			expect.That(t, got.Status != metav1.ConditionTrue, "the condition stays: %+v", got)
		})
	}
}

// limitedCluster is a set in step whose evictions are limited, with a label of the user on its pods.
func limitedCluster(t testing.TB, replicas, size int32, edits ...edit) *cluster {
	c := newCluster(t)
	c.limited()
	c.pass(time.Minute)
	label := func(set Set) {
		metav1.SetMetaDataLabel(&set.Spec.LeaderWorkerTemplate.WorkerTemplate.ObjectMeta, "team", "a")
	}
	fakeapi.Add(c.Server, fakeapi.Set("w", replicas, size, append([]edit{byGroup, label, fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart)}, edits...)...))
	c.settle()
	return c
}

func (c *cluster) checkBudgets(want string) {
	c.t.Helper()
	names := map[string]bool{}
	for _, budget := range fakeapi.All[Budget](c.Objects) {
		names[budget.Name] = true
	}
	got := ""
	for _, name := range slices.Sorted(maps.Keys(names)) {
		got += " " + name
	}
	expect.Must(c.t, got == " "+want || got == want, "budgets are%s, want %s", got, want)
}

// A drain retries a pod by its name, on whatever node it is by then: kubectl after 5 s, and the cluster autoscaler after
// 10 s. Two drains of the two pods of each group meet none of the pods that come next, and take one group down at a time,
// also where a pod ends at once, and another one has its name before the operator looks.
func TestNoDrainMeetsTheNextPodsOfAGroup(t *testing.T) {
	type drain struct {
		pause           int
		vanish, leaders bool // leaders are drained first
	}
	for name, tt := range map[string]drain{
		"kubectl":                            {pause: 5},
		"the cluster autoscaler":             {pause: 10},
		"workers vanish from kubectl":        {pause: 5, vanish: true},
		"leaders vanish from the autoscaler": {pause: 10, vanish: true, leaders: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := limitedCluster(t, 2, 2)
			c.count("w.groups")
			targets := map[string]types.UID{}
			for _, pod := range fakeapi.All[Pod](c.Objects) {
				targets[pod.Name] = pod.UID
			}
			evicted := 0
			for second := 0; len(targets) > 0; second++ {
				expect.Must(t, second <= 200, "pods %v are not drained", targets)
				for _, name := range slices.Sorted(maps.Keys(targets)) {
					if _, worker := indexOf(name); second%tt.pause != map[bool]int{true: tt.pause - 1}[(worker == 0) != tt.leaders] { // one drain is late
						continue
					}
					pod := fakeapi.Find[Pod](c.Server, name)
					if pod != nil && pod.DeletionTimestamp == nil {
						expect.Must(t, pod.UID == targets[name] || pod.Status.Phase != corev1.PodRunning,
							"after %d s a drain meets pod %s, which came after the one that it saw", second, name)
						if workload.IsGated(pod) { // it has no node
							fakeapi.Drop[Pod](c.Server, name)
						} else if c.evict(pod) {
							evicted++
							if tt.vanish {
								c.vanish(name)
							}
						}
						pod = fakeapi.Find[Pod](c.Server, name)
					}
					if pod == nil || pod.DeletionTimestamp != nil {
						delete(targets, name)
					}
				}
				c.reconcileSet()
				for name := range c.leaders() {
					c.reconcileGroup(name)
				}
				c.reconcileSet()
				c.others()
				c.count("w.groups")
				down := c.groupsDown()
				expect.Must(t, len(down) <= 1, "after %d s groups %v are down", second, down)
				c.pass(time.Second)
			}
			expect.Equalf(t, 2, evicted, "evictions that were admitted, one for each group")
			for _, entry := range c.status().Restarts {
				expect.That(t, len(entry.Failures) == 1 && entry.HeldUntil != nil && (entry.Count == 0 || tt.vanish),
					"group %d: %+v", entry.Index, entry)
			}
		})
	}
}

// vanish ends a pod that is terminating, and starts its successor. Only groups are reconciled so far.
func (c *cluster) vanish(name string) {
	c.count("w.groups")
	fakeapi.Drop[Pod](c.Server, name)
	for range 3 {
		c.others()
		c.count("w.groups")
	}
	if !workload.IsLeader(find[Pod](c, name), "w") {
		return
	}
	for range 3 {
		c.reconcileGroup(name)
		c.others()
	}
}
