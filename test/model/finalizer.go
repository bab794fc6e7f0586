package model

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/fakeapi"
)

// stored is one version of the PVC, as stored or as a cache shows it.
type stored struct {
	// uid differs for each PVC of the name; it counts from 1.
	uid     int8
	version int8

	exists      bool
	terminating bool
	pods        bool // the finalizer P
	barrier     bool // the finalizer B
	record      incarnations
}

func (c stored) is(other stored) bool { return c.uid == other.uid && c.version == other.version }

// incarnations of the pod, by bit: the use record names pods by UID.
type incarnations uint8

func (i incarnations) has(number int8) bool          { return i&(1<<number) != 0 }
func (i incarnations) with(number int8) incarnations { return i | 1<<number }

// phase is the progress of the pod.
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
	// uid is the UID of the PVC that the scheduler read, and later the kubelet.
	uid int8
	// version is the version of the PVC that the scheduler read.
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

// write is a decision that has not reached the API server yet.
type write struct {
	removes finalizer
	// onto is the copy that was judged.
	onto stored
}

// owner is a controller that removes finalizers, with its caches.
type owner struct {
	pvc  stored
	sees sight
	seen int8 // how fresh the pod informer is
	// listed reports that the built-in controller listed pods for another PVC, and list is the result.
	listed bool
	list   sight
	// batch is the PVC as cached before the read of pods, which began at began.
	batch stored
	began int8
	out   write
	// late was sent by a process that has crashed: it may still arrive.
	late write
}

// state is the state of the cluster at one moment. It is comparable.
type state struct {
	pvc     stored
	pod     pod
	builtIn owner
	ours    owner
	another owner
	podsAt  int8 // how often pods changed

	crashes, errors, touches int8
}

// lost reports whether a PVC is gone or replaced while its volume is mounted or, with records,
// while a pod exists that was bound on it.
func (s state) lost(withRecords bool) bool {
	held := s.pod.phase == mounted || withRecords && s.pod.uses()
	return held && (!s.pvc.exists || s.pvc.uid != s.pod.uid)
}

// pinned reports whether a terminating PVC has no user.
func (s state) pinned() bool { return s.pvc.exists && s.pvc.terminating && !s.pod.uses() }

// Evidence is the read of the built-in controller when its pod cache shows no user.
type Evidence int8

const (
	// Cache alone: before Kubernetes 1.16.
	Cache Evidence = iota
	// ListPerPVC lists live after the PVC was seen terminating.
	ListPerPVC
	// ListPerBatch lists live once for all PVCs of a batch, when the first of them needs it:
	// since Kubernetes 1.32.
	ListPerBatch
)

// Kubelet is the rule by which a kubelet refuses to mount.
type Kubelet int8

const (
	// RefusesTerminating refuses every terminating PVC: before 2025.
	RefusesTerminating Kubelet = iota
	// RefusesUnprotected refuses a terminating PVC without P: today.
	RefusesUnprotected
	// RefusesNothing is a kubelet that cannot be trusted.
	RefusesNothing
)

// Start is the protocol of a pod before it is bound.
type Start int8

const (
	// Free pods are bound at any time.
	Free Start = iota
	// RecordFirst lets the scheduler write the use record onto the PVC that it read live.
	RecordFirst
	// RecordAfter lets it write the record after the bind.
	RecordAfter
	// Gated lets the operator write the record under a scheduling gate.
	Gated
)

// Rules are the switches. The zero value protects nothing.
type Rules struct {
	// BuiltIn: the built-in controller runs and removes P by the evidence Pods.
	BuiltIn bool
	Pods    Evidence
	// Barrier: the PVC is created with B.
	Barrier bool
	Kubelet Kubelet
	Start   Start

	WaitsForPods    bool // B is judged only if the PVC was seen without P
	Preconditions   bool // writes carry the UID and the resourceVersion that were judged
	JudgesAgain     bool // after a conflict the PVC is judged again
	ErrorsMeanInUse bool
	// Reaches: the pod cache counts only when it is as fresh as a read that began after the
	// PVC was seen.
	Reaches bool
	// ReadsLast: that read begins after the PVC was seen terminating.
	ReadsLast bool
	// RecordPreconditions: the record is written onto the version that was read.
	RecordPreconditions bool
	// RecordOutlives: a pod is removed from the record only when it is gone.
	RecordOutlives bool
}

// recorded reports whether pods are recorded before they are bound.
func (r Rules) recorded() bool { return r.Start == RecordFirst || r.Start == Gated }

// Faults are the number of times that each fault may happen.
type Faults struct {
	Crashes int8
	Errors  int8 // reads that fail
	Touches int8 // writes of others to the PVC
	// PVCs is the number of PVCs of the name, one after another. Pods is the number of pods
	// after the first.
	PVCs int8
	Pods int8
	// Another: a second controller of ours runs all the time.
	Another bool
}

// Worlds that can be searched to the end.
var (
	InOrder = Faults{PVCs: 1} // only the order of steps varies
	Errors  = Faults{Errors: 1, PVCs: 1}
	Crashes = Faults{Crashes: 1, PVCs: 1}
	Touched = Faults{Touches: 1, PVCs: 1}
	Touches = Faults{Touches: 1, PVCs: 2}
	Bad     = Faults{Crashes: 1, Errors: 1, Touches: 1, PVCs: 2}
	Again   = Faults{PVCs: 2, Pods: 1}
	Two     = Faults{PVCs: 2, Another: true}
)

// BarrierAlone is mode barrier without the built-in controller.
func BarrierAlone(kubelet Kubelet) Rules {
	return Rules{
		Barrier: true, Kubelet: kubelet, WaitsForPods: true, Preconditions: true, JudgesAgain: true,
		ErrorsMeanInUse: true, Reaches: true, ReadsLast: true, RecordOutlives: true,
	}
}

// BarrierBeside is mode barrier beside the built-in controller.
func BarrierBeside(kubelet Kubelet) Rules {
	r := BarrierAlone(kubelet)
	r.BuiltIn, r.Pods = true, ListPerBatch
	return r
}

// Recorded is the scheduler plugin: it needs no kubelet.
func Recorded() Rules {
	r := BarrierAlone(RefusesNothing)
	r.Start, r.RecordPreconditions = RecordFirst, true
	return r
}

// RecordedBeside is the scheduler plugin beside the built-in controller.
func RecordedBeside() Rules {
	r := Recorded()
	r.BuiltIn, r.Pods = true, ListPerBatch
	return r
}

// Strict is mode strict: the record is written under a scheduling gate.
func Strict() Rules {
	r := Recorded()
	r.Start = Gated
	return r
}

// sight is the pod as a read or a cache shows it.
type sight struct {
	there, bound bool
	number       int8
}

func sightOf(p pod) sight { return sight{there: p.phase < gone, bound: p.uses(), number: p.number} }

func (s sight) uses() bool { return s.there && s.bound }

// question is the input of a decision.
type question struct {
	onto  stored
	pod   sight
	alone bool
}

// answer is a decision of package pvc.
type answer struct {
	// reads: the cache shows no user, so pods are read.
	reads bool
	// removes is the finalizer that a read without error allows to remove.
	removes finalizer
	// record is the use record after the decision, of a PVC that does not terminate.
	record incarnations
}

func (q question) decide() answer {
	object, settings, a := q.onto.object(), pvc.Settings{Alone: q.alone, Mode: pvc.Barrier}, answer{record: q.onto.record}
	index := pvc.NewIndex()
	if q.pod.there {
		index.See(q.pod.object())
	}
	a.reads = pvc.Decide(pvc.View{Claim: object, Pods: index, Mode: pvc.Barrier, Settings: settings}).Step == pvc.Look
	live := settings.Take("ns", []*corev1.PersistentVolumeClaim{object}).Look(func(_ string, see func(*corev1.Pod)) error {
		if q.pod.there {
			see(q.pod.object())
		}
		return nil
	})
	if releases, _ := live.Judge(); len(releases) > 0 {
		a.removes = map[string]finalizer{pvc.PodsFinalizer: podsFinalizer, pvc.BarrierFinalizer: barrierFinalizer}[releases[0].Takes()]
	}
	for _, w := range live.Forget() {
		a.record = 0
		record, _ := pvc.ParseRecord(w.Annotations[pvc.UsersAnnotation])
		for _, r := range record {
			a.record = a.record.with(int8(r.UID[1] - '0'))
		}
	}
	return a
}

func uidOf(number int8) types.UID { return types.UID(fmt.Sprintf("p%d", number)) }

func (c stored) object() *corev1.PersistentVolumeClaim {
	object := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "c", ResourceVersion: "1", Annotations: map[string]string{}}}
	if c.terminating {
		object.DeletionTimestamp = &metav1.Time{}
	}
	if c.pods {
		object.Finalizers = append(object.Finalizers, pvc.PodsFinalizer)
	}
	if c.barrier {
		object.Finalizers = append(object.Finalizers, pvc.BarrierFinalizer)
	}
	var record pvc.Record
	for number := range int8(8) {
		if c.record.has(number) {
			record = append(record, pvc.Recorded{Name: "web", UID: uidOf(number)})
		}
	}
	if record != nil {
		object.Annotations[pvc.UsersAnnotation] = record.String()
	}
	return object
}

func (s sight) object() *corev1.Pod {
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: uidOf(s.number)}}
	object.Spec.Volumes = fakeapi.Using("data")
	if s.bound {
		object.Spec.NodeName = "n1"
	}
	return object
}
