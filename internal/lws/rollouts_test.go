package lws_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

var rollouts = scenario{
	changes:   []string{"workers", "workers", "broken", "replicas", "pause", "resume", "another topology"},
	harms:     []string{"leader statefulset"},
	mostEdits: 4, faults: true, restarts: true, operators: true,
}

// rolling is a world whose set is rolled out.
type rolling struct {
	*world
	unavailable, surge int32
	made               map[string]int // pods created since the first edit, by name, image, topology and template
}

func newRolling(t *rapid.T, gate bool, m *met) *rolling {
	unavailable, surge := rapid.Int32Range(0, 3).Draw(t, "maxUnavailable"), rapid.Int32Range(0, 2).Draw(t, "maxSurge")
	if unavailable+surge == 0 {
		unavailable = 1
	}
	set := fakeapi.Set("w", rapid.Int32Range(1, 6).Draw(t, "replicas"), rapid.Int32Range(1, 2).Draw(t, "size"))
	rollingOf(set).MaxUnavailable, rollingOf(set).MaxSurge = intstr.FromInt32(unavailable), intstr.FromInt32(surge)
	may := rollouts
	may.mostHarms = rapid.IntRange(0, 1).Draw(t, "harms")
	w := &rolling{newWorld(t, m, may, set), unavailable, surge, map[string]int{}}
	w.WithoutMaxUnavailable = !gate
	w.settle(allGroups...)
	w.lag()
	w.judge, w.after = w.judgeRollout, w.checkServing
	w.Added = func(object client.Object) {
		if pod, ok := object.(*corev1.Pod); ok {
			// A pod that is away while the template changes comes back at the former one.
			template := ""
			if sts := fakeapi.Find[*appsv1.StatefulSet](w.Server, "w"); sts != nil {
				template = sts.Labels[lwsv1.RevisionKey] + topology(sts)
			}
			w.made[fmt.Sprintln(pod.Name, pod.Spec.Containers[0].Image, pod.Annotations[lwsv1.ExclusiveKeyAnnotationKey], template)]++
		}
	}
	w.roll()
	return w
}

// roll gives the set a template that it never had.
func (w *rolling) roll() {
	w.images++
	w.edit(fakeapi.Image(fmt.Sprintf("image:%d", w.images)))
}

func (w *rolling) image() string { return imageOf(find[*lwsv1.LeaderWorkerSet](w.cluster, "w"), 1) }

// topology is the exclusive topology of the pods of a StatefulSet.
func topology(sts *appsv1.StatefulSet) string {
	return sts.Spec.Template.Annotations[lwsv1.ExclusiveKeyAnnotationKey]
}

// TestRollouts: in any order of events, with caches that lag and writes that fail, a
// rollout ends, stays within its budget and creates each pod once for a template.
func TestRollouts(t *testing.T) {
	for name, gate := range map[string]bool{"with maxUnavailable": true, "without maxUnavailable": false} {
		t.Run(name, func(t *testing.T) {
			inWorlds(t, 1, func(t *rapid.T, m *met) {
				w := newRolling(t, gate, m)
				w.run(rapid.IntRange(0, 150).Draw(t, "steps"))
				w.settleAfter(time.Second)
				if lws.Paused(find[*lwsv1.LeaderWorkerSet](w.cluster, "w")) {
					w.checkHeld()
				}
				w.finishRollout()
			}, "groups given up", "a pod made", "a write refused", "a leader replaced directly", "a topology changed",
				"a rollout held", "leader statefulset", "two operators", "a template held back", "a write while paused", "a group lost while paused")
		})
	}
}

// finishRollout resumes the rollout, away from a broken image, and checks its end.
func (w *rolling) finishRollout() {
	w.edit(func(set *lwsv1.LeaderWorkerSet) { delete(set.Annotations, lwsv1.PausedAnnotationKey) })
	if w.image() == brokenImage {
		w.roll()
	}
	w.settleAfter(time.Second)
	w.checkRolled()
}

// TestRolloutsAreTakenOver: a rollout that another implementation began continues from
// where it stands, and the first write leaves the template alone.
func TestRolloutsAreTakenOver(t *testing.T) {
	for name, gate := range map[string]bool{"with maxUnavailable": true, "without maxUnavailable": false} {
		t.Run(name, func(t *testing.T) {
			inWorlds(t, 1, func(t *rapid.T, m *met) {
				w := newRolling(t, gate, m)
				for range rapid.IntRange(1, 2).Draw(t, "hand-overs") {
					w.run(rapid.IntRange(0, 40).Draw(t, "steps"))
					if fakeapi.Find[*appsv1.StatefulSet](w.Server, "w") != nil {
						fakeapi.Edit(w.Server, "w", func(sts *appsv1.StatefulSet) { delete(sts.Annotations, lws.AppliedAnnotationKey) })
					}
					w.deliver()
					w.awake()
					w.checkTakeover(w.live())
				}
				w.finishRollout()
			}, "a hand-over in mid-rollout", "groups given up", "a pod made")
		})
	}
}

// checkTakeover checks the first plan after a hand-over: no revision is created for a
// spec that is being rolled out, and the template of a revision stays.
func (w *rolling) checkTakeover(s lws.SetSnapshot) {
	live := s.StatefulSet.Own()
	if live == nil {
		return
	}
	w.met.when("a hand-over in mid-rollout", partition(live) > 0)
	unchanged := live.Spec.Template.Spec.Containers[0].Image == w.image()
	for _, a := range lws.DecideSet(s).Actions {
		switch a := a.(type) {
		case action.Create:
			if _, revision := a.Object.(*appsv1.ControllerRevision); revision && unchanged {
				w.t.Fatalf("create %s", a.Target())
			}
		case action.Apply:
			wanted, leaders := a.Object.(*appsv1.StatefulSet)
			sent := leaders && live.Annotations[lwsv1.ExclusiveKeyAnnotationKey] == wanted.Annotations[lwsv1.ExclusiveKeyAnnotationKey]
			if !sent || wanted.Labels[lwsv1.RevisionKey] != live.Labels[lwsv1.RevisionKey] {
				continue
			}
			if diff := cmp.Diff(stamps(live), stamps(wanted)); diff != "" {
				w.t.Fatalf("the template changes (-live +wanted)\n%s", diff)
			}
		}
	}
}

// stamps are the parts of a template that replace pods; the rest follows from the spec.
func stamps(sts *appsv1.StatefulSet) string {
	template := sts.Spec.Template
	return fmt.Sprint(template.Labels, template.Annotations, template.Spec.Containers[0].Image)
}

// judgeRollout checks a write against the state of the groups at that moment.
func (w *rolling) judgeRollout(a action.Action) error {
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

func (w *rolling) judgeApply(wanted *appsv1.StatefulSet) error {
	live := fakeapi.Find[*appsv1.StatefulSet](w.Server, "w")
	if live == nil {
		return nil
	}
	was, is := partition(live), partition(wanted)
	if w.paused {
		if err := w.judgePaused(live, wanted); err != nil {
			return err
		}
	}
	if live.Labels[lwsv1.RevisionKey] != wanted.Labels[lwsv1.RevisionKey] || topology(live) != topology(wanted) {
		if is < workload.PodsOf(live) && wanted.Annotations[lwsv1.ReplicasAnnotationKey] > strconv.Itoa(int(is)) {
			return fmt.Errorf("a new template comes with partition %d for %d groups", is, workload.PodsOf(live))
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

func (w *rolling) judgeDelete(pod *corev1.Pod) error {
	live := fakeapi.Find[*appsv1.StatefulSet](w.Server, "w")
	if live == nil {
		return nil
	}
	key := live.Labels[lwsv1.RevisionKey]
	_, index := identity.ParentAndOrdinal(pod.Name)
	s := w.standing(live)
	w.met.when("a leader replaced directly", true)
	if w.paused {
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

// judgePaused checks that a write decided on a paused set takes in no template,
// gives up no group and adds no surge group.
func (w *rolling) judgePaused(live, wanted *appsv1.StatefulSet) error {
	w.met.when("a write while paused", true)
	if was, is := live.Labels[lwsv1.RevisionKey], wanted.Labels[lwsv1.RevisionKey]; was != is {
		return fmt.Errorf("revision %s takes the place of %s while the rollout is paused", is, was)
	}
	replicas := w.wanted(wanted)
	if was, is := partition(live), partition(wanted); is < min(was, replicas) {
		return fmt.Errorf("the partition falls from %d to %d of %d while the rollout is paused", was, is, replicas)
	}
	if is := workload.PodsOf(wanted); is > max(replicas, workload.PodsOf(live)) {
		return fmt.Errorf("%d groups are asked for while the rollout is paused: %d are wanted, %d were there", is, replicas, workload.PodsOf(live))
	}
	return nil
}

// wanted is the number of replicas that a StatefulSet is written for.
func (w *rolling) wanted(sts *appsv1.StatefulSet) int32 {
	var replicas int32
	if _, err := fmt.Sscan(sts.Annotations[lwsv1.ReplicasAnnotationKey], &replicas); err != nil {
		w.t.Fatalf("statefulset %s does not say for how many groups it is: %v", sts.Name, err)
	}
	return replicas
}

// checkHeld checks a paused set at rest: its condition says so, every pod runs its
// leader's revision, and a lost group comes back at a revision that ran.
func (w *rolling) checkHeld() {
	images := w.checkWholeGroups()
	status, held := w.status(), condition(w.status(), progressing)
	if says := held.Reason == lws.CodePaused; len(images) > 0 && says != w.heldUp() {
		w.t.Fatalf("it says %v; groups run %v, the spec says %s", brief(status), images, w.image())
	}
	if held.Reason != lws.CodePaused {
		return
	}
	w.met.when("a rollout held", true)
	w.met.when("a template held back", images[w.image()] == 0)
	w.scaled = true // a lost group is beyond the budget
	leaders := w.live().Leaders.Owned
	if len(leaders) == 0 || w.harms > 0 { // a StatefulSet created in mid-rollout knows no former revision
		return
	}
	w.met.when("a group lost while paused", true)
	w.Remove(rapid.SampledFrom(leaders).Draw(w.t, "lost"), metav1.DeletePropagationBackground)
	w.settleAfter(time.Second)
	for image := range w.checkWholeGroups() {
		if images[image] == 0 {
			w.t.Fatalf("a group came back with %s; there were %v", image, images)
		}
	}
}

// heldUp reports whether groups lack what the spec asks for.
func (w *rolling) heldUp() bool {
	truth := w.live()
	for _, g := range truth.Groups {
		if int32(g.Index) < workload.Replicas(truth.Set) && g.Leader.Spec.Containers[0].Image != w.image() {
			return true
		}
	}
	// A topology waits as a template does, and is in no revision.
	return topology(truth.StatefulSet.Own()) != truth.Set.Annotations[lwsv1.ExclusiveKeyAnnotationKey]
}

// checkWholeGroups checks that every pod has its leader's image (S5), and counts
// the groups by it.
func (w *rolling) checkWholeGroups() map[string]int {
	images, leaders := map[string]int{}, map[string]string{}
	pods := fakeapi.All[*corev1.Pod](w.Objects)
	for _, pod := range pods {
		if pod.Labels[lwsv1.WorkerIndexLabelKey] == "0" {
			image := pod.Spec.Containers[0].Image
			leaders[pod.Name] = image
			images[image]++
		}
	}
	for _, pod := range pods {
		leader := pod.Annotations[lwsv1.LeaderPodNameAnnotationKey]
		if image := pod.Spec.Containers[0].Image; leader != "" && image != leaders[leader] {
			w.t.Fatalf("worker %s has %s, its leader %s", pod.Name, image, leaders[leader])
		}
	}
	return images
}

// standing is the state of the groups, by the current partition and the replicas that
// the StatefulSet was last written for.
type standing struct {
	ready, updated map[int]bool
	partition      int32
	replicas       int
}

func (w *rolling) standing(sts *appsv1.StatefulSet) standing {
	truth, key := w.live(), sts.Labels[lwsv1.RevisionKey]
	s := standing{ready: map[int]bool{}, updated: map[int]bool{}, partition: partition(truth.StatefulSet.Own())}
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

// covered reports whether groups may go down beside those that are down or may be.
func (w *rolling) covered(s standing, more int) bool {
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

// checkServing: while nothing is scaled, no more groups are down than the budget allows.
func (w *rolling) checkServing() {
	if w.scaled {
		return
	}
	set := find[*lwsv1.LeaderWorkerSet](w.cluster, "w")
	serving := workload.Replicas(set)
	for i := range int(workload.Replicas(set)) {
		name, up := identity.LeaderName("w", i), true
		for worker := range int(workload.Size(set)) {
			if worker > 0 {
				name = identity.LeaderName(identity.LeaderName("w", i), worker)
			}
			pod := fakeapi.Find[*corev1.Pod](w.Server, name)
			up = up && pod != nil && fakeapi.Ready(pod)
		}
		if !up {
			serving--
		}
	}
	if least := workload.Replicas(set) - w.unavailable - w.surge; serving < least {
		w.t.Fatalf("%d groups are ready, %d must be", serving, least)
	}
}

func (w *rolling) checkRolled() {
	set := find[*lwsv1.LeaderWorkerSet](w.cluster, "w")
	if got := brief(set.Status)[available]; got != isAvailable {
		w.t.Fatalf("not available: %v; %+v", brief(set.Status), w.standing(w.live().StatefulSet.Own()))
	}
	pods := fakeapi.All[*corev1.Pod](w.Objects)
	if want := workload.Replicas(set) * workload.Size(set); len(pods) != int(want) {
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
		if times > 1 && !w.broken && w.harms == 0 {
			w.t.Fatalf("pod %s was made %d times", pod, times)
		}
	}
}
