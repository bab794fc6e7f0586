package interleave

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/kubelet"
)

// start is how pods come to be bound.
type start int8

const (
	// anyhow: by schedulers that look at nothing, as late as they like, or by whoever
	// creates the pod.
	anyhow start = iota
	// gated: in mode strict, under a gate that the operator lifts.
	gated
	// plugin: by schedulers that have ours.
	plugin
)

func (s start) String() string { return [...]string{"bound anyhow", "gated", "by the plugin"}[s] }

// rules are who is there, and what is taken away from the protocol.
type rules struct {
	// builtIn: the built-in controller owns P; without it, ours does.
	builtIn bool
	// barrier: claims are born with B, and ours is there.
	barrier bool
	// kubelets are of which kind each node is.
	kubelets []kubelet.Kind
	start    start

	// What is taken away.
	sharedReads    bool // a reading serves claims that began terminating after it
	anyVersion     bool // writes carry no preconditions
	errorsMeanNone bool // a list that fails shows no pods
	byCache        bool // the watch of pods is never asked whether it is up to date
	ignoresP       bool // B is judged while P is there
	ignoresRecords bool // what stands on a claim of its users is not read
	forgetsUnbound bool // pods that are not bound yet are taken off the record
	recordsLate    bool // the plugin is asked after the bind
}

// faults are how much may go wrong, still.
//
// Users are given only so much to do as well: what they do is what the races are
// about, and if they did it all the time nothing would come of anything.
type faults struct{ crashes, replicas, lost, claims, pods, ends, writes, strips int }

// world is everybody, between two steps.
type world struct {
	ctx    context.Context
	rules  rules
	store  *store
	wire   *wire
	faults faults

	operators  []*ours
	schedulers []*scheduler
	builtIn    *builtIn
	// mounts are what kubelets have admitted and mounted, by the UID of the pod.
	mounts map[types.UID]map[string]*mount
	// bound are the claims that pods were bound on, where they are on record there.
	bound map[types.UID]map[string]types.UID
	// given are the claims that somebody gave up by taking what protects them.
	given   map[types.UID]bool
	givenUp map[string]bool // by name, as well
	// broken is the first law that was.
	broken error
	// shared is the reading that serves for others.
	shared  *corev1.PodList
	sharers int
	// seen counts what makes a run worth something.
	seen map[string]int
}

// mount is one volume of one pod.
type mount struct {
	claim types.UID
	done  bool // admitted, and mounted
}

const foreign = "example.com/other"

func newWorld(ctx context.Context, r rules, f faults) *world {
	w := &world{
		ctx: ctx, rules: r, store: newStore(), wire: &wire{}, faults: f,
		mounts: map[types.UID]map[string]*mount{}, bound: map[types.UID]map[string]types.UID{}, given: map[types.UID]bool{}, givenUp: map[string]bool{}, seen: map[string]int{},
	}
	for _, name := range []string{"a", "b"} {
		w.store.create(w.claim(name))
	}
	if r.barrier {
		w.startOurs()
	}
	if r.builtIn {
		w.startBuiltIn()
	}
	if r.start == plugin {
		for _, pod := range sorted(wants) {
			w.startScheduler(pod)
		}
	}
	return w
}

// claim is one as admission makes it, bound to a volume of its own.
func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{pvc.PodsFinalizer}}}
	if w.rules.barrier {
		claim.Finalizers = append(claim.Finalizers, pvc.BarrierFinalizer)
	}
	claim.Spec.VolumeName, claim.Status.Phase = "volume", corev1.ClaimBound
	return claim
}

// wants are the pods that there are, and the claims that each uses.
var wants = map[string][]string{"p": {"a", "b"}, "q": {"b"}}

func (w *world) pod(name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, claim := range wants[name] {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	if w.rules.start == gated {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: pvc.UseGate}}
	}
	return p
}

// read is a reading of pods for ours, of now.
func (w *world) read() *corev1.PodList {
	now := w.store.podsNow()
	if w.rules.forgetsUnbound {
		now.Items = slices.DeleteFunc(now.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == "" })
	}
	if !w.rules.sharedReads {
		return now
	}
	if w.shared == nil || w.sharers == 0 {
		w.shared, w.sharers = now, 4
	}
	w.sharers--
	return w.shared
}

func (w *world) underWay(add adder) {
	for _, c := range w.wire.underWay() {
		by := c.by
		if c.late {
			by = lateArrives
		}
		add(by, func() { w.wire.arrive(c) }, "%s", c)
	}
}

func (w *world) informers(add adder) {
	for _, o := range w.operators {
		if o.caches.claims.behind() {
			add(oursHearsOfClaims, o.caches.claims.deliver, "%s: hears of a claim", o.name)
			add(oursHearsOfClaims, func() { o.caches.claims.relist(w.store.claims()) }, "%s: lists claims anew", o.name)
		}
		if o.watch.behind() {
			add(oursHearsOfPods, o.watch.deliver, "%s: hears of a pod", o.name)
			add(oursHearsOfPods, func() { w.seen[watchBroken]++; o.watch.breakOff() }, "%s: its watch of pods breaks off", o.name)
		}
	}
	if w.builtIn != nil && w.builtIn.claims.behind() {
		add(builtInHearsOfClaims, w.builtIn.claims.deliver, "built-in: hears of a claim")
	}
	if w.builtIn != nil && w.builtIn.pods.behind() {
		add(builtInHearsOfPods, w.builtIn.pods.deliver, "built-in: hears of a pod")
		add(builtInHearsOfPods, func() { w.builtIn.pods.relist(w.store.pods()) }, "built-in: lists pods anew")
	}
}
