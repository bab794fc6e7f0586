package lws_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/test/fakeapi"
)

// allParts has each part of a plan be followed by all that may come after it, and not by
// one of that in turn.
var allParts = flag.Bool("parts.all", false, "try all that may come after each part of a plan")

// partly is what becomes of one plan, of which only a part is carried out.
type partly struct {
	// plan is which one it is, as they come.
	plan int
	// does are its actions that are carried out.
	does uint
	// after is what comes after them.
	after string
	// loses has all revisions be lost with it.
	loses bool
}

// What comes after the part of a plan that was carried out.
const (
	// killed has another process go on, whose caches show all there is.
	killed = "killed"
	// killedBehind has another process go on, whose caches show none of it at first.
	killedBehind = "killed, caches behind"
	// unanswered has the same process go on, which does not know what it did, and whose caches do not
	// show it at first.
	unanswered = "unanswered"
	// isRefused has what was not done be refused, for a few passes.
	isRefused = "refused"
)

func (p partly) String() string {
	return fmt.Sprintf("plan %d, actions %b, %s", p.plan, p.does, p.after)
}

// partsWorld is a cluster in which one plan is carried out in part.
type partsWorld struct {
	*cluster
	// choose says of a plan whether a part of it is carried out, and which.
	choose func([]partly) (partly, bool)
	partly
	// made is set once the set stands that a scene begins with: its plans are left alone.
	made bool
	// sizes are the plans with anything to do, spelled out.
	sizes []([]string)
	// parts tells for each plan what parts of it there may be.
	parts [][]partly
	// refused is what is refused, and for how many more passes.
	refused map[identity.Ref]int
	// lags is for how many turns, this one included, caches show nothing of what was done.
	lags int
	// met counts the plans that were carried out in part.
	met int
	log []string
}

func (w *partsWorld) lookAtSet() {
	if world, err := w.observer.Set(ctx, key("w"), w.Now); err == nil {
		plan := lws.DecideSet(world)
		w.carryOut(plan, "", func(refusal lws.Refusal) {
			world.Refusal = w.memory.Refused(world.Set, refusal)
			for _, status := range of[action.WriteStatus](lws.DecideSet(world)) {
				_ = w.write(status) // what is refused is told again with the next look
			}
		})
	}
}

func (w *partsWorld) lookAtGroup(name string) {
	if _, plan, err := w.observer.GroupPlan(ctx, key(name), w.Now); err == nil {
		w.carryOut(plan, name, nil)
	}
}

// carryOut writes a plan as a pass does, or the part of it that is to be.
func (w *partsWorld) carryOut(plan lws.Plan, leader string, retell func(lws.Refusal)) {
	if len(plan.Actions) == 0 {
		return
	}
	w.sizes = append(w.sizes, spelled(plan))
	w.log = append(w.log, fmt.Sprintf("plan %d: %s", len(w.sizes), strings.Join(spelled(plan), ", ")))
	now := false
	if parts := partsOf(len(w.sizes), plan.Actions); w.made {
		w.parts = append(w.parts, parts)
		w.partly, now = w.choose(parts)
	}
	if now {
		w.met++
		w.log = append(w.log, w.String())
		if w.loses {
			defer w.loseRevisions()
		}
		if w.after != isRefused {
			w.cut(plan)
			return
		}
		for i, a := range plan.Actions {
			if w.does&(1<<i) == 0 {
				w.refused[nameless(a)] = 3
			}
		}
	}
	var undone []lws.Refusal
	for _, run := range apply.Batch(plan.Actions) {
		if deletion, deletes := run[0].(action.Delete); deletes && deletion.After && len(undone) > 0 {
			break
		}
		for _, a := range run {
			if w.refused[nameless(a)] > 0 {
				w.refused[nameless(a)]--
				refusal, _ := lws.RefusalOf(forbidden("no "+a.Target().Name), w.Now)
				if apart(a) {
					undone = append(undone, refusal)
					continue
				}
				if _, status := a.(action.WriteStatus); !status && retell != nil {
					retell(refusal)
				} else if !status {
					undone = append(undone, refusal)
				}
				w.memory.RefusedTo(w.owner(), leader, undone)
				return
			}
			if err := w.write(a); err != nil {
				return
			}
		}
	}
	if set := w.owner(); set != nil {
		w.memory.RefusedTo(set, leader, undone)
	}
}

func (w *partsWorld) owner() *lwsv1.LeaderWorkerSet {
	return fakeapi.Find[*lwsv1.LeaderWorkerSet](w.Server, "w")
}

// nameless is what an action is done to, whatever incarnation of it.
func nameless(a action.Action) identity.Ref {
	ref := a.Target()
	return identity.Ref{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

// apart tells whether no other write waits for an action.
func apart(a action.Action) bool {
	_, deletes := a.(action.Delete)
	kind := a.Target().Kind
	return deletes || kind == identity.KindPodGroup || kind == identity.KindService
}

// cut carries out a part of a plan.
func (w *partsWorld) cut(plan lws.Plan) {
	before := w.Lagging()
	for i, a := range plan.Actions {
		if w.does&(1<<i) != 0 {
			if err := w.Do(a); err != nil {
				w.log = append(w.log, fmt.Sprintf("%s %s: %v", a.Verb(), a.Target(), err))
			}
		}
	}
	if w.after != unanswered {
		w.awake()
	}
	if w.after != killed {
		w.lags = 2
		w.observer = lwscache.New(before, w.Live(), w.memory)
	}
}

// loseRevisions takes away all that says what groups run.
func (w *partsWorld) loseRevisions() {
	for _, revision := range revisions(w.cluster) {
		w.Remove(revision, metav1.DeletePropagationBackground)
	}
}

func (w *partsWorld) write(a action.Action) error {
	err := w.Do(a)
	if err != nil {
		w.log = append(w.log, fmt.Sprintf("%s %s: %v", a.Verb(), a.Target(), err))
		return err
	}
	w.remember(a)
	return nil
}

// partsOf are the parts of a plan that may be all of it that is carried out: what comes
// first, and of what goes out together any one, and all but any one.
func partsOf(number int, actions []action.Action) []partly {
	masks, first := map[uint]bool{0: true}, 0
	for _, run := range apply.Batch(actions) {
		done, all := uint(1)<<first-1, uint(1)<<(first+len(run))-1
		for i := range run {
			bit := uint(1) << (first + i)
			masks[done|bit], masks[all&^bit] = true, true
		}
		first += len(run)
		masks[all] = true
	}
	all := uint(1)<<first - 1
	var parts []partly
	afters := []string{killed, killedBehind, unanswered}
	for i, mask := range slices.Sorted(maps.Keys(masks)) {
		for j, after := range afters {
			if *allParts || (number+i)%len(afters) == j {
				parts = append(parts, partly{plan: number, does: mask, after: after})
			}
		}
	}
	for i := range actions {
		parts = append(parts, partly{plan: number, does: all &^ (1 << i), after: isRefused})
	}
	return parts
}

func (w *partsWorld) turn(passes time.Duration) {
	w.lookAtSet()
	for _, name := range allGroups {
		w.lookAtGroup(name)
	}
	if w.lags--; w.lags == 0 {
		w.observer = lwscache.New(w.cached, w.Live(), w.memory)
	}
	w.others()
	w.pass(passes)
}

func (w *partsWorld) rest() {
	w.t.Helper()
	for still, rounds := 0, 0; still < 6; rounds++ {
		if rounds > 300 {
			w.t.Fatalf("never at rest: %s", strings.Join(w.log, "\n"))
		}
		before, plans := w.version(), len(w.sizes)
		passes := 3 * time.Second
		if still > 1 {
			passes = 40 * time.Second
		}
		w.turn(passes)
		if still++; !maps.Equal(before, w.version()) || len(w.sizes) > plans {
			still = 0
		}
	}
}

// scenes are what happens to a set of three groups of two, one after the other, a few turns
// apart.
var scenes = map[string]struct {
	edits []func(*lwsv1.LeaderWorkerSet)
	steps []func(*partsWorld)
}{
	"a set is made": {[]func(*lwsv1.LeaderWorkerSet){fakeapi.UniquePerReplica}, nil},
	"workers are edited": {nil, []func(*partsWorld){
		func(w *partsWorld) { edited(w.cluster, fakeapi.Image("image:2")) },
	}},
	"workers are edited twice": {nil, []func(*partsWorld){
		func(w *partsWorld) { edited(w.cluster, fakeapi.Image("image:2")) },
		func(w *partsWorld) { edited(w.cluster, fakeapi.Image("image:3")) },
	}},
	"an edit is taken back": {nil, []func(*partsWorld){
		func(w *partsWorld) { edited(w.cluster, fakeapi.Image("image:2")) },
		func(w *partsWorld) { edited(w.cluster, fakeapi.Image("image:1")) },
	}},
	"a rollout with surge": {[]func(*lwsv1.LeaderWorkerSet){surges}, []func(*partsWorld){
		func(w *partsWorld) { edited(w.cluster, fakeapi.Image("image:2")) },
	}},
	"a rollout that is paused": {nil, []func(*partsWorld){
		func(w *partsWorld) { edited(w.cluster, fakeapi.Image("image:2")) },
		func(w *partsWorld) { pause(w.cluster) },
		func(w *partsWorld) { edited(w.cluster, fakeapi.Image("image:3")) },
		func(w *partsWorld) { resume(w.cluster) },
	}},
	"an edit while it is paused": {[]func(*lwsv1.LeaderWorkerSet){fakeapi.Leader("leader:1")}, []func(*partsWorld){
		func(w *partsWorld) { pause(w.cluster) },
		func(w *partsWorld) { edited(w.cluster, fakeapi.Image("image:3")) },
		func(w *partsWorld) { resume(w.cluster) },
	}},
	"a group fails": {[]func(*lwsv1.LeaderWorkerSet){fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart)}, []func(*partsWorld){
		func(w *partsWorld) { fakeapi.Edit(w.Server, "w-1-1", crash) },
	}},
	"a group fails in a rollout": {[]func(*lwsv1.LeaderWorkerSet){fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart)}, []func(*partsWorld){
		func(w *partsWorld) { edited(w.cluster, fakeapi.Image("image:2")) },
		func(w *partsWorld) { fakeapi.Edit(w.Server, "w-0-1", crash) },
	}},
	"a group fails as workers are edited": {[]func(*lwsv1.LeaderWorkerSet){
		fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart), fakeapi.Leader("leader:1"),
	}, []func(*partsWorld){
		func(w *partsWorld) {
			fakeapi.Edit(w.Server, "w-1-1", crash)
			w.lookAtGroup("w-1")
			edited(w.cluster, fakeapi.Image("image:2"))
		},
	}},
	"a group fails with volumes": {[]func(*lwsv1.LeaderWorkerSet){
		fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart), fakeapi.Volumes(deleteClaims, deleteClaims),
	}, []func(*partsWorld){
		func(w *partsWorld) { fakeapi.Edit(w.Server, "w-1-1", crash) },
	}},
	"a group fails that is scaled away": {[]func(*lwsv1.LeaderWorkerSet){
		fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart), fakeapi.Volumes(retainClaims, deleteClaims),
	}, []func(*partsWorld){
		func(w *partsWorld) {
			fakeapi.Edit(w.Server, "w-2-1", crash)
			edited(w.cluster, replicas(2))
		},
	}},
	"scaled down and edited with volumes": {[]func(*lwsv1.LeaderWorkerSet){fakeapi.Volumes(retainClaims, deleteClaims)}, []func(*partsWorld){
		func(w *partsWorld) {
			edited(w.cluster, func(set *lwsv1.LeaderWorkerSet) { fakeapi.Image("image:2")(set); replicas(1)(set) })
		},
	}},
	"scaled down and up with volumes": {[]func(*lwsv1.LeaderWorkerSet){fakeapi.Volumes(retainClaims, deleteClaims)}, []func(*partsWorld){
		func(w *partsWorld) { edited(w.cluster, replicas(1)) },
		func(w *partsWorld) { edited(w.cluster, replicas(3)) },
	}},
	"made larger": {nil, []func(*partsWorld){
		func(w *partsWorld) {
			edited(w.cluster, func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.Size = fakeapi.Ptr[int32](3) })
		},
	}},
	"services of their own": {nil, []func(*partsWorld){
		func(w *partsWorld) { edited(w.cluster, fakeapi.UniquePerReplica) },
	}},
	"a leader is deleted and its workers are left behind": {nil, []func(*partsWorld){
		func(w *partsWorld) {
			leader := fakeapi.Find[*corev1.Pod](w.Server, "w-1")
			w.Remove(leader, metav1.DeletePropagationOrphan)
			w.Collect(w.Objects[fakeapi.NameOf(leader)])
			edited(w.cluster, fakeapi.Image("image:2"))
		},
	}},
	"the policy is None": {[]func(*lwsv1.LeaderWorkerSet){fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart)}, []func(*partsWorld){
		func(w *partsWorld) {
			fakeapi.Edit(w.Server, "w-1-1", crash)
			edited(w.cluster, fakeapi.Policy(lwsv1.NoneRestartPolicy))
		},
	}},
	"a set is deleted and made again": {nil, []func(*partsWorld){
		func(w *partsWorld) {
			set := w.owner()
			w.Remove(set, metav1.DeletePropagationBackground)
			fakeapi.Add(w.Server, fakeapi.Set("w", 3, 2, fakeapi.Image("image:2")))
		},
	}},
	"a set is deleted and its groups are left behind": {nil, []func(*partsWorld){
		func(w *partsWorld) {
			set := w.owner()
			w.Remove(set, metav1.DeletePropagationOrphan)
			w.Collect(w.Objects[fakeapi.NameOf(set)])
			fakeapi.Add(w.Server, fakeapi.Set("w", 3, 2, fakeapi.Image("image:2")))
		},
	}},
}

func surges(set *lwsv1.LeaderWorkerSet) { rollingOf(set).MaxSurge = intstr.FromInt32(1) }

func replicas(n int32) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) { set.Spec.Replicas = &n }
}

// play has a scene come to its end, with one part of a plan.
func play(t fatal, name string, part partly) *partsWorld {
	return playWith(t, name, func(parts []partly) (partly, bool) { return part, parts[0].plan == part.plan })
}

// playWith is play where it is chosen of each plan whether all of it is carried out, or which part.
func playWith(t fatal, name string, choose func([]partly) (partly, bool)) *partsWorld {
	scene := scenes[name]
	w := &partsWorld{cluster: newCluster(t), choose: choose, refused: map[identity.Ref]int{}}
	w.pass(time.Minute)
	fakeapi.Add(w.Server, fakeapi.Set("w", 3, 2, scene.edits...))
	w.made = len(scene.steps) == 0
	w.rest()
	w.made = true
	for _, step := range scene.steps {
		step(w)
		for range 4 {
			w.turn(time.Second)
		}
	}
	w.rest()
	return w
}

// outcome is what stands, and what became of it on the way.
func (w *partsWorld) outcome() []string {
	var lines []string
	for _, object := range fakeapi.All[*corev1.Pod](w.Objects) {
		lines = append(lines, fmt.Sprintf("pod %s of %s, ready %t", object.Name, object.Spec.Containers[0].Image, fakeapi.Ready(object)))
	}
	for _, sts := range fakeapi.All[*appsv1.StatefulSet](w.Objects) {
		lines = append(lines, fmt.Sprintf("statefulset %s of %d, partition %d", sts.Name, lws.PodsOf(sts), partition(sts)))
	}
	for _, service := range fakeapi.All[*corev1.Service](w.Objects) {
		lines = append(lines, "service "+service.Name)
	}
	for _, claim := range fakeapi.All[*corev1.PersistentVolumeClaim](w.Objects) {
		lines = append(lines, fmt.Sprintf("claim %s owners %d", claim.Name, len(claim.OwnerReferences)))
	}
	for _, revision := range revisions(w.cluster) {
		if lws.BearsName(revision, "w") { // one that was refused long enough is in no history
			lines = append(lines, "revision "+revision.Labels[lwsv1.RevisionKey])
		}
	}
	status := w.status()
	lines = append(lines, fmt.Sprintf("status %d %d %d seen %t", status.Replicas, status.ReadyReplicas, status.UpdatedReplicas, status.ObservedGeneration == w.owner().Generation))
	for _, c := range status.Conditions {
		if c.Status == metav1.ConditionFalse {
			continue // what has passed depends on the way
		}
		lines = append(lines, fmt.Sprintf("condition %s %s %s", c.Type, c.Status, c.Reason))
	}
	for _, r := range status.Restarts {
		lines = append(lines, fmt.Sprintf("restarts of %d: %d, %d failures", r.Index, r.Count, len(r.Failures)))
	}
	slices.Sort(lines)
	return lines
}

// TestEveryPartOfAPlan: whatever part of a plan was carried out, whoever was killed
// after it, was not answered or refused the rest, in the end all is as if it had been done
// at once, and nothing was restarted more often.
func TestEveryPartOfAPlan(t *testing.T) {
	for name := range scenes {
		t.Run(name, func(t *testing.T) {
			whole := play(t, name, partly{})
			want, pods := whole.outcome(), whole.Created[identity.KindPod]
			tried := 0
			for _, parts := range whole.parts {
				for _, part := range parts {
					w := play(t, name, part)
					if w.met != 1 {
						t.Errorf("invalid run: %s never came", part)
					}
					tried++
					most := pods
					if part.after == isRefused || name == "a group fails that is scaled away" {
						most += 2 // a group may be restarted before it goes
					}
					diff := cmp.Diff(want, w.outcome())
					if made := w.Created[identity.KindPod]; diff != "" || made > most {
						t.Errorf("%s: %d pods were made, %d without it (-without +with)\n%s%s", part, made, pods, diff, strings.Join(w.log, "\n"))
						if t.Failed() && tried > 0 {
							return
						}
					}
				}
			}
			t.Logf("%d parts of %d plans", tried, len(whole.parts))
		})
	}
}

// TestEveryPartOfAPlanWithoutItsRevisions: whatever part of a plan was carried out before
// all revisions were lost, in the end every pod is as the spec says.
func TestEveryPartOfAPlanWithoutItsRevisions(t *testing.T) {
	for name := range scenes {
		t.Run(name, func(t *testing.T) {
			whole := play(t, name, partly{})
			for _, parts := range whole.parts {
				for _, part := range parts {
					part.loses = true
					w := play(t, name, part)
					if stranded(w.cluster) {
						continue // nobody can tell what its workers were
					}
					set := w.owner()
					for _, pod := range fakeapi.All[*corev1.Pod](w.Objects) {
						_, worker := indexOf(pod.Name)
						if pod.Spec.Containers[0].Image != imageOf(set, worker) {
							t.Errorf("%s: %s\n%s", part, strings.Join(w.outcome(), "\n"), strings.Join(w.log, "\n"))
							return
						}
					}
				}
			}
		})
	}
}

// TestPartsOfManyPlans: the same of several plans, one after the other.
func TestPartsOfManyPlans(t *testing.T) {
	whole, met := map[string]*partsWorld{}, 0
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(scenes))).Draw(t, "scene")
		if whole[name] == nil {
			whole[name] = play(t, name, partly{})
		}
		most, left := whole[name].Created[identity.KindPod], 5
		w := playWith(t, name, func(parts []partly) (partly, bool) {
			if left == 0 || rapid.IntRange(0, 3).Draw(t, "in part") > 0 {
				return partly{}, false
			}
			left--
			part := rapid.SampledFrom(parts).Draw(t, "part")
			if part.after == isRefused {
				most += 2
			}
			return part, true
		})
		diff := cmp.Diff(whole[name].outcome(), w.outcome())
		if made := w.Created[identity.KindPod]; diff != "" || made > most {
			t.Fatalf("%s: %d pods were made, %d may be (-without +with)\n%s%s", name, made, most, diff, strings.Join(w.log, "\n"))
		}
		met += w.met
	})
	if met == 0 {
		t.Error("invalid run: every plan was carried out")
	}
}
