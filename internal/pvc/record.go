package pvc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// maxRecord bounds the use record: all annotations of an object share 256 KiB.
const maxRecord = 64 << 10

// ErrFull is the error of a record that can take no more pods.
var ErrFull = errors.New("use record is full")

// Record is the pods that may be bound to a PVC, as UsersAnnotation lists them: sorted "name=uid" with commas between.
type Record []Recorded

// Recorded is one pod of a record.
type Recorded struct {
	Name string
	UID  types.UID
}

func (r Recorded) String() string { return r.Name + "=" + string(r.UID) }

// ParseRecord reads a record. An unreadable entry is an error: it may name a pod.
func ParseRecord(value string) (r Record, err error) {
	if value == "" {
		return nil, nil
	}
	for _, entry := range strings.Split(value, ",") {
		name, uid, _ := strings.Cut(entry, "=")
		if name == "" || uid == "" {
			return nil, fmt.Errorf("use record: %q is not \"name=uid\"", entry)
		}
		r = append(r, Recorded{name, types.UID(uid)})
	}
	return r, nil
}

// With is the record with one more pod, or ErrFull: then the pod waits.
func (r Record) With(pod Recorded) (Record, error) {
	if slices.Contains(r, pod) {
		return r, nil
	}
	longer := append(slices.Clone(r), pod)
	slices.SortFunc(longer, func(a, b Recorded) int { return strings.Compare(a.String(), b.String()) })
	if len(longer.String()) > maxRecord {
		return nil, fmt.Errorf("%w: it names %d pods", ErrFull, len(r))
	}
	return longer, nil
}

// Without is the record without pods that are gone.
func (r Record) Without(gone func(Recorded) bool) Record {
	return slices.DeleteFunc(slices.Clone(r), gone)
}

func (r Record) String() string { return strings.Join(each(r, Recorded.String), ",") }

// recording writes a use record onto the version of a PVC that was read. An empty record is removed.
func recording(pvc *corev1.PersistentVolumeClaim, record Record) action.Annotate {
	return action.Annotate{
		Object: refOf(pvc), Annotations: map[string]string{UsersAnnotation: record.String()},
		Because: action.Reason{Code: "UseRecord", Sentence: "the record names the pods that may be bound"},
	}
}

// Claims are PVCs of one namespace by name. A PVC that does not exist is nil or absent.
type Claims map[string]*corev1.PersistentVolumeClaim

// ClaimOf is the name of the PVC that a volume of a pod uses, or empty.
func ClaimOf(pod metav1.Object, volume *corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		return pod.GetName() + "-" + volume.Name
	}
	return ""
}

// ClaimsOf are the names of the PVCs that a pod uses, each once.
func ClaimsOf(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		if name := ClaimOf(pod, &pod.Spec.Volumes[i]); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Unusable returns why a pod must not be scheduled on its PVCs, or "". The texts are those of the built-in plugin.
func Unusable(pod *corev1.Pod, pvcs Claims) string {
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		name := ClaimOf(pod, volume)
		if name == "" {
			continue
		}
		pvc, ephemeral := pvcs[name], volume.Ephemeral != nil
		switch {
		case pvc == nil && ephemeral:
			return fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name)
		case pvc == nil:
			return fmt.Sprintf("persistentvolumeclaim %q not found", name)
		case pvc.Status.Phase == corev1.ClaimLost:
			return fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name, pvc.Spec.VolumeName)
		case pvc.DeletionTimestamp != nil:
			return fmt.Sprintf("persistentvolumeclaim %q is being deleted", name)
		case ephemeral && !metav1.IsControlledBy(pvc, pod):
			return fmt.Sprintf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", pvc.Namespace, name, pod.Namespace, pod.Name)
		}
	}
	return ""
}

// recorded is the pod with only the volumes whose PVC has, or will have, a use record. The
// labels of the namespace decide for a missing PVC. An ephemeral one has no record.
func (s Settings) recorded(pod *corev1.Pod, live Claims, namespaceLabels map[string]string) *corev1.Pod {
	only := &corev1.Pod{ObjectMeta: pod.ObjectMeta}
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		missing := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace}}
		pvc := cmp.Or(live[volume.PersistentVolumeClaim.ClaimName], missing)
		if s.ModeOf(pvc, namespaceLabels) >= Barrier {
			only.Spec.Volumes = append(only.Spec.Volumes, volume)
		}
	}
	return only
}

// Bind returns the writes that come before a pod is bound: its use, onto each PVC with a barrier as read live. All its
// PVCs must be usable. A PVC that is deleted in between fails the write, and the pod is not bound.
func Bind(pod *corev1.Pod, live Claims) ([]action.Annotate, error) {
	if why := Unusable(pod, live); why != "" {
		return nil, errors.New(why)
	}
	unprotected := func(name string) bool { return !slices.Contains(live[name].Finalizers, BarrierFinalizer) }
	return record(pod, slices.DeleteFunc(ClaimsOf(pod), unprotected), live)
}

// record writes a pod onto those of some PVCs whose records do not name it.
func record(pod *corev1.Pod, names []string, live Claims) (writes []action.Annotate, err error) {
	slices.Sort(names)
	for _, name := range names {
		have := live[name].Annotations[UsersAnnotation]
		r, err := ParseRecord(have)
		if err == nil {
			r, err = r.With(Recorded{Name: pod.Name, UID: pod.UID})
		}
		if err != nil {
			return nil, fmt.Errorf("persistentvolumeclaim %q: %w", name, err)
		}
		if r.String() != have {
			writes = append(writes, recording(live[name], r))
		}
	}
	return writes, nil
}

// Forget returns the writes that remove pods from the records of living PVCs. A recorded pod that a later read does not
// show is gone for ever. An unreadable record keeps its PVC until a user repairs it.
func (v LiveView) Forget() (writes []action.Annotate) {
	if v.err != nil {
		return nil
	}
	for _, pvc := range v.batch.pvcs {
		r, err := ParseRecord(pvc.Annotations[UsersAnnotation])
		if left := r.Without(v.gone); err == nil && len(left) < len(r) && isRecorded(pvc) {
			writes = append(writes, recording(pvc, left))
		}
	}
	return writes
}

// GateView is one pod under UseGate, and its PVCs, read live.
type GateView struct {
	Pod  *corev1.Pod
	Live Claims
	// NamespaceLabels are those of its namespace, read live after the pod was seen: they may say
	// that a PVC needs no record.
	NamespaceLabels map[string]string
	Settings        Settings
}

// GateVerdict records the pod on all of its PVCs and then lifts the gate, or waits.
type GateVerdict struct {
	Writes []action.Annotate
	Lift   Lifting
	// Waits is why the pod waits, or is empty.
	Waits action.Reason
}

// Lifting removes UseGate from the pod that was judged. Only DecideGate returns one with a target.
type Lifting struct {
	judged
	stays []corev1.PodSchedulingGate
}

// Gates are the gates that stay, in their order.
func (l Lifting) Gates() []corev1.PodSchedulingGate { return slices.Clone(l.stays) }

// About implements action.Action.
func (l Lifting) About() action.About { return action.About{Verb: "remove-gate", Because: l.because} }

// Gated reports whether a pod waits under UseGate. A terminating pod does not.
func Gated(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Spec.SchedulingGates, isUseGate)
}

func isUseGate(gate corev1.PodSchedulingGate) bool { return gate.Name == UseGate }

// DecideGate judges one pod. Ephemeral and unprotected PVCs have no record, and are left to the scheduler.
func DecideGate(v GateView) GateVerdict {
	if !Gated(v.Pod) {
		return GateVerdict{}
	}
	waits := func(code, why string) GateVerdict {
		return GateVerdict{Waits: action.Reason{Code: code, Sentence: "not scheduled before it is recorded on its PVCs: " + why}}
	}
	recorded := v.Settings.recorded(v.Pod, v.Live, v.NamespaceLabels)
	missing := func(name string) bool { return v.Live[name] == nil }
	why := Unusable(recorded, v.Live)
	switch {
	case why != "" && slices.ContainsFunc(ClaimsOf(recorded), missing):
		return waits("AwaitingClaim", why)
	case why != "":
		return waits("ClaimUnusable", why)
	}
	writes, err := record(v.Pod, ClaimsOf(recorded), v.Live)
	if err != nil {
		return waits("UseNotRecorded", err.Error())
	}
	stays := slices.DeleteFunc(slices.Clone(v.Pod.Spec.SchedulingGates), isUseGate)
	because := action.Reason{Code: "UseRecorded", Sentence: "the pod is recorded on its PVCs"}
	return GateVerdict{Writes: writes, Lift: Lifting{judged{identity.RefOf(identity.KindPod, v.Pod), because}, stays}}
}
