package model

// Evidence is what the owner of a finalizer goes by when its pod cache shows no
// user.
type Evidence int8

const (
	// Cache alone: as the built-in did before 1.16.
	Cache Evidence = iota
	// ListPerClaim lists live after the claim was seen terminating.
	ListPerClaim
	// ListPerBatch lists live once for all claims of a batch, whenever the first
	// of them needs it: as the built-in does since 1.32.
	ListPerBatch
	// Record goes by the use record on the claim, and lists nothing.
	Record
	// Probe asks how far pods are once the claim was seen terminating, and goes by the
	// pod cache when that has come as far; until then it may list.
	Probe
)

// Kubelet is what a kubelet refuses to mount.
type Kubelet int8

const (
	// RefusesTerminating refuses every claim that is terminating: kubelets before
	// the spring of 2025.
	RefusesTerminating Kubelet = iota
	// RefusesUnprotected refuses a terminating claim only when P is gone: kubelets
	// of today.
	RefusesUnprotected
	// RefusesNothing is a kubelet that cannot be trusted.
	RefusesNothing
)

// Start is what a pod goes through before it is bound.
type Start int8

const (
	// Free pods may be bound whenever a scheduler, or whoever creates it, likes.
	Free Start = iota
	// BindingWebhook reads the claim before a binding is let pass.
	BindingWebhook
	// RecordFirst has the scheduler write the use record onto the claim it has read
	// live, and bind then.
	RecordFirst
	// RecordAfter writes the record once the pod is bound.
	RecordAfter
	// Gated pods have the record written while a scheduling gate keeps the pod from
	// being bound.
	Gated
)

// Rules are the switches. The zero value protects nothing.
type Rules struct {
	// BuiltIn: there is a built-in controller, which owns P and removes it by the
	// evidence in Pods. Without one, ours owns P.
	BuiltIn bool
	Pods    Evidence
	// Barrier: the claim is born with B, which ours owns.
	Barrier bool
	Kubelet Kubelet
	Start   Start
	// UpdateWebhook lists pods once more when P is about to be removed.
	UpdateWebhook bool

	// What ours does.
	Ours            Evidence
	WaitsForPods    bool // B is judged only when the claim was seen without P
	Preconditions   bool // writes carry the UID and the resourceVersion judged
	LooksAgain      bool // a conflict is answered by judging again, not by writing again
	ErrorsMeanInUse bool
	// Reaches: the pod cache counts only when it has come as far as the probe.
	Reaches bool
	// ProbesLast: the probe comes after the claim was seen terminating.
	ProbesLast bool
	// RecordPreconditions: the record is written onto the version read.
	RecordPreconditions bool
	// RecordOutlives: the record is taken away only when the pod is gone.
	RecordOutlives bool
}

// recorded tells whether pods are on record before they are bound.
func (r Rules) recorded() bool { return r.Start == RecordFirst || r.Start == Gated }

// Faults are how often the world may misbehave, each way.
type Faults struct {
	Crashes int8
	Errors  int8 // lists that fail
	Touches int8 // writes of somebody else's to the claim
	// Lives is how many claims of the name there may be, one after another; Pods is how
	// many pods, beyond the first.
	Lives int8
	Pods  int8
	// Another of ours runs all the time.
	Another bool
}

// OneLife is a world in which nothing goes wrong but the order of things.
var OneLife = Faults{Lives: 1}

// Bad is a world in which everything goes wrong.
var Bad = Faults{Crashes: 1, Errors: 1, Touches: 1, Lives: 2}

// Again is a world in which pods and claims come again.
var Again = Faults{Lives: 2, Pods: 1}

// Two is a world with two of ours, of which neither knows of the other.
var Two = Faults{Lives: 2, Another: true}

// TwoLives is a world in which the claim comes again, and a list may fail.
var TwoLives = Faults{Lives: 2, Errors: 1}

// BarrierBeside is mode barrier beside the built-in controller.
func BarrierBeside(kubelet Kubelet) Rules {
	r := BarrierAlone(kubelet)
	r.BuiltIn, r.Pods = true, ListPerBatch
	return r
}

// BarrierAlone is mode barrier in place of the built-in controller.
func BarrierAlone(kubelet Kubelet) Rules {
	return Rules{
		Barrier: true, Kubelet: kubelet,
		Ours: ListPerClaim, WaitsForPods: true, Preconditions: true, LooksAgain: true, ErrorsMeanInUse: true,
	}
}

// Probing is a mode barrier that lists pods only where its memory of them is not fresh.
func Probing(r Rules) Rules {
	r.Ours, r.Reaches, r.ProbesLast = Probe, true, true
	return r
}

// Recorded is the scheduler plugin: the record is written before the bind. It
// needs no list and no kubelet.
func Recorded() Rules {
	return Rules{
		Barrier: true, Kubelet: RefusesNothing, Start: RecordFirst,
		Ours: Record, Preconditions: true, LooksAgain: true, ErrorsMeanInUse: true,
		RecordPreconditions: true, RecordOutlives: true,
	}
}

// Strict is mode strict: the same record, written under a scheduling gate.
func Strict() Rules {
	r := Recorded()
	r.Start = Gated
	return r
}

// RecordedBeside is the scheduler plugin beside the built-in controller: the
// record keeps B, whatever becomes of P.
func RecordedBeside() Rules {
	r := Recorded()
	r.BuiltIn, r.Pods, r.WaitsForPods = true, ListPerBatch, true
	return r
}
