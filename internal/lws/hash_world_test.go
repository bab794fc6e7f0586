package lws_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/reconcile"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

type ReplicaSet = *appsv1.ReplicaSet

// hashWorld is a set of Hash groups, with stand-ins for the controllers of Deployments and ReplicaSets.
type hashWorld struct {
	*cluster
	t                    *rapid.T
	size                 int32
	unavailable, surge   int32
	keys, edits, desired int32
	// shrank is set once stopped groups may have lost their place: a scale-down, or a rollout at one revision.
	shrank bool
}

// The laws of room, for any order of events and controllers: groups that hold room never become more than are allowed,
// free room is used in one reconcile, a stopped group is let go for a cause alone, and everything settles.
func TestLawsOfRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newHashWorld(t)
		events := map[string]func(){
			"crash": w.crash, "lose": w.lose, "scale": w.rescale, "roll": w.newTemplate, "drift": w.drift, "pause": w.pause, "recover": w.recoverAll,
			"set": w.reconcileSet, "groups": w.reconcileGroups, "deployment": w.deploy, "replicasets": w.replicaSets, "nodes": w.others, "all": w.round,
		}
		for range rapid.IntRange(5, 30).Draw(t, "steps") {
			events[rapid.SampledFrom(slices.Sorted(maps.Keys(events))).Draw(t, "event")]()
			w.reconcileSet()
		}
		fakeapi.Edit(w.Server, "w", func(set Set) { set.Annotations = nil })
		w.still(3, 80, func() {
			w.recoverAll()
			w.round()
			w.pass(time.Hour) // no back-off
		})
		w.checkSettled()
	})
}

func newHashWorld(t *rapid.T) *hashWorld {
	w := &hashWorld{
		cluster: newCluster(t), t: t, size: rapid.Int32Range(1, 2).Draw(t, "size"),
		unavailable: rapid.Int32Range(0, 2).Draw(t, "unavailable"), surge: rapid.Int32Range(0, 2).Draw(t, "surge"),
	}
	w.writer = func(actor reconcile.Writer) reconcile.Writer { return mayBeStale{mustWrite{t, actor}} }
	if w.unavailable+w.surge == 0 {
		w.unavailable = 1
	}
	fakeapi.Add(w.Server, fakeapi.Set("w", rapid.Int32Range(1, 3).Draw(t, "replicas"), w.size, onRestart, atMost(rapid.Int32Range(-1, 1).Draw(t, "restarts")), func(set Set) {
		set.Spec.GroupIdentity = lwsv1.HashGroupIdentity
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{
			MaxUnavailable: intstr.FromInt32(w.unavailable), MaxSurge: intstr.FromInt32(w.surge),
		}
	}))
	return w
}

// round lets everything act once.
func (w *hashWorld) round() {
	w.reconcileSet()
	w.reconcileGroups()
	w.deploy()
	w.replicaSets()
	w.others()
	w.pass(3 * time.Second)
}

// mayBeStale is a writer that may find the cluster changed since the read.
type mayBeStale struct{ mustWrite }

func (w mayBeStale) Do(ctx context.Context, a action.Action) (string, error) {
	version, err := w.Writer.Do(ctx, a)
	if err != nil && !errors.Is(err, apply.ErrStale) && !errors.Is(err, apply.ErrGone) {
		w.t.Fatalf("%s %s: %v", a.About().Verb, a.Target(), err)
	}
	return version, err
}

func (w *hashWorld) reconcileSet() {
	plan, holding := w.decideSet(), w.holding()
	if n := len(admittedBy(plan)); n > 0 && holding+n > w.allowed(w.replaces) {
		w.t.Fatalf("%d groups hold room, %d more are admitted, and %d are allowed", holding, n, w.allowed(w.replaces))
	}
	if released := releasedBy(plan); len(released) > 0 && (!w.shrank || w.active()+w.stopped() <= w.allowed(w.differs)) {
		w.t.Fatalf("released %v: %d groups run, %d are stopped, of %d", released, w.active(), w.stopped(), w.allowed(w.differs))
	}
	before := w.deployment()
	w.cluster.reconcileSet()
	after := w.deployment()
	if before == nil || lws.Fingerprint(before.Spec) != lws.Fingerprint(after.Spec) {
		fakeapi.Edit(w.Server, "w", func(d Deployment) { d.Generation++ })
		return
	}
	for _, leader := range w.leadersOf() {
		if current := leader.Labels[lwsv1.RevisionKey] == after.Labels[lwsv1.RevisionKey]; current && workload.IsGated(leader) &&
			leader.DeletionTimestamp == nil && w.holding() < w.allowed(w.differs) && !creates(plan) {
			w.t.Fatalf("%s waits while %d of %d groups hold room", leader.Name, w.holding(), w.allowed(w.differs))
		}
	}
}

// creates reports whether a plan makes a revision first: the rest follows it.
func creates(plan lws.Plan) bool {
	return slices.ContainsFunc(plan.Actions, func(a action.Action) bool { return a.About().Verb == "create" })
}

func (w *hashWorld) reconcileGroups() {
	names := map[string]bool{}
	for _, pod := range fakeapi.All[Pod](w.Objects) {
		names[workload.Of(pod).LeaderName] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		w.reconcileGroup(name)
	}
}

func (w *hashWorld) deployment() Deployment { return fakeapi.Find[Deployment](w.Server, "w") }

func (w *hashWorld) leadersOf() []Pod {
	return slices.DeleteFunc(w.pods(), func(pod Pod) bool { return !workload.IsHashLeader(pod) })
}

// pods are all pods by name.
func (w *hashWorld) pods() []Pod {
	return slices.SortedFunc(slices.Values(fakeapi.All[Pod](w.Objects)), func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
}

// holding counts the groups that have a pod which is, or may be, on a node.
func (w *hashWorld) holding() int {
	groups := map[string]bool{}
	for _, pod := range w.pods() {
		if !workload.IsGated(pod) {
			groups[pod.Labels[lwsv1.GroupUniqueHashLabelKey]] = true
		}
	}
	return len(groups)
}

func (w *hashWorld) active() int {
	return len(slices.DeleteFunc(w.leadersOf(), func(leader Pod) bool {
		return leader.DeletionTimestamp != nil || workload.IsGated(leader) ||
			lws.IsExhausted(leader) || workload.HasEnded(leader)
	}))
}

func (w *hashWorld) stopped() int {
	return len(slices.DeleteFunc(w.leadersOf(), func(leader Pod) bool { return !lws.IsExhausted(leader) }))
}

// allowed is how many groups may hold room: those of a surge while the Deployment has leaders that it replaces.
func (w *hashWorld) allowed(isOld func(leader Pod) bool) int {
	replicas := int(*fakeapi.Find[Set](w.Server, "w").Spec.Replicas)
	d := w.deployment()
	if d != nil && (d.Status.UpdatedReplicas < d.Status.Replicas || slices.ContainsFunc(w.leadersOf(), isOld)) {
		replicas += int(w.surge)
	}
	return replicas
}

// replaces reports whether a leader has not the present template, and differs whether its revision says so.
func (w *hashWorld) replaces(leader Pod) bool { return !metav1.IsControlledBy(leader, w.present()) }
func (w *hashWorld) differs(leader Pod) bool {
	return leader.Labels[lwsv1.RevisionKey] != w.deployment().Spec.Template.Labels[lwsv1.RevisionKey]
}

// present is the ReplicaSet of the present template, which is made if there is none.
func (w *hashWorld) present() ReplicaSet {
	d := w.deployment()
	name := "w-" + lws.Fingerprint(d.Spec.Template)
	if rs := fakeapi.Find[ReplicaSet](w.Server, name); rs != nil {
		return rs
	}
	return w.replicaSet(d, name)
}

// running are the leaders of a ReplicaSet that count for it, those to delete first last.
func (w *hashWorld) running(rs ReplicaSet) []Pod {
	pods := slices.DeleteFunc(w.leadersOf(), func(pod Pod) bool {
		return !metav1.IsControlledBy(pod, rs) || pod.DeletionTimestamp != nil || workload.HasEnded(pod)
	})
	rank := func(pod Pod) int {
		return map[bool]int{true: 0, false: 1}[w.serves(pod)] + map[bool]int{true: 1}[workload.IsGated(pod)]
	}
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(rank(a)-rank(b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return pods
}

func (w *hashWorld) serves(leader Pod) bool {
	return lws.PodReady(leader) && (w.size == 1 || lws.GroupReadyOf(leader) == corev1.ConditionTrue)
}

func (w *hashWorld) available(rs ReplicaSet) int32 {
	return int32(len(slices.DeleteFunc(w.running(rs), func(leader Pod) bool { return !w.serves(leader) })))
}

// grow changes how many leaders a ReplicaSet has.
func (w *hashWorld) grow(rs ReplicaSet, by int32) {
	fakeapi.Edit(w.Server, rs.Name, func(rs ReplicaSet) { *rs.Spec.Replicas += by })
}

// deploy acts as the Deployment controller.
func (w *hashWorld) deploy() {
	d := w.deployment()
	if d == nil {
		return
	}
	present, total := w.present(), int32(0)
	var old []ReplicaSet
	for _, rs := range slices.SortedFunc(slices.Values(fakeapi.All[ReplicaSet](w.Objects)), func(a, b ReplicaSet) int { return cmp.Compare(a.Name, b.Name) }) {
		if total += *rs.Spec.Replicas; rs.Name != present.Name {
			old = append(old, rs)
		}
	}
	if d.Spec.Paused {
		w.deployPaused(*d.Spec.Replicas, append(old, present))
	} else {
		w.rollOn(*d.Spec.Replicas, total, present, old)
	}
	w.desired = *d.Spec.Replicas
	var all, updated int32
	for _, rs := range fakeapi.All[ReplicaSet](w.Objects) {
		n := int32(len(w.running(rs)))
		if all += n; rs.Name == present.Name {
			updated = n
		}
	}
	fakeapi.Edit(w.Server, "w", func(d Deployment) {
		d.Status.ObservedGeneration, d.Status.Replicas, d.Status.UpdatedReplicas = d.Generation, all, updated
	})
}

// deployPaused scales what there is, the largest ReplicaSet first.
func (w *hashWorld) deployPaused(replicas int32, all []ReplicaSet) {
	for by := replicas - w.desired; by != 0; {
		slices.SortStableFunc(all, func(a, b ReplicaSet) int { return int(*b.Spec.Replicas - *a.Spec.Replicas) })
		step := max(by, -*all[0].Spec.Replicas)
		if step == 0 {
			return
		}
		w.grow(all[0], step)
		by -= step
		all[0] = fakeapi.Find[ReplicaSet](w.Server, all[0].Name)
	}
}

// rollOn takes a rollout one step further.
func (w *hashWorld) rollOn(replicas, total int32, present ReplicaSet, old []ReplicaSet) {
	lacks := replicas - *present.Spec.Replicas
	if by := min(lacks, replicas+w.surge-total); lacks < 0 || by > 0 {
		w.grow(present, max(by, min(lacks, 0)))
		return
	}
	least, available := replicas-w.unavailable, w.available(present)
	may := total - least - (*present.Spec.Replicas - available)
	for _, rs := range old { // those that do not serve first
		n := min(max(0, may), *rs.Spec.Replicas-w.available(rs))
		available += w.available(rs)
		w.grow(rs, -n)
		may -= n
	}
	for _, rs := range old {
		n := max(0, min(may, available-least, *fakeapi.Find[ReplicaSet](w.Server, rs.Name).Spec.Replicas))
		w.grow(rs, -n)
		may, available = may-n, available-n
	}
}

// replicaSets acts as the ReplicaSet controller.
func (w *hashWorld) replicaSets() {
	for _, rs := range fakeapi.All[ReplicaSet](w.Objects) {
		pods := w.running(rs)
		for i := len(pods); i < int(*rs.Spec.Replicas); i++ {
			w.make(rs)
		}
		for i := int(*rs.Spec.Replicas); i < len(pods); i++ {
			w.Remove(pods[i], metav1.DeletePropagationBackground)
		}
	}
}

func (w *hashWorld) make(rs ReplicaSet) {
	w.keys++
	key := fmt.Sprintf("%07x%033x", w.keys*7, w.keys)
	fakeapi.Add(w.Server, w.newLeader(rs, rs.Spec.Template.DeepCopy(), fmt.Sprintf("%s-%d", rs.Name, w.keys), key))
}

// crash has a container fail, and lose a pod vanish.
func (w *hashWorld) crash() { w.onSome(func(pod Pod) { fakeapi.Edit(w.Server, pod.Name, crash) }) }
func (w *hashWorld) lose() {
	w.onSome(func(pod Pod) { w.Remove(pod, metav1.DeletePropagationBackground) })
}

func (w *hashWorld) onSome(do func(Pod)) {
	pods := slices.DeleteFunc(w.pods(), func(pod Pod) bool { return !fakeapi.Ready(pod) })
	if len(pods) > 0 {
		do(pods[rapid.IntRange(0, len(pods)-1).Draw(w.t, "pod")])
	}
}

func (w *hashWorld) rescale() {
	to := rapid.Int32Range(0, 3).Draw(w.t, "to")
	fakeapi.Edit(w.Server, "w", func(set Set) {
		w.shrank = w.shrank || to < *set.Spec.Replicas
		set.Spec.Replicas = &to
		set.Generation++
	})
}

func (w *hashWorld) newTemplate() {
	w.edits++
	fakeapi.Edit(w.Server, "w", func(set Set) {
		fakeapi.Image(fmt.Sprint("image:", w.edits%3))(set)
		set.Generation++
	})
}

// drift has a user restart the Deployment.
func (w *hashWorld) drift() {
	if w.deployment() == nil {
		return
	}
	w.edits++
	w.shrank = true
	fakeapi.Edit(w.Server, "w", func(d Deployment) {
		metav1.SetMetaDataAnnotation(&d.Spec.Template.ObjectMeta, "kubectl.kubernetes.io/restartedAt", fmt.Sprint(w.edits%3))
		d.Generation++
	})
}

func (w *hashWorld) pause() {
	fakeapi.Edit(w.Server, "w", func(set Set) {
		if set.Annotations = nil; rapid.Bool().Draw(w.t, "pause") {
			set.Annotations = map[string]string{lwsv1.PausedAnnotationKey: "true"}
		}
	})
}

func (w *hashWorld) recoverAll() {
	for _, leader := range w.leadersOf() {
		if leader.DeletionTimestamp != nil && lws.IsExhausted(leader) && leader.Annotations[recover] == "" {
			fakeapi.Edit(w.Server, leader.Name, func(pod Pod) { pod.Annotations = withAnnotation(pod.Annotations, recover, "true") })
		}
	}
}

// checkSettled checks that all groups that are wanted serve, at the present template, and that the set says so.
func (w *hashWorld) checkSettled() {
	replicas, present := int(*fakeapi.Find[Set](w.Server, "w").Spec.Replicas), w.present()
	leaders := w.leadersOf()
	for _, leader := range leaders {
		expect.Must(w.t, w.serves(leader) && metav1.IsControlledBy(leader, present),
			"%s: gates %v, conditions %v", leader.Name, leader.Spec.SchedulingGates, leader.Status.Conditions)
	}
	expect.Must(w.t, len(leaders) == replicas && len(w.pods()) == replicas*int(w.size),
		"%d leaders and %d pods, of %d groups of %d", len(leaders), len(w.pods()), replicas, w.size)
	expect.Must(w.t, condition(w.status(), string(lwsv1.LeaderWorkerSetAvailable)).Status == metav1.ConditionTrue,
		"the set says %v", brief(w.status()))
}
