package lws_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/test/fakeapi"
)

// broken is an image that never becomes ready.
const broken = "image:broken"

// rollingWorld is a cluster in which a set is rolled while its controllers act in
// any order, and the operator's caches lag.
type rollingWorld struct {
	*cluster
	t                    *rapid.T
	unavailable, surge   int32
	edits, images        int
	scaled, brokenBefore bool
	// made counts the pods made since the first edit, by name, image and topology.
	made map[string]int
	// holding is set while the operator acts on a look that shows the set paused.
	holding bool
	met     *met
}

func newRollingWorld(t *rapid.T, gate bool, m *met) *rollingWorld {
	w := &rollingWorld{cluster: newCluster(t), t: t, made: map[string]int{}, met: m, images: 1}
	w.WithoutMaxUnavailable = !gate
	w.unavailable, w.surge = rapid.Int32Range(0, 3).Draw(t, "maxUnavailable"), rapid.Int32Range(0, 2).Draw(t, "maxSurge")
	if w.unavailable+w.surge == 0 {
		w.unavailable = 1
	}
	replicas, size := rapid.Int32Range(1, 6).Draw(t, "replicas"), rapid.Int32Range(1, 2).Draw(t, "size")
	w.pass(time.Minute)
	fakeapi.Add(w.Server, fakeapi.Set("w", replicas, size, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{
			MaxUnavailable: intstr.FromInt32(w.unavailable), MaxSurge: intstr.FromInt32(w.surge),
		}
	}))
	w.settle(allGroups...)
	w.cached = w.Lagging()
	w.restart()
	w.Added = func(object client.Object) {
		if pod, ok := object.(*corev1.Pod); ok {
			w.made[pod.Name+" "+pod.Spec.Containers[0].Image+" "+pod.Annotations[lwsv1.ExclusiveKeyAnnotationKey]]++
		}
	}
	return w
}

var allGroups = func() []string {
	var names []string
	for i := range 9 {
		names = append(names, identity.LeaderName("w", i))
	}
	return names
}()

func (w *rollingWorld) restart() {
	for _, kind := range kinds {
		w.cached.Deliver(kind)
	}
	w.awake()
}

func (w *rollingWorld) edit(change func(*lwsv1.LeaderWorkerSet)) {
	fakeapi.Edit(w.Server, "w", func(set *lwsv1.LeaderWorkerSet) {
		change(set)
		set.Generation++
	})
	w.edits++
}

// roll gives the set a template it never had.
func (w *rollingWorld) roll(image string) {
	if image == "" {
		w.images++
		image = fmt.Sprintf("image:%d", w.images)
	}
	w.edit(fakeapi.Image(image))
}

func (w *rollingWorld) image() string {
	return find[*lwsv1.LeaderWorkerSet](w.cluster, "w").Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image
}

// truth is the set as it is, without any lag.
func (w *rollingWorld) truth() lws.SetSnapshot {
	world, err := lwscache.New(w.Cached(), w.Live(), lwscache.NewMemory(w.Now)).Set(ctx, key("w"), w.Now)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	return world
}

// standing is what the groups really are, by the partition that holds and for as
// many groups as the StatefulSet was last written for.
type standing struct {
	ready, updated map[int]bool
	partition      int32
	replicas       int
}

func (w *rollingWorld) standing(sts *appsv1.StatefulSet) standing {
	truth, key := w.truth(), sts.Labels[lwsv1.RevisionKey]
	s := standing{ready: map[int]bool{}, updated: map[int]bool{}, partition: partition(truth.StatefulSet.Member())}
	s.replicas, _ = strconv.Atoi(sts.Annotations[lwsv1.ReplicasAnnotationKey])
	for i := range truth.Groups {
		g := &truth.Groups[i]
		s.ready[g.Index], s.updated[g.Index] = g.Ready(truth.Set), g.UpToDate(key) && g.Leader.Annotations[lwsv1.ExclusiveKeyAnnotationKey] == topology(sts)
	}
	return s
}

func partition(sts *appsv1.StatefulSet) int32 {
	if sts == nil || sts.Spec.UpdateStrategy.RollingUpdate == nil || sts.Spec.UpdateStrategy.RollingUpdate.Partition == nil {
		return 0
	}
	return *sts.Spec.UpdateStrategy.RollingUpdate.Partition
}

// covered tells whether groups may go down beside those that are down or may be.
func (w *rollingWorld) covered(s standing, more int) bool {
	down, budget := more, int(w.unavailable)
	for i := range s.replicas {
		if !s.ready[i] || int32(i) >= s.partition && !s.updated[i] {
			down++
		}
	}
	for i := range s.ready {
		if i >= s.replicas && s.ready[i] && s.updated[i] {
			budget++
		}
	}
	return down <= budget
}

// judge checks a write against what is really there, at the moment it is made.
func (w *rollingWorld) judge(a action.Action) error {
	switch a := a.(type) {
	case action.Apply:
		if sts, ok := a.Object.(*appsv1.StatefulSet); ok && sts.Name == "w" && sts.Spec.Replicas != nil {
			return w.judgeApply(sts)
		}
	case action.Delete:
		pod := fakeapi.Find[*corev1.Pod](w.Server, a.Object.Name)
		if a.Object.Kind == identity.KindPod && a.OwnerGone == nil && pod != nil && pod.UID == a.Object.UID {
			return w.judgeDelete(pod)
		}
	}
	return nil
}

func (w *rollingWorld) judgeApply(wanted *appsv1.StatefulSet) error {
	live := fakeapi.Find[*appsv1.StatefulSet](w.Server, "w")
	was, is := partition(live), partition(wanted)
	if w.holding {
		if err := w.judgePaused(live, wanted); err != nil {
			return err
		}
	}
	if live.Labels[lwsv1.RevisionKey] != wanted.Labels[lwsv1.RevisionKey] || topology(live) != topology(wanted) {
		if is < lws.PodsOf(live) && wanted.Annotations[lwsv1.ReplicasAnnotationKey] > strconv.Itoa(int(is)) {
			return fmt.Errorf("a new template comes with partition %d for %d groups", is, lws.PodsOf(live))
		}
		return nil
	}
	if is > was {
		return fmt.Errorf("the partition rises from %d to %d", was, is)
	}
	s, exposed := w.standing(wanted), 0
	for i := is; i < min(was, int32(s.replicas)); i++ {
		if s.ready[int(i)] && !s.updated[int(i)] {
			exposed++
		}
	}
	if exposed == 0 {
		return nil
	}
	w.met.when("groups given up", true)
	if live.Status.ObservedGeneration != live.Generation {
		return fmt.Errorf("the partition is lowered before generation %d was observed", live.Generation)
	}
	if !w.covered(s, exposed) {
		return fmt.Errorf("partition %d → %d gives up %d groups beyond the budget of %d+%d: %+v", was, is, exposed, w.unavailable, w.surge, s)
	}
	return nil
}

func (w *rollingWorld) judgeDelete(pod *corev1.Pod) error {
	live := fakeapi.Find[*appsv1.StatefulSet](w.Server, "w")
	key := live.Labels[lwsv1.RevisionKey]
	_, index := identity.ParentAndOrdinal(pod.Name)
	s := w.standing(live)
	w.met.when("a leader replaced directly", true)
	if w.holding {
		return fmt.Errorf("leader %s is replaced while the rollout is paused", pod.Name)
	}
	if int32(index) < s.partition || s.updated[index] && pod.Labels[lwsv1.RevisionKey] == key {
		return fmt.Errorf("leader %s is deleted, which the partition %d does not grant", pod.Name, s.partition)
	}
	if s.ready[index] && !w.covered(s, 0) {
		return fmt.Errorf("leader %s is deleted beyond the budget: %+v", pod.Name, s)
	}
	return nil
}

// carryOut writes a plan as a pass does. What the API server refuses is not judged.
func (w *rollingWorld) carryOut(plan lws.Plan) {
	for _, a := range plan.Actions {
		wrong := w.judge(a)
		if w.met.when("a write refused", w.Do(a) != nil) {
			return
		}
		if wrong != nil {
			w.t.Fatalf("%s %s: %v", a.Verb(), a.Target(), wrong)
		}
		w.cached.Deliver(a.Target().Kind)
	}
}

func (w *rollingWorld) lookAtSet() {
	if world, err := w.observer.Set(ctx, key("w"), w.Now); err == nil {
		w.holding = lws.Paused(world.Set)
		w.carryOut(lws.DecideSet(world))
		w.holding = false
	}
}

func (w *rollingWorld) lookAtGroup(name string) {
	if _, plan, err := w.observer.GroupPlan(ctx, key(name), w.Now); err == nil {
		w.carryOut(plan)
	}
}

// kubelet takes a pod a step further, but no broken one up.
func (w *rollingWorld) kubelet(pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil || pod.Spec.Containers[0].Image != broken {
		w.Run(pod)
	}
}

func (w *rollingWorld) step() {
	t := w.t
	switch rapid.IntRange(0, 9).Draw(t, "actor") {
	case 0:
		w.someEdit()
	case 1, 2:
		w.lookAtSet()
	case 3:
		w.lookAtGroup(rapid.SampledFrom(allGroups).Draw(t, "group"))
	case 4, 5:
		w.Sync(rapid.SampledFrom(fakeapi.All[*appsv1.StatefulSet](w.Objects)).Draw(t, "statefulset"))
	case 6:
		if all := fakeapi.All[*corev1.Pod](w.Objects); len(all) > 0 {
			w.kubelet(rapid.SampledFrom(all).Draw(t, "pod"))
		}
	case 7:
		w.Collect(rapid.SampledFrom(fakeapi.All[client.Object](w.Objects)).Draw(t, "collected"))
	case 8:
		w.cached.Deliver(rapid.SampledFrom(kinds).Draw(t, "kind"))
	case 9:
		w.pass(time.Duration(rapid.IntRange(100, 3000).Draw(t, "milliseconds")) * time.Millisecond)
	}
	w.checkServing()
}

func (w *rollingWorld) someEdit() {
	if w.edits >= 4 {
		return
	}
	switch rapid.IntRange(0, 6).Draw(w.t, "edit") {
	case 0, 1:
		w.roll("")
	case 2:
		w.roll(broken)
		w.brokenBefore = true
	case 3:
		w.scaled = true
		replicas := rapid.Int32Range(1, 7).Draw(w.t, "replicas")
		w.edit(func(set *lwsv1.LeaderWorkerSet) { set.Spec.Replicas = &replicas })
	case 4:
		w.pause()
	case 5:
		w.resume()
	case 6:
		w.send()
	}
}

// checkServing checks what users have of it all: while nothing is scaled, no more
// groups are away than may be, whoever took them.
func (w *rollingWorld) checkServing() {
	if w.scaled {
		return
	}
	truth := w.truth()
	serving := 0
	for i := range truth.Groups {
		if g := &truth.Groups[i]; int32(g.Index) < lws.Replicas(truth.Set) && g.Ready(truth.Set) {
			serving++
		}
	}
	if least := int(lws.Replicas(truth.Set) - w.unavailable - w.surge); serving < least {
		w.t.Fatalf("%d groups are ready, %d must be", serving, least)
	}
}

// everybody has every actor act in turn, until nobody finds anything to do.
func (w *rollingWorld) everybody() {
	w.untilStill(w.t, func() {
		w.lookAtSet()
		for _, name := range allGroups {
			w.lookAtGroup(name)
		}
		for _, sts := range fakeapi.All[*appsv1.StatefulSet](w.Objects) {
			w.Sync(sts)
			w.checkServing()
		}
		for _, pod := range fakeapi.All[*corev1.Pod](w.Objects) {
			w.kubelet(pod)
		}
		w.collect()
		w.pass(time.Second)
	})
}

func (w *rollingWorld) checkRolled() {
	set := find[*lwsv1.LeaderWorkerSet](w.cluster, "w")
	if got := brief(set.Status)[available]; got != isAvailable {
		w.t.Fatalf("not available: %v; %+v", brief(set.Status), w.standing(w.truth().StatefulSet.Member()))
	}
	pods := fakeapi.All[*corev1.Pod](w.Objects)
	if want := lws.Replicas(set) * lws.Size(set); len(pods) != int(want) {
		w.t.Fatalf("%d pods stand, want %d", len(pods), want)
	}
	for _, pod := range pods {
		if pod.Spec.Containers[0].Image != w.image() {
			w.t.Fatalf("pod %s has %s, want %s", pod.Name, pod.Spec.Containers[0].Image, w.image())
		}
		if sent, wanted := pod.Annotations[lwsv1.ExclusiveKeyAnnotationKey], set.Annotations[lwsv1.ExclusiveKeyAnnotationKey]; sent != wanted {
			w.t.Fatalf("pod %s is sent to %q, want %q", pod.Name, sent, wanted)
		}
	}
	if w.scaled {
		return
	}
	for pod, times := range w.made {
		w.met.when("a pod made", true)
		if times > 1 && !w.brokenBefore {
			w.t.Fatalf("pod %s was made %d times", pod, times)
		}
	}
}

// TestRollouts: whatever the order of events, however much the caches lag and
// whatever the set is changed to under way, a rollout ends, never beyond its
// budget, with each pod made once.
func TestRollouts(t *testing.T) {
	for name, gate := range map[string]bool{"with maxUnavailable": true, "without maxUnavailable": false} {
		t.Run(name, func(t *testing.T) {
			m := &met{counts: map[string]int{}}
			rapid.Check(t, func(t *rapid.T) {
				w := newRollingWorld(t, gate, m)
				w.roll("")
				for range rapid.IntRange(0, 150).Draw(t, "steps") {
					w.step()
				}
				w.everybody()
				if w.isPaused() {
					w.checkHeld()
					w.resume()
					w.everybody()
				}
				if w.image() == broken {
					w.roll("")
					w.everybody()
				}
				w.checkRolled()
			})
			for _, premise := range []string{"groups given up", "a pod made", "a write refused", "a leader replaced directly", "a topology changed",
				"a rollout held", "a template held back", "a write while paused", "a group lost while paused"} {
				if m.counts[premise] == 0 {
					t.Errorf("invalid run: never met %s; met %v", premise, m.counts)
				}
			}
		})
	}
}
