package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// extra is by how much one tenant may delay what the operator does for another.
const extra = time.Second

// cpu returns the CPU time that the operator has used.
func (s *scene) cpu() time.Duration {
	stat := expect.Value(os.ReadFile(fmt.Sprintf("/proc/%d/stat", bed.Operator.PID())))(s)
	fields := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')'):])
	var ticks int
	for _, field := range fields[12:14] { // in user mode and in the kernel, in hundredths of a second
		ticks += expect.Value(strconv.Atoi(field))(s)
	}
	return time.Duration(ticks) * time.Second / 100
}

// served creates sets one after the other, and returns the median of how long each waits for the operator: until its
// leader StatefulSet is there and, where a controller manager makes its leader, from then on until its workers are.
func (s *scene) served(prefix string, hasLeaders bool) time.Duration {
	return s.median(prefix, hasLeaders, func(name string) { s.Create(s.newSet(name, 1, 2, imageA)) }, func(string) {})
}

// median runs create, and then start for the leader, three times, and measures how long the StatefulSets take.
func (s *scene) median(prefix string, hasLeaders bool, create, start func(name string)) time.Duration {
	var all []time.Duration
	for i := range 3 {
		name := fmt.Sprint(prefix, i)
		all = append(all, s.timed(name, create))
		if hasLeaders {
			s.Until("leader of "+name, func() bool { return s.Pod(name+"-0") != nil })
			all[i] += s.timed(name+"-0", func(string) { start(name) })
		}
	}
	slices.Sort(all)
	return all[1]
}

// timed does something, and returns how long it takes until a StatefulSet is there.
func (s *scene) timed(name string, do func(name string)) time.Duration {
	start := time.Now()
	do(name)
	s.Until("statefulset "+name, func() bool { return s.StatefulSet(name) != nil })
	return time.Since(start)
}

// TestAQuotaOfNoPodLeavesTheOperatorAtRest: a namespace may have no pod, and a set asks for a million groups. The StatefulSet
// controller tries again and again; the operator does not.
func TestAQuotaOfNoPodLeavesTheOperatorAtRest(t *testing.T) {
	s := newScene(t)
	s.forbid("pods")
	s.Create(s.newSet("w", 1_000_000, 2, imageA))
	s.awaitHolds("w", lwsv1.LeaderWorkerSetProgressing, "FailedCreate")
	s.atRest(2)
}

// atRest measures for a while that the operator takes little CPU time and writes at most so often.
func (s *scene) atRest(writes int) {
	const rest = 20 * time.Second
	from, used := s.Position(), s.cpu()
	time.Sleep(rest)
	used, wrote := s.cpu()-used, len(s.LockstepWrote(from))
	s.Logf("the operator used %s of CPU in %s, and wrote %d times", used, rest, wrote)
	expect.That(s, used <= rest/20 && wrote <= writes,
		"the operator used %s of CPU in %s, and wrote %d times", used, rest, wrote)
}

// withoutControllerManager ends the controller manager until the test ends.
func withoutControllerManager(t *testing.T) {
	must(t, bed.Plane.Kill(controllerManager))
	t.Cleanup(func() { must(t, bed.Plane.Restart(controllerManager)) })
}

// TestAMillionGroupsCostWhatExists: sets of one tenant that ask for a million groups, of which none can exist, leave the
// operator at rest and another tenant alone, and are shown at once. The StatefulSet controller goes over all ordinals
// itself: it does not run, and the test writes its status.
func TestAMillionGroupsCostWhatExists(t *testing.T) {
	const sets, groups = 20, 1_000_000
	a, b := newScene(t), newScene(t)
	withoutControllerManager(t)
	t.Cleanup(func() { // before the controller manager sees them
		for _, o := range []client.Object{&lwsv1.LeaderWorkerSet{}, &appsv1.StatefulSet{}} {
			must(t, bed.Client.DeleteAllOf(context.Background(), o, client.InNamespace(a.Namespace)))
		}
	})
	small := b.newSet("small", 3, 2, imageA)
	b.Create(small)
	before := b.served("before", false)
	for i := range sets {
		a.Create(a.newSet(fmt.Sprint("w", i), groups, 2, imageA))
	}
	for i := range sets {
		name := fmt.Sprint("w", i)
		a.Until("statefulset "+name, func() bool { return a.StatefulSet(name) != nil })
		a.PatchStatus(a.StatefulSet(name), fmt.Sprintf(`{"status":{"observedGeneration":1,"replicas":0,"updateRevision":%q,"currentRevision":%[1]q}}`, name))
	}
	after := b.served("after", false)
	expect.That(t, after <= before+extra, "a set waits for %s, and for %s where no other tenant has sets", after, before)
	a.Until("the operator tells that no pod is created", func() bool {
		return !slices.ContainsFunc(drill.Live[*lwsv1.LeaderWorkerSet](a.Recorder), func(set *lwsv1.LeaderWorkerSet) bool {
			return holds(set, lwsv1.LeaderWorkerSetProgressing, "FailedCreate") != nil
		})
	})
	a.atRest(sets)
	for _, command := range []string{"plan", "status"} {
		took := map[string]time.Duration{}
		for of, s := range map[string]*scene{small.Name: b, "w0": a} {
			start := time.Now()
			_, _, err := s.Plugin("", command, of)
			s.Check(command, err)
			took[of] = time.Since(start)
		}
		expect.That(t, took["w0"] <= took[small.Name]+extra,
			"%s takes %s, and %s for a set of three groups", command, took["w0"], took[small.Name])
	}
}

// TestATenantDelaysAnotherByASecond: what one tenant makes the operator do again and again delays the sets of another by
// a second at most. The same work for the API server without the operator is the control: it delays them as well.
func TestATenantDelaysAnotherByASecond(t *testing.T) {
	for name, c := range map[string]struct{ control, begin func(*scene) func() }{
		"sets are refused": {(*scene).relabelled, (*scene).refused},
		"groups fail":      {(*scene).churned, (*scene).failing},
	} {
		t.Run(name, func(t *testing.T) {
			alone := beside(t, "c", c.control)
			took := beside(t, "s", c.begin)
			t.Logf("a set waits for %s, and for %s beside the same StatefulSets without an operator", took, alone)
			expect.That(t, took <= alone+extra, "a set waits for %s, and may for %s", took, alone+extra)
		})
	}
}

// beside returns how long sets wait for the operator while the work of another tenant repeats.
func beside(t *testing.T, prefix string, begin func(*scene) func()) time.Duration {
	a, b := newScene(t), newScene(t)
	again := begin(a)
	for range 3 { // what comes again and again: a first burst is over
		again()
	}
	var working sync.WaitGroup
	hot, cool := context.WithCancel(t.Context())
	working.Go(func() {
		for hot.Err() == nil {
			again()
		}
	})
	defer working.Wait()
	defer cool()
	from := a.Position()
	took := b.served(prefix, true)
	t.Logf("beside %d writes of the operator for another tenant a set waits for %s", len(a.LockstepWrote(from)), took)
	return took
}

// relabelled creates objects that no controller acts on, and returns what changes each of them.
func (s *scene) relabelled() (again func()) {
	var all []*corev1.ConfigMap
	for i := range 200 {
		all = append(all, &corev1.ConfigMap{ObjectMeta: s.Meta(fmt.Sprint("c", i))})
		s.Create(all[i])
	}
	return changes(s, all)
}

// changes returns what changes a label of each object.
func changes[T client.Object](s *scene, all []T) (again func()) {
	round := 0
	return func() {
		round++
		label := drill.Merge(fmt.Sprintf(`{"metadata":{"annotations":{"round":"%d"}}}`, round))
		_ = drill.Together(all, func(o T) error { return bed.Client.Patch(s.Context(), o.DeepCopyObject().(client.Object), label) })
	}
}

// perRound of 2,000 pods fail in a round of three seconds: each once a minute, which is three times the pace at which the
// operator recreates groups of a namespace.
const perRound = 100

// inRounds returns what does something to the next pods.
func (s *scene) inRounds(do func(*corev1.Pod) error) (again func()) {
	next := 0
	return func() {
		due, pods := time.Now().Add(3*time.Second), s.Pods()
		if next >= len(pods) {
			next = 0
		}
		batch := pods[next:min(next+perRound, len(pods))]
		next += perRound
		_ = drill.Together(batch, func(pod *corev1.Pod) error { return client.IgnoreNotFound(do(pod)) })
		time.Sleep(time.Until(due))
	}
}

// churned creates StatefulSets of 2,000 pods together, with their Services, and returns what lets the pods fail and deletes
// them in turn.
func (s *scene) churned() (again func()) {
	for i := range 20 {
		labels := map[string]string{"app": fmt.Sprint("w", i)}
		sts := &appsv1.StatefulSet{ObjectMeta: s.Meta(labels["app"])}
		sts.Spec = appsv1.StatefulSetSpec{
			ServiceName: sts.Name, Replicas: new(int32(100)), PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(imageA),
		}
		sts.Spec.Template.Labels = labels
		s.Create(sts)
		s.Create(&corev1.Service{ObjectMeta: s.Meta(sts.Name), Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: labels, PublishNotReadyAddresses: true,
		}})
	}
	s.await2000()
	return s.inRounds(func(pod *corev1.Pod) error {
		return errors.Join(s.crashes(pod), bed.Client.Delete(s.Context(), pod.DeepCopy()))
	})
}

// crashes lets a container of a pod fail.
func (s *scene) crashes(pod *corev1.Pod) error {
	return bed.Client.Status().Patch(s.Context(), pod.DeepCopy(), drill.Merge(fmt.Sprintf(crashed, 1)))
}

func (s *scene) await2000() {
	s.Until("2,000 pods run", func() bool {
		return len(slices.DeleteFunc(s.Pods(), func(pod *corev1.Pod) bool { return pod.Status.Phase != corev1.PodRunning })) == 2000
	})
}

// refused creates sets whose StatefulSets a quota refuses, and returns what makes the operator try each again.
func (s *scene) refused() (again func()) {
	s.forbid("count/statefulsets.apps")
	var sets []*lwsv1.LeaderWorkerSet
	for i := range 200 {
		sets = append(sets, s.newSet(fmt.Sprint("w", i), 1, 2, imageA))
	}
	s.MayWrite(s.Namespace)
	s.Check("create sets", drill.Together(sets, func(set *lwsv1.LeaderWorkerSet) error { return bed.Client.Create(s.Context(), set) }))
	for _, set := range sets {
		s.AwaitEvent(set.Name, "FailedCreate", "exceeded quota")
	}
	return changes(s, sets)
}

// failing creates sets of 2,000 groups together, and returns what makes them fail in turn.
func (s *scene) failing() (again func()) {
	for i := range 20 {
		s.Create(s.newSet(fmt.Sprint("w", i), 100, 1, imageA, limited(nil)))
	}
	s.await2000()
	return s.inRounds(s.crashes)
}
