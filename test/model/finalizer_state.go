package model

// stored is one version of the PVC, as stored or as a cache shows it.
type stored struct {
	// life differs for each PVC of the name.
	life    int8
	version int8

	exists      bool
	terminating bool
	pods        bool // the finalizer P
	barrier     bool // the finalizer B
	record      incarnations
}

func (c stored) is(other stored) bool { return c.life == other.life && c.version == other.version }

// incarnations of the pod, by bit: the use record names pods by UID.
type incarnations uint8

func (i incarnations) has(number int8) bool          { return i&(1<<number) != 0 }
func (i incarnations) with(number int8) incarnations { return i | 1<<number }

// phase is how far the pod has come.
type phase int8

const (
	unbound  phase = iota
	gated          // created with a scheduling gate
	read           // the PVC was read live
	recorded       // the use record is written
	lifted         // the gate is gone
	bound
	admitted // the kubelet has read the PVC and accepts it
	mounted
	gone
)

// pod is the one pod that exists at a time. It uses the PVC by name.
type pod struct {
	// number differs for each pod of the name.
	number int8
	phase  phase
	// life is that of the PVC which the scheduler read, and then the kubelet.
	life int8
	// version is that of the PVC which the scheduler read.
	version int8
}

// uses reports whether the pod is bound.
func (p pod) uses() bool { return p.phase >= bound && p.phase < gone }

type finalizer int8

const (
	none finalizer = iota
	podsFinalizer
	barrierFinalizer
)

func (f finalizer) String() string { return [...]string{"nothing", "P", "B"}[f] }

// write is a decision on its way to the API server.
type write struct {
	removes finalizer
	// onto is the copy that was judged.
	onto stored
}

// owner is a controller that owns finalizers, with its caches.
type owner struct {
	pvc  stored
	sees sight
	seen int8 // how fresh the pod informer is
	// listed and list are a list that the built-in controller took for another PVC.
	listed bool
	list   sight
	// batch is the PVC before the read of pods began, at began.
	batch stored
	began int8
	out   write
	// late was sent by a process that has crashed: it may still arrive.
	late write
}

// state is one moment. It is comparable.
type state struct {
	pvc     stored
	pod     pod
	builtIn owner
	ours    owner
	another owner
	podsAt  int8 // how often pods changed

	crashes, errors, touches int8
}

// lost is a PVC gone while its volume is mounted; or, with records, a PVC gone or replaced while
// a pod exists that was bound on it.
func (s state) lost(withRecords bool) bool {
	held := s.pod.phase == mounted || withRecords && s.pod.uses()
	return held && (!s.pvc.exists || s.pvc.life != s.pod.life)
}

// pinned reports whether a terminating PVC has no user.
func (s state) pinned() bool { return s.pvc.exists && s.pvc.terminating && !s.pod.uses() }
