package lws_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

var anything = scenario{
	changes: []string{
		"workers", "workers", "leaders", "undo", "size", "replicas", "network", "policy", "startup", "startup", "termination", "budget", "partition",
		"topology", "pause", "pause", "resume", "label", "after start",
	},
	harms: []string{
		"restarts", "ends", "is deleted", "is deleted", "vanishes", "is held", "flaps", "crashes", "crashes",
		"leader orphans its workers", "leader orphans its workers", "statefulset", "service", "revision", "replicas", "foreign object",
	},
	mostEdits: 6, mostHarms: 8, deletions: true,
}

// TestAnything: whatever users ask for, whatever breaks and whichever write fails, in the
// end everything is as the spec says, and nothing more is written (L1, L2, L7, L8).
func TestAnything(t *testing.T) {
	inWorlds(t, 3, func(t *rapid.T, m *met) {
		set := fakeapi.Set("w", rapid.Int32Range(0, 4).Draw(t, "replicas"), rapid.Int32Range(1, 3).Draw(t, "size"))
		set.Spec.LeaderWorkerTemplate.RestartPolicy = rapid.SampledFrom(restartPolicies).Draw(t, "policy")
		if m.when("volumes", rapid.IntRange(0, 3).Draw(t, "volumes") == 0) {
			drawVolumes(t)(set)
		}
		w := newWorld(t, m, anything, set)
		w.WithoutMaxUnavailable = rapid.Bool().Draw(t, "without maxUnavailable")
		for range rapid.IntRange(0, 3).Draw(t, "features") {
			w.edit(w.change)
		}
		w.lag()
		if rapid.Bool().Draw(t, "settled") {
			w.settleAfter(30 * time.Second)
		}
		w.run(rapid.IntRange(0, 150).Draw(t, "steps"))
		for _, then := range []func(){w.finish, w.tidyUp, w.checkAtRest} {
			w.settleAfter(30 * time.Second)
			then()
		}
	},
		"a crash before a write", "a crash after a write", "an answer lost", "a write refused", "a set deleted",
		"a statefulset deleted", "a statefulset scaled by hand", "workers scaled by hand", "a revision lost", "all revisions lost",
		"a foreign object", "a foreign object with a controller", "volumes", "groups given up",
		"undo", "size", "replicas", "network", "policy", "startup", "termination", "budget", "partition", "topology", "pause", "resume", "after start",
		"LeaderWorkerSet deleted in the Background", "LeaderWorkerSet deleted in the Foreground", "LeaderWorkerSet deleted in the Orphan",
		"Pod deleted in the Orphan", "StatefulSet deleted in the Orphan", "a group recorded",
		lws.CodePreviousIncarnation, lws.CodeNameConflict, lws.CodeLeaderNotReady, lws.CodeGarbage, lws.CodeOrphan,
		lws.CodeSuperseded, lws.CodeRollout, lws.CodePaused, lws.CodeTie, lws.CodeRestart, lws.CodeBackoff,
		"a group ended in parallel",
	)
}

var rollouts = scenario{
	changes:   []string{"workers", "workers", "broken", "replicas", "pause", "resume", "another topology", "termination"},
	harms:     []string{"leader statefulset"},
	mostEdits: 4, strict: true,
}

// rolling is a world whose set is rolled out.
type rolling struct {
	*world
	made map[string]int // pods created since the first edit, by name, image, topology and template
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
	w := &rolling{newWorld(t, m, may, set), map[string]int{}}
	w.WithoutMaxUnavailable = !gate
	w.settle()
	w.lag()
	w.after = w.checkServing
	w.Added = func(object client.Object) {
		if pod, ok := object.(Pod); ok {
			// A pod that is away while the template changes comes back at the former one.
			template := ""
			if sts := fakeapi.Find[StatefulSet](w.Server, "w"); sts != nil {
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

func (w *rolling) image() string { return imageOf(find[Set](w.cluster, "w"), 1) }

// TestRollouts: in any order of events, with caches that lag and writes that fail, a rollout ends,
// stays within its budget and creates each pod once for a template. One that another
// implementation began continues from where it stands.
func TestRollouts(t *testing.T) {
	for name, gate := range map[string]bool{"with maxUnavailable": true, "without maxUnavailable": false} {
		t.Run(name, func(t *testing.T) {
			inWorlds(t, 1, func(t *rapid.T, m *met) {
				w := newRolling(t, gate, m)
				for range rapid.IntRange(0, 2).Draw(t, "hand-overs") {
					w.run(rapid.IntRange(0, 40).Draw(t, "steps"))
					w.handOver()
				}
				w.run(rapid.IntRange(0, 110).Draw(t, "steps"))
				w.settleAfter(time.Second)
				if lws.Paused(find[Set](w.cluster, "w")) {
					w.checkHeld()
				}
				w.finishRollout()
			}, "groups given up", "a pod made", "a write refused", "a leader replaced directly", "a topology changed",
				"a rollout held", "leader statefulset", "a template held back", "a write while paused",
				"a group lost while paused", "a hand-over in mid-rollout")
		})
	}
}

// finishRollout resumes the rollout, away from a broken image, and checks its end.
func (w *rolling) finishRollout() {
	resume(w.cluster)
	if w.image() == brokenImage {
		w.roll()
	}
	w.settleAfter(time.Second)
	w.checkAtRest()
	for pod, times := range w.made {
		w.met.when("a pod made", true)
		if times > 1 && !w.scaled && !w.broken && w.harms == 0 {
			w.t.Fatalf("pod %s was made %d times", pod, times)
		}
	}
}

// handOver leaves the leader StatefulSet as another implementation writes it, to a new operator.
// Its first plan creates no revision for a spec that is being rolled out.
func (w *rolling) handOver() {
	if fakeapi.Find[StatefulSet](w.Server, "w") != nil {
		on("w", func(sts StatefulSet) { delete(sts.Annotations, lws.AppliedAnnotationKey) })(w.cluster)
	}
	w.deliver()
	w.awake()
	s := w.live()
	live := s.StatefulSet.Own()
	w.met.when("a hand-over in mid-rollout", partition(live) > 0)
	for _, a := range of[action.Create](lwsset.Decide(s)) {
		if _, revision := a.Object.(Revision); revision && live != nil && live.Spec.Template.Spec.Containers[0].Image == w.image() {
			w.t.Fatalf("create %s", a.Target())
		}
	}
}

// checkHeld checks a paused set at rest: its condition says so, every pod runs its
// leader's revision, and a lost group comes back at a revision that ran.
func (w *rolling) checkHeld() {
	images := w.checkWholeGroups()
	held := condition(w.status(), updating)
	if says := held.Reason == lws.CodePaused; len(images) > 0 && says != w.heldUp() {
		w.t.Fatalf("it says %v; groups run %v, the spec says %s", brief(w.status()), images, w.image())
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
		expect.Must(w.t, images[image] != 0, "a group came back with %s; there were %v", image, images)
	}
}

// heldUp reports whether groups lack what the spec asks for.
func (w *rolling) heldUp() bool {
	truth := w.live()
	// A topology waits as a template does, and is in no revision.
	return topology(truth.StatefulSet.Own()) != truth.Set.Annotations[lwsv1.ExclusiveKeyAnnotationKey] ||
		slices.ContainsFunc(truth.Groups, func(g lws.Group) bool {
			return int32(g.Index) < workload.Replicas(truth.Set) && g.Leader.Spec.Containers[0].Image != w.image()
		})
}

// checkServing: while nothing is scaled, no more groups are down than the budget allows.
func (w *rolling) checkServing() {
	if w.scaled {
		return
	}
	set := find[Set](w.cluster, "w")
	rolling, serving := rollingOf(set.DeepCopy()), workload.Replicas(set)
	for i := range int(workload.Replicas(set)) {
		leader := identity.LeaderName("w", i)
		for worker := range int(workload.Size(set)) {
			name := leader
			if worker > 0 {
				name = identity.LeaderName(leader, worker)
			}
			if pod := fakeapi.Find[Pod](w.Server, name); pod == nil || !fakeapi.Ready(pod) {
				serving--
				break
			}
		}
	}
	least := workload.Replicas(set) - rolling.MaxUnavailable.IntVal - rolling.MaxSurge.IntVal
	expect.Must(w.t, serving >= least, "%d groups are ready, %d must be", serving, least)
}

var restarts = scenario{
	changes:   []string{"workers", "another restart policy", "termination"},
	harms:     []string{"restarts", "ends", "is deleted in the background", "vanishes", "loses its statefulset"},
	mostEdits: 2, mostHarms: 4,
}

// failing is a world whose pods fail.
type failing struct {
	*world
	// failed are the leaders of groups in which a pod failed, and owed those of them
	// whose group had started according to the status.
	failed, owed map[types.UID]string
	// removed are the leaders that a harm took, deleted those that the operator deleted for a
	// restart, and left those that go for another reason: a rollout, a scaling down, the garbage collector.
	removed, deleted, left map[types.UID]bool
}

// TestRestarts: each group that failed after it started is recreated, no other group is,
// and none twice for one leader (S3).
func TestRestarts(t *testing.T) {
	inWorlds(t, 1, func(t *rapid.T, m *met) {
		set := fakeapi.Set("w", rapid.Int32Range(1, 4).Draw(t, "replicas"), rapid.Int32Range(1, 3).Draw(t, "size"),
			fakeapi.Policy(rapid.SampledFrom(recreating).Draw(t, "policy")))
		w := &failing{newWorld(t, m, restarts, set), map[types.UID]string{}, map[types.UID]string{},
			map[types.UID]bool{}, map[types.UID]bool{}, map[types.UID]bool{}}
		if rapid.Bool().Draw(t, "started") {
			w.settle()
		}
		w.lag()
		w.judge, w.fails, w.after = w.judgeRestart, w.fail, w.leave
		w.run(rapid.IntRange(0, 150).Draw(t, "steps"))
		w.settleAfter(30 * time.Second)
		w.after()
		w.checkAtRest()
		w.checkWholeGroups()
		w.checkRecreated()
	}, "a group recreated", "a group fails after it started", "a crash before a write", "a write refused", "workers", "another restart policy")
}

// fail records that a pod fails. A group whose leader goes is recreated by that.
func (w *failing) fail(pod Pod, how string) {
	leader := w.leaderOf(pod)
	if leader == pod && (how == "is deleted in the background" || how == "vanishes") {
		w.removed[pod.UID] = true
		return
	}
	if leader == nil || leader.DeletionTimestamp != nil {
		return
	}
	w.failed[leader.UID] = how
	if slices.ContainsFunc(w.status().Started, func(s lwsv1.StartedGroup) bool { return s.Leader == leader.UID }) {
		w.met.when("a group fails after it started", true)
		w.owed[leader.UID] = how + " " + pod.Name
	}
}

// judgeRestart checks a delete against the state of the cluster at that moment. A worker is
// deleted only if its leader failed, is terminating or is gone.
func (w *failing) judgeRestart(a action.Action) error {
	deletion, ok := a.(action.Delete)
	pod := fakeapi.Find[Pod](w.Server, a.Target().Name)
	if !ok || deletion.Because.Code != lws.CodeRestart || a.Target().Kind != identity.KindPod || pod == nil || pod.UID != a.Target().UID {
		return nil
	}
	leader := w.leaderOf(pod)
	switch {
	case leader == nil || leader.DeletionTimestamp != nil:
		return nil // it goes already
	case w.failed[leader.UID] == "":
		return fmt.Errorf("no pod of the group of %s failed", leader.Name)
	case leader == pod && w.deleted[pod.UID]:
		return fmt.Errorf("it is deleted twice")
	}
	if leader == pod && (pod.ResourceVersion == deletion.Object.ResourceVersion || deletion.AnyVersion) {
		w.deleted[pod.UID] = true
		w.met.when("a group recreated", true)
	}
	return nil
}

func (w *failing) checkRecreated() {
	stands := map[types.UID]bool{}
	for _, pod := range fakeapi.All[Pod](w.Objects) {
		if stands[pod.UID] = true; w.owed[pod.UID] != "" {
			w.t.Fatalf("group of %s was not recreated: %s; %+v", pod.Name, w.owed[pod.UID], w.status().Restarts)
		}
	}
	for _, r := range w.status().Restarts {
		last := r.Failures[len(r.Failures)-1].Reason
		gone := last == restart.CodeLeaderReplaced && !stands[r.Leader] || last == restart.CodePodDeleted && w.left[r.Leader]
		if w.failed[r.Leader] == "" && !w.removed[r.Leader] && !gone {
			w.t.Fatalf("group %d is said to have failed under a leader that did not: %+v", r.Index, r)
		}
	}
}

// leave notes the leaders that go, but not for a restart.
func (w *failing) leave() {
	for _, pod := range fakeapi.All[Pod](w.Objects) {
		if pod.DeletionTimestamp != nil {
			w.left[pod.UID] = !w.deleted[pod.UID]
		}
	}
}

// TestASetDeletedAndCreatedAgain: in any order of events and with caches that lag, the
// next incarnation has exactly its pods, creates none twice and none from the previous
// template, and at most one revision.
func TestASetDeletedAndCreatedAgain(t *testing.T) {
	inWorlds(t, 3, func(t *rapid.T, m *met) {
		how := rapid.SampledFrom([]metav1.DeletionPropagation{
			metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
		}).Draw(t, "how")
		replicas, size := rapid.Int32Range(1, 3).Draw(t, "replicas"), rapid.Int32Range(1, 3).Draw(t, "size")
		image := rapid.SampledFrom([]string{"image:1", "image:2"}).Draw(t, "image")
		w := newWorld(t, m, scenario{}, fakeapi.Set("w", replicas, size))
		w.grace = time.Duration(rapid.IntRange(0, 8).Draw(t, "grace")) * time.Second
		w.noGC = m.when("no garbage collector", how == metav1.DeletePropagationBackground && rapid.Bool().Draw(t, "no collector"))
		w.settle()
		w.lag()
		w.pass(time.Minute)
		made := map[types.UID]int{} // pods, by the set's UID
		w.Added = func(object client.Object) {
			if pod, ok := object.(Pod); ok {
				uid, set := w.incarnation(pod), fakeapi.Find[Set](w.Server, "w")
				if made[uid]++; set != nil && set.UID == uid && w.next == nil && pod.Spec.Containers[0].Image != image {
					t.Fatalf("pod %s of the next incarnation has %s, want %s", pod.Name, pod.Spec.Containers[0].Image, image)
				}
			}
		}
		w.Remove(find[Set](w.cluster, "w"), how)
		m.when(string(how), true)
		w.next = fakeapi.Set("w", replicas, size, fakeapi.Image(image))
		w.next.Spec.PodTerminationPolicy = rapid.SampledFrom(terminationPolicies).Draw(t, "next termination")
		w.run(rapid.IntRange(0, 120).Draw(t, "steps"))
		w.settleAfter(time.Second)
		w.checkAtRest()
		want := int(replicas * size)
		if m.when("pods taken over", how == metav1.DeletePropagationOrphan && image == "image:1") {
			want = 0
		}
		set, created := find[Set](w.cluster, "w"), map[string]bool{}
		expect.Must(t, made[set.UID] == want, "%d pods of the next incarnation were created, want %d", made[set.UID], want)
		for _, r := range revisions(w.cluster) {
			if w.incarnation(r) == set.UID && !r.CreationTimestamp.Before(&set.CreationTimestamp) {
				created[r.Labels[lwsv1.RevisionKey]] = true // twice, if a cache shows the former's for a while
			}
		}
		expect.Must(t, len(created) <= 1, "the next incarnation created revisions %v", created)
	}, "Background", "Foreground", "Orphan", "no garbage collector", "pods taken over", "a group ended in parallel", "a set gone before its group ended")
}

// incarnation is the UID of the set at the end of an object's owners.
func (w *world) incarnation(object metav1.Object) types.UID {
	for {
		owner := metav1.GetControllerOf(object)
		if owner == nil {
			return ""
		}
		above := w.Objects[fakeapi.Name{Kind: identity.Kind(owner.Kind), Namespace: fakeapi.Namespace, Name: owner.Name}]
		if identity.Kind(owner.Kind) == identity.KindLeaderWorkerSet || above == nil || above.GetUID() != owner.UID {
			return owner.UID
		}
		object = above
	}
}
