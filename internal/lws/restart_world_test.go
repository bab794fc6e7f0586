package lws_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/test/fakeapi"
)

// failingWorld is a cluster in which pods fail while its controllers act in any
// order, the operator's caches lag, the operator crashes between any two of its
// writes, and a second one is at work.
type failingWorld struct {
	*cluster
	t   *rapid.T
	met *met
	// failed are the leaders of groups of which a pod failed, and owed those of them
	// whose group had started by what its status said then.
	failed, owed map[types.UID]string
	// removed are the leaders that were deleted by somebody else.
	removed map[types.UID]bool
	// deleted are the leaders that were deleted by us.
	deleted map[types.UID]bool
	// spared are the leaders whose groups were made under RecreateGroupAfterStart and
	// never ran together yet: nothing that happened to them is a failure.
	spared map[types.UID]bool
	harms  int
	// former is what a cache showed that was filled a while ago.
	former *fakeapi.Reader
	// other is a second operator that takes itself for the only one.
	other operator
}

var recreating = []lwsv1.RestartPolicyType{lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart}

var otherPolicy = map[lwsv1.RestartPolicyType]lwsv1.RestartPolicyType{
	lwsv1.RecreateGroupOnPodRestart: lwsv1.RecreateGroupAfterStart, lwsv1.RecreateGroupAfterStart: lwsv1.RecreateGroupOnPodRestart,
}

// operator is what one process knows.
type operator struct {
	cached   *fakeapi.Reader
	memory   *lwscache.Memory
	observer *lwscache.Observer
}

// swap has the other operator act from now on.
func (w *failingWorld) swap() {
	was := operator{w.cached, w.memory, w.observer}
	w.cached, w.memory, w.observer = w.other.cached, w.other.memory, w.other.observer
	w.other = was
}

func newFailingWorld(t *rapid.T, m *met) *failingWorld {
	w := &failingWorld{cluster: newCluster(t), t: t, met: m,
		failed: map[types.UID]string{}, owed: map[types.UID]string{}, removed: map[types.UID]bool{}, deleted: map[types.UID]bool{}, spared: map[types.UID]bool{}}
	w.pass(time.Minute)
	replicas, size := rapid.Int32Range(1, 4).Draw(t, "replicas"), rapid.Int32Range(1, 3).Draw(t, "size")
	policy := rapid.SampledFrom(recreating).Draw(t, "policy")
	fakeapi.Add(w.Server, fakeapi.Set("w", replicas, size, fakeapi.Policy(policy)))
	if rapid.Bool().Draw(t, "started") {
		w.settle(groupNames...)
	}
	w.cached, w.former = w.Lagging(), w.Lagging()
	w.restart()
	w.other.cached = w.Lagging()
	w.other.memory = lwscache.NewMemory(w.Now)
	w.other.observer = lwscache.New(w.other.cached, w.Live(), w.other.memory)
	w.spare()
	return w
}

// restart begins a new life of the operator, its caches filled at one moment.
func (w *failingWorld) restart() {
	for _, kind := range kinds {
		w.cached.Deliver(kind)
	}
	w.awake()
}

// leaderOf returns the leader at the end of a pod's chain of controllers, or nil.
func (w *failingWorld) leaderOf(pod *corev1.Pod) *corev1.Pod {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nil
	}
	sts := fakeapi.Find[*appsv1.StatefulSet](w.Server, owner.Name)
	if sts == nil || sts.UID != owner.UID {
		return nil
	}
	if sts.Name == "w" {
		return pod
	}
	leader := fakeapi.Find[*corev1.Pod](w.Server, sts.Name)
	if leader == nil || !metav1.IsControlledBy(sts, leader) {
		return nil
	}
	return leader
}

// fails notes that a pod failed.
func (w *failingWorld) fails(pod *corev1.Pod, how string) {
	leader := w.leaderOf(pod)
	if leader == nil || leader.DeletionTimestamp != nil {
		return
	}
	w.failed[leader.UID] = how
	for _, s := range w.status().Started {
		if s.Leader == leader.UID {
			w.met.when("a group fails after it started", true)
			w.owed[leader.UID] = how
		}
	}
}

func (w *failingWorld) harm() {
	pods := fakeapi.All[*corev1.Pod](w.Objects)
	if len(pods) == 0 || w.harms >= 4 {
		return
	}
	w.harms++
	pod := rapid.SampledFrom(pods).Draw(w.t, "victim")
	if pod.DeletionTimestamp != nil {
		return
	}
	leader := w.leaderOf(pod) == pod
	if rapid.IntRange(0, 5).Draw(w.t, "a rollout") == 0 {
		w.met.when("a rollout", true)
		w.spec(newImage(fmt.Sprintf("image:%d", w.harms+1)))
		return
	}
	if rapid.IntRange(0, 4).Draw(w.t, "another policy") == 0 {
		w.met.when("another policy", true)
		w.spec(func(spec *lwsv1.LeaderWorkerSetSpec) {
			spec.LeaderWorkerTemplate.RestartPolicy = otherPolicy[spec.LeaderWorkerTemplate.RestartPolicy]
		})
		return
	}
	how := rapid.SampledFrom([]string{"restarts", "ends", "is deleted", "vanishes", "loses its statefulset"}).Draw(w.t, "how")
	if leader && (how == "is deleted" || how == "vanishes") {
		w.Remove(pod, metav1.DeletePropagationBackground)
		w.removed[pod.UID] = true // its group is recreated by that
		return
	}
	if how == "loses its statefulset" && leader {
		return
	}
	w.fails(pod, how+" "+pod.Name)
	switch how {
	case "restarts":
		fakeapi.Edit(w.Server, pod.Name, func(pod *corev1.Pod) {
			for i := range pod.Status.ContainerStatuses {
				pod.Status.ContainerStatuses[i].RestartCount++
				return
			}
			crash(pod)
		})
	case "ends":
		fakeapi.Edit(w.Server, pod.Name, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
	case "is deleted":
		w.Remove(pod, metav1.DeletePropagationBackground)
	case "vanishes":
		fakeapi.Drop[*corev1.Pod](w.Server, pod.Name)
	case "loses its statefulset":
		parent, _ := identity.ParentAndOrdinal(pod.Name)
		fakeapi.Drop[*appsv1.StatefulSet](w.Server, parent)
	}
}

func newImage(image string) func(*lwsv1.LeaderWorkerSetSpec) {
	return func(spec *lwsv1.LeaderWorkerSetSpec) {
		spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = image
	}
}

// carryOut writes a plan as a pass does, unless the operator dies under way.
func (w *failingWorld) carryOut(plan lws.Plan) {
	for _, a := range plan.Actions {
		if rapid.IntRange(0, 19).Draw(w.t, "crash") == 0 {
			w.met.when("a crash between writes", true)
			w.restart()
			return
		}
		wrong := w.judge(a)
		if w.met.when("a write refused", w.Do(a) != nil) {
			return
		}
		if wrong != "" {
			w.t.Fatalf("%s %s: %s", a.Verb(), a.Target(), wrong)
		}
		w.cached.Deliver(a.Target().Kind)
	}
}

// judge checks a write against what is really there, at the moment it is made.
func (w *failingWorld) judge(a action.Action) string {
	deletion, ok := a.(action.Delete)
	if !ok || deletion.Because.Code != lws.CodeRestart || deletion.Object.Kind != identity.KindPod {
		return ""
	}
	pod := fakeapi.Find[*corev1.Pod](w.Server, deletion.Object.Name)
	if pod == nil || pod.UID != deletion.Object.UID {
		return ""
	}
	if w.leaderOf(pod) != pod {
		return w.judgeWorker(pod)
	}
	if pod.DeletionTimestamp != nil {
		return "" // it goes already
	}
	switch {
	case w.failed[pod.UID] == "":
		return "nothing of its group failed"
	case w.deleted[pod.UID]:
		return "it is deleted twice"
	}
	if pod.ResourceVersion == deletion.Object.ResourceVersion || deletion.AnyVersion {
		w.deleted[pod.UID] = true
		w.met.when("a group recreated", true)
	}
	return ""
}

// judgeWorker: a worker goes only if its leader failed, is leaving or is gone.
func (w *failingWorld) judgeWorker(pod *corev1.Pod) string {
	parent, _ := identity.ParentAndOrdinal(pod.Name)
	leader := fakeapi.Find[*corev1.Pod](w.Server, parent)
	if leader == nil || leader.DeletionTimestamp != nil || w.failed[leader.UID] != "" {
		return ""
	}
	owner := metav1.GetControllerOf(pod)
	sts := fakeapi.Find[*appsv1.StatefulSet](w.Server, parent)
	if sts == nil || owner == nil || owner.UID != sts.UID {
		return ""
	}
	return fmt.Sprintf("its leader %s did not fail", leader.Name)
}

func (w *failingWorld) lookAtSet() {
	if world, err := w.observer.Set(ctx, key("w"), w.Now); err == nil {
		w.carryOut(lws.DecideSet(world))
	}
}

func (w *failingWorld) lookAtGroup(name string) {
	if _, plan, err := w.observer.GroupPlan(ctx, key(name), w.Now); err == nil {
		w.carryOut(plan)
	}
}

func (w *failingWorld) step() {
	t := w.t
	switch rapid.IntRange(0, 13).Draw(t, "actor") {
	case 13:
		w.met.when("two operators", true)
		w.swap()
	case 12:
		w.former = w.Lagging()
	case 0:
		w.harm()
	case 1, 2:
		w.lookAtSet()
	case 3, 4:
		w.lookAtGroup(rapid.SampledFrom(groupNames).Draw(t, "group"))
	case 5, 6:
		if all := fakeapi.All[*appsv1.StatefulSet](w.Objects); len(all) > 0 {
			w.Sync(rapid.SampledFrom(all).Draw(t, "statefulset"))
		}
	case 7:
		if all := fakeapi.All[*corev1.Pod](w.Objects); len(all) > 0 {
			w.Run(rapid.SampledFrom(all).Draw(t, "pod"))
		}
	case 8:
		w.Collect(rapid.SampledFrom(fakeapi.All[client.Object](w.Objects)).Draw(t, "collected"))
	case 9:
		w.cached.Deliver(rapid.SampledFrom(kinds).Draw(t, "kind"))
	case 10:
		w.pass(time.Duration(rapid.IntRange(100, 20_000).Draw(t, "milliseconds")) * time.Millisecond)
	case 11:
		w.restartSlowly()
	}
}

// restartSlowly is a new life of the operator whose caches are filled at different
// moments: it is handed some kinds as they were long ago, and knows less of them
// than its former life did.
func (w *failingWorld) restartSlowly() {
	w.cached = w.former
	w.former = w.Lagging()
	for _, kind := range kinds {
		if rapid.Bool().Draw(w.t, "fresh") {
			w.cached.Deliver(kind)
		}
	}
	w.awake()
}

// everybody has every actor act in turn until nobody finds anything to do.
func (w *failingWorld) everybody() {
	w.untilStill(w.t, func() {
		for _, name := range groupNames {
			w.lookAtGroup(name)
		}
		w.lookAtSet()
		for _, sts := range fakeapi.All[*appsv1.StatefulSet](w.Objects) {
			w.Sync(sts)
		}
		for _, pod := range fakeapi.All[*corev1.Pod](w.Objects) {
			w.Run(pod)
		}
		w.collect()
		w.pass(30 * time.Second)
	})
}

func (w *failingWorld) checkAnswered() {
	truth, err := lwscache.New(w.Cached(), w.Live(), lwscache.NewMemory(w.Now)).Set(ctx, key("w"), w.Now)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	if got := brief(w.status())[available]; got != isAvailable {
		w.t.Fatalf("not available: %v", brief(w.status()))
	}
	for _, g := range truth.Groups {
		if how := w.owed[g.Leader.UID]; how != "" {
			w.t.Fatalf("group %d was not recreated: %s; %+v", g.Index, how, w.status().Restarts)
		}
	}
	for _, pod := range fakeapi.All[*corev1.Pod](w.Objects) {
		if leader := w.leaderOf(pod); leader == nil || leader.Spec.Containers[0].Image != pod.Spec.Containers[0].Image {
			w.t.Fatalf("pod %s does not have its leader's revision", pod.Name)
		}
	}
	for _, r := range w.status().Restarts {
		last := r.Failures[len(r.Failures)-1].Reason
		if w.failed[r.Leader] == "" && !w.removed[r.Leader] && (last != lws.CodeLeaderReplaced || w.stands(r.Leader)) {
			w.t.Fatalf("group %d is said to have failed under a leader that did not: %+v", r.Index, r)
		}
	}
}

func (w *failingWorld) stands(uid types.UID) bool {
	return slices.ContainsFunc(fakeapi.All[*corev1.Pod](w.Objects), func(pod *corev1.Pod) bool { return pod.UID == uid })
}

// TestRestarts: each group that failed after it started is recreated, no group is
// that did not fail, and none twice for one leader (S3).
func TestRestarts(t *testing.T) {
	m := &met{counts: map[string]int{}}
	rapid.Check(t, func(t *rapid.T) {
		w := newFailingWorld(t, m)
		for range rapid.IntRange(0, 150).Draw(t, "steps") {
			w.step()
			w.spare()
			w.checkSpared()
		}
		w.everybody()
		w.checkSpared()
		w.checkAnswered()
	})
	for _, premise := range []string{"a group recreated", "a group fails after it started", "a crash between writes", "a write refused", "a rollout", "two operators", "another policy"} {
		if m.counts[premise] == 0 {
			t.Errorf("invalid run: never met %s; met %v", premise, m.counts)
		}
	}
}

// spare notes which groups were made under RecreateGroupAfterStart, by their leaders'
// revisions, and which of those have run together.
func (w *failingWorld) spare() {
	for _, pod := range fakeapi.All[*corev1.Pod](w.Objects) {
		if pod.DeletionTimestamp != nil || w.leaderOf(pod) != pod {
			continue
		}
		before, known := w.spared[pod.UID]
		if !known {
			before = w.policyOf(pod) == lwsv1.RecreateGroupAfterStart
		}
		w.spared[pod.UID] = before && !w.runsTogether(pod)
	}
}

func (w *failingWorld) policyOf(leader *corev1.Pod) lwsv1.RestartPolicyType {
	set := find[*lwsv1.LeaderWorkerSet](w.cluster, "w")
	for _, revision := range revisions(w.cluster) {
		if revision.Labels[lwsv1.RevisionKey] != leader.Labels[lwsv1.RevisionKey] {
			continue
		}
		made, err := lws.Restore(set, revision.Data.Raw)
		if err != nil {
			w.t.Fatalf("%v", err)
		}
		return made.Spec.LeaderWorkerTemplate.RestartPolicy
	}
	w.t.Fatalf("leader %s runs revision %s, which is not there", leader.Name, leader.Labels[lwsv1.RevisionKey])
	return ""
}

func (w *failingWorld) runsTogether(leader *corev1.Pod) bool {
	var running int32
	for _, pod := range fakeapi.All[*corev1.Pod](w.Objects) {
		if w.leaderOf(pod) == leader && pod.Status.Phase == corev1.PodRunning {
			running++
		}
	}
	return running == lws.Size(find[*lwsv1.LeaderWorkerSet](w.cluster, "w"))
}

// checkSpared checks that no group failed in its start that was made under
// RecreateGroupAfterStart, whatever the policy of its set is by now.
func (w *failingWorld) checkSpared() {
	for _, r := range w.status().Restarts {
		if w.spared[r.Leader] {
			w.t.Fatalf("group %d is said to have failed in its start: %+v", r.Index, r)
		}
	}
}
