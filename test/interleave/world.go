package interleave

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/kubelet"
)

// start is how pods come to be bound.
type start int8

const (
	// anyhow: by schedulers that read no PVC, at any time, or by the creator of the pod.
	anyhow start = iota
	// gated: in mode strict, behind a gate that the operator lifts.
	gated
	// plugin: by schedulers with our plugin.
	plugin
)

func (s start) String() string { return [...]string{"bound anyhow", "gated", "by the plugin"}[s] }

// rules choose the parties.
type rules struct {
	// builtIn: the built-in controller removes its finalizer P; without it, ours does.
	builtIn bool
	// barrier: PVCs are created with our finalizer B, and our controller runs.
	barrier bool
	// kubelets are the kinds of the nodes.
	kubelets []kubelet.Kind
	start    start
}

// faults are how many failures, and how many actions of users, may still happen. Without a bound on
// users no PVC would ever be free.
type faults struct{ crashes, replicas, lost, claims, pods, ends, writes, strips int }

// world is the state between two steps.
type world struct {
	ctx    context.Context
	rules  rules
	store  *store
	wire   *wire
	faults faults

	operators  []*ours
	schedulers []*scheduler
	builtIn    *builtIn
	// mounts are the volumes that kubelets have admitted or mounted, by the UID of the pod.
	mounts map[types.UID]map[string]*mount
	// bound are the PVCs that recorded pods when these were bound.
	bound map[types.UID]map[string]types.UID
	// given are the PVCs whose finalizers a user removed.
	given   map[types.UID]bool
	givenUp map[string]bool // by name, as well
	// lifted are the pods that were seen without the gate.
	lifted map[types.UID]bool
	// broken is the first law that did not hold.
	broken error
	// seen counts the premises of a run.
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
		ctx: ctx, rules: r, store: newStore(), wire: &wire{}, faults: f, mounts: map[types.UID]map[string]*mount{}, bound: map[types.UID]map[string]types.UID{},
		given: map[types.UID]bool{}, givenUp: map[string]bool{}, lifted: map[types.UID]bool{}, seen: map[string]int{},
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

// claim returns a PVC as admission creates it, bound to a volume.
func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{pvc.PodsFinalizer}}}
	if w.rules.barrier {
		claim.Finalizers = append(claim.Finalizers, pvc.BarrierFinalizer)
	}
	claim.Spec.VolumeName, claim.Status.Phase = "volume", corev1.ClaimBound
	return claim
}

// wants are the PVCs that each pod uses.
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
