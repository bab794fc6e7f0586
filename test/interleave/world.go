package interleave

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"lockstep.dev/lockstep/internal/protect"
	"lockstep.dev/lockstep/test/kubelet"
)

// rules are who is there, and what is taken away from the protocol.
type rules struct {
	// builtIn: the built-in controller owns P; without it, ours does.
	builtIn bool
	// barrier: claims are born with B, and ours is there.
	barrier bool
	// kubelets are of which kind each node is.
	kubelets []kubelet.Kind

	// What is taken away.
	sharedReads    bool // a reading serves claims that began terminating after it
	anyVersion     bool // writes carry no preconditions
	errorsMeanNone bool // a list that fails shows no pods
	byCache        bool // the watch of pods is never asked whether it is up to date
	ignoresP       bool // B is judged while P is there
}

// faults are how much may go wrong, still.
//
// Users are given only so much to do as well: what they do is what the races are
// about, and if they did it all the time nothing would come of anything.
type faults struct{ crashes, lost, claims, pods, ends, writes int }

// world is everybody, between two steps.
type world struct {
	ctx    context.Context
	rules  rules
	store  *store
	wire   *wire
	faults faults

	ours    *ours
	builtIn *builtIn
	// mounts are what kubelets have admitted and mounted, by the UID of the pod.
	mounts map[types.UID]map[string]*mount
	// shared is the reading that serves for others.
	shared  *corev1.PodList
	sharers int
	// seen counts what makes a run worth something.
	seen map[string]int
}

// What is counted.
const (
	mounted      = "mounted"
	admittedLate = "admitted while terminating"
	crashes      = "crashes of ours"
	requestsLost = "requests lost"
	answersLost  = "answers lost"
)

// mount is one volume of one pod.
type mount struct {
	claim types.UID
	done  bool // admitted, and mounted
}

const foreign = "example.com/other"

func newWorld(ctx context.Context, r rules, f faults) *world {
	w := &world{ctx: ctx, rules: r, store: newStore(), wire: &wire{}, faults: f, mounts: map[types.UID]map[string]*mount{}, seen: map[string]int{}}
	for _, name := range []string{"a", "b"} {
		w.store.createClaim(w.claim(name))
	}
	if r.barrier {
		w.startOurs()
	}
	if r.builtIn {
		w.startBuiltIn()
	}
	return w
}

// claim is one as admission makes it, bound to a volume of its own.
func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{protect.PodsFinalizer}}}
	if w.rules.barrier {
		claim.Finalizers = append(claim.Finalizers, protect.BarrierFinalizer)
	}
	claim.Spec.VolumeName, claim.Status.Phase = "volume", corev1.ClaimBound
	return claim
}

func pod(name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, claim := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return p
}

// read is a reading of pods for ours, of now.
func (w *world) read() *corev1.PodList {
	if !w.rules.sharedReads {
		return w.store.podsNow()
	}
	if w.shared == nil || w.sharers == 0 {
		w.shared, w.sharers = w.store.podsNow(), 4
	}
	w.sharers--
	return w.shared
}

var errGone = errors.New("is gone")

// lost is the claims that are gone while a pod has them mounted.
func (w *world) lost() error {
	for _, name := range sorted(w.store.pods) {
		pod := w.store.pods[name]
		for claim, m := range w.mounts[pod.UID] {
			if now := w.store.claims[claim]; m.done && (now == nil || now.UID != m.claim) {
				return fmt.Errorf("pod %s has claim %s (%s) mounted, which %w", name, claim, m.claim, errGone)
			}
		}
	}
	return nil
}

func (w *world) underWay(add adder) {
	for _, c := range w.wire.underWay() {
		by := oursArrives
		switch {
		case c.late:
			by = lateArrives
		case c.from != "ours":
			by = builtInArrives
		}
		add(by, func() { w.wire.arrive(c) }, "%s", c)
	}
}

func (w *world) informers(add adder) {
	if w.ours != nil && w.ours.caches.claims.behind() {
		add(oursHearsOfClaims, w.ours.caches.claims.deliver, "ours: hears of a claim")
		add(oursHearsOfClaims, func() { w.ours.caches.claims.relist(w.store.claims) }, "ours: lists claims anew")
	}
	if w.ours != nil && w.ours.watch.behind() {
		add(oursHearsOfPods, w.ours.watch.deliver, "ours: hears of a pod")
	}
	if w.builtIn != nil && w.builtIn.claims.behind() {
		add(builtInHearsOfClaims, w.builtIn.claims.deliver, "built-in: hears of a claim")
	}
	if w.builtIn != nil && w.builtIn.pods.behind() {
		add(builtInHearsOfPods, w.builtIn.pods.deliver, "built-in: hears of a pod")
		add(builtInHearsOfPods, func() { w.builtIn.pods.relist(w.store.pods) }, "built-in: lists pods anew")
	}
}

// nodes are the schedulers that bind, as late as they like, and kubelets.
func (w *world) nodes(add adder) {
	for i, name := range []string{"p", "q"} {
		pod := w.store.pods[name]
		if pod == nil {
			continue
		}
		if pod.Spec.NodeName == "" {
			add(schedulers, func() { w.store.bindPod(name) }, "pod %s is bound", name)
			continue
		}
		for _, claim := range protect.ClaimsOf(pod) {
			w.kubelet(add, pod, claim, w.rules.kubelets[i])
		}
	}
}

func (w *world) kubelet(add adder, pod *corev1.Pod, name string, kind kubelet.Kind) {
	m := w.mounts[pod.UID][name]
	switch claim := w.store.claims[name]; {
	case m != nil && m.done, pod.DeletionTimestamp != nil:
	case m != nil:
		add(kubelets, func() { w.mount(pod, name) }, "pod %s mounts %s", pod.Name, name)
	case claim == nil:
	case kind.Admits(claim) == nil:
		add(kubelets, func() { w.admit(pod, claim) }, "%s admits %s for pod %s", kind, name, pod.Name)
	default:
		w.seen["refused by "+kind.String()]++
	}
}

func (w *world) admit(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) {
	if w.mounts[pod.UID] == nil {
		w.mounts[pod.UID] = map[string]*mount{}
	}
	w.mounts[pod.UID][claim.Name] = &mount{claim: claim.UID}
	if claim.DeletionTimestamp != nil {
		w.seen[admittedLate]++
	}
}

func (w *world) mount(pod *corev1.Pod, claim string) {
	w.mounts[pod.UID][claim].done = true
	w.seen[mounted]++
}

// users create and delete.
func (w *world) users(add adder) {
	for _, name := range []string{"a", "b"} {
		claim := w.store.claims[name]
		switch {
		case claim == nil && w.faults.claims > 0:
			add(creators, func() { w.faults.claims--; w.store.createClaim(w.claim(name)) }, "claim %s is created anew", name)
		case claim == nil:
		case claim.DeletionTimestamp == nil:
			add(deleters, func() { w.store.deleteClaim(name) }, "claim %s is deleted", name)
		}
		if claim != nil && w.faults.writes > 0 {
			add(writers, func() { w.faults.writes--; w.touch(name) }, "somebody writes onto claim %s", name)
		}
	}
	w.owners(add)
}

// owners create pods and delete them.
func (w *world) owners(add adder) {
	wants := map[string][]string{"p": {"a", "b"}, "q": {"b"}}
	for _, name := range sorted(wants) {
		switch p := w.store.pods[name]; {
		case p == nil && w.faults.pods > 0:
			add(creators, func() { w.faults.pods--; w.store.createPod(pod(name, wants[name]...)) }, "pod %s is created", name)
		case p == nil:
		case p.DeletionTimestamp != nil:
			add(kubelets, func() { w.store.endPod(name) }, "pod %s is gone", name)
		case w.faults.ends > 0:
			add(deleters, func() { w.faults.ends--; w.deletePod(name) }, "pod %s is deleted", name)
		}
	}
}

// touch gives a claim a new version, and a finalizer or takes it.
func (w *world) touch(name string) {
	claim := w.store.claims[name].DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, "example.com/touched", w.store.next())
	switch {
	case slices.Contains(claim.Finalizers, foreign):
		claim.Finalizers = slices.DeleteFunc(claim.Finalizers, func(f string) bool { return f == foreign })
	case claim.DeletionTimestamp == nil:
		claim.Finalizers = append(claim.Finalizers, foreign)
	}
	w.store.putClaim(watch.Modified, claim)
}

// deletePod begins the end of a pod. Its node lets go of the volumes before it is
// gone.
func (w *world) deletePod(name string) {
	pod := w.store.pods[name].DeepCopy()
	if pod.Spec.NodeName == "" {
		w.store.endPod(name)
		return
	}
	pod.DeletionTimestamp = &metav1.Time{}
	w.store.putPod(watch.Modified, pod)
}

// misfortunes are what is given only so often.
func (w *world) misfortunes(add adder) {
	if w.faults.lost > 0 {
		for _, c := range w.wire.underWay() {
			if c.late {
				continue
			}
			add(misfortune, func() { w.faults.lost--; w.seen[requestsLost]++; w.wire.lose(c) }, "lost on its way: %s", c)
			if c.writes {
				add(misfortune, func() { w.faults.lost--; w.seen[answersLost]++; w.wire.unanswered(c) }, "its answer is lost: %s", c)
			}
		}
	}
	if w.faults.crashes > 0 && w.ours != nil {
		add(misfortune, func() { w.faults.crashes--; w.seen[crashes]++; w.ours.crash(); w.startOurs() }, "ours crashes, and comes again")
	}
	if w.faults.crashes > 0 && w.builtIn != nil {
		add(misfortune, func() { w.faults.crashes--; w.builtIn.crash(); w.startBuiltIn() }, "built-in crashes, and comes again")
	}
}
