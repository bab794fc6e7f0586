package model

// claim is one version of the claim, as stored or as some cache shows it.
type claim struct {
	// life tells incarnations apart: a claim of the same name is another life.
	life    int8
	version int8

	exists      bool
	terminating bool
	pods        bool // the finalizer kubernetes.io/pvc-protection
	barrier     bool // our own
	record      incarnations
}

// incarnations of the pod, by bit: the use record names pods by UID.
type incarnations uint8

func (i incarnations) has(number int8) bool             { return i&(1<<number) != 0 }
func (i incarnations) with(number int8) incarnations    { return i | 1<<number }
func (i incarnations) without(number int8) incarnations { return i &^ (1 << number) }

// phase is how far the pod has come.
type phase int8

const (
	unbound  phase = iota
	gated          // strict: created with a scheduling gate
	checked        // a webhook on bindings let it pass
	read           // the scheduler has read the claim live
	recorded       // the use record is written
	lifted         // strict: the gate is gone
	bound
	admitted // the kubelet has read the claim and found nothing against it
	mounted
	gone
)

// pod is the one pod there is at a time. It uses the claim by name.
type pod struct {
	// number tells incarnations apart: a pod of the same name is another.
	number int8
	phase  phase
	// life is that of the claim which the scheduler read, and then the kubelet.
	life int8
	// version is that of the claim which the scheduler read.
	version int8
}

// uses is rule C4: a pod uses a claim as long as it is bound, whatever else.
func (p pod) uses() bool { return p.phase >= bound && p.phase < gone }

// finalizer is what a write takes away.
type finalizer int8

const (
	none finalizer = iota
	podsFinalizer
	barrierFinalizer
)

// write is a decision on its way to the API server.
type write struct {
	removes finalizer
	// onto is the copy it was judged by.
	onto claim
	// passed: the webhook that looks once more has let it through.
	passed bool
}

// owner is a controller that owns a finalizer or two, with its caches.
type owner struct {
	claim claim // its claim informer
	uses  bool  // its pod informer: a bound pod uses the claim
	seen  int8  // how far that informer has come
	// list is one taken for another claim of the batch.
	list listing
	// batch is the claim as it was when pods were asked how far they are, and probe is
	// what they answered, and one.
	batch claim
	probe int8
	out   write
	// late was sent by a predecessor that has crashed: it may still arrive.
	late write
}

type listing int8

const (
	notListed listing = iota
	listedFree
	listedUsed
)

// state is one moment. It is comparable: the search knows where it has been.
type state struct {
	claim   claim
	pod     pod
	builtIn owner
	ours    owner
	// another of ours knows nothing of the first.
	another owner
	podsAt  int8 // how many changes of pods there were
	crashes int8
	errors  int8
	touches int8
}

// lost is what must never be: a claim gone while its volume is mounted; and
// where pods are on record before they are bound, a claim gone, or another in its
// place, while a pod is there that was bound on it.
func (s state) lost(recorded bool) bool {
	held := s.pod.phase == mounted
	if recorded {
		held = s.pod.uses()
	}
	return held && (!s.claim.exists || s.claim.life != s.pod.life)
}

// pinned tells whether a claim is on its way out with nobody left to use it.
func (s state) pinned() bool {
	return s.claim.exists && s.claim.terminating && !s.pod.uses()
}
