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
	record      bool // names the pod
}

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

// pod is the one pod there is. It uses the claim by name.
type pod struct {
	phase phase
	// life is that of the claim which the kubelet read.
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
	// list is one taken for another claim of the batch.
	list listing
	out  write
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
	crashes int8
	errors  int8
	touches int8
}

// lost is what must never be: a claim gone while a pod has its volume mounted.
func (s state) lost() bool {
	return s.pod.phase == mounted && (!s.claim.exists || s.claim.life != s.pod.life)
}

// pinned tells whether a claim is on its way out with nobody left to use it.
func (s state) pinned() bool {
	return s.claim.exists && s.claim.terminating && !s.pod.uses()
}
