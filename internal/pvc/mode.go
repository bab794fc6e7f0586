package pvc

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/identity"
)

// Mode is how far protection goes. Each includes the ones before it.
type Mode int8

const (
	// Off leaves PVCs to Kubernetes.
	Off Mode = iota
	// Observe reports, and changes nothing.
	Observe
	// Barrier makes removal safe: finalizer B.
	Barrier
	// Hold refuses the DELETE of a PVC that a workload wants.
	Hold
	// Strict binds a pod only after its use is recorded on its PVCs.
	Strict
)

var modes = []string{"off", "observe", "barrier", "hold", "strict"}

func (m Mode) String() string { return modes[m] }

// ParseMode reads a mode as users write it.
func ParseMode(s string) (Mode, bool) {
	i := slices.Index(modes, s)
	return Mode(max(i, 0)), i >= 0
}

// Settings is what an administrator chose for the whole cluster.
type Settings struct {
	// Mode is that of namespaces and PVCs that choose none.
	Mode Mode
	// Alone: no built-in controller runs. Lockstep adds and removes P.
	Alone bool
	// Exempt are namespaces that are never protected.
	Exempt []string
	// Idle is what becomes of PVCs that only an idle workload would use.
	Idle v1alpha1.IdlePolicy
}

// ModeOf is the mode of a PVC: its own choice, or that of its namespace, or that of the cluster.
// A value that is no mode chooses nothing.
func (s Settings) ModeOf(pvc *corev1.PersistentVolumeClaim, namespaceLabels map[string]string) Mode {
	if slices.Contains(s.Exempt, pvc.Namespace) || isEphemeral(pvc) {
		return Off
	}
	for _, chosen := range []string{pvc.Annotations[ModeKey], namespaceLabels[ModeKey]} {
		if mode, ok := ParseMode(chosen); ok {
			return mode
		}
	}
	return s.Mode
}

// isEphemeral reports whether a PVC was created for one pod. A PVC that a StatefulSet is about to delete also belongs
// to a pod, and has another name. config/protection/guard.yaml has the same rule: a held PVC must not become ephemeral.
func isEphemeral(pvc *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOfNoCopy(pvc)
	return owner != nil && owner.Kind == string(identity.KindPod) && owner.APIVersion == "v1" && strings.HasPrefix(pvc.Name, owner.Name+"-")
}

// Strip removes what is ours from a PVC or a namespace in memory, and reports whether there was any. A terminating PVC
// keeps its finalizers and its use record: only a live read of pods removes them.
func (s Settings) Strip(object metav1.Object) bool {
	isTerminating := object.GetDeletionTimestamp() != nil
	goes := func(key, _ string) bool {
		return strings.HasPrefix(key, Prefix) && (!isTerminating || key != UsersAnnotation)
	}
	size := func() int {
		return len(object.GetAnnotations()) + len(object.GetLabels()) + len(object.GetFinalizers())
	}
	before := size()
	maps.DeleteFunc(object.GetAnnotations(), goes)
	maps.DeleteFunc(object.GetLabels(), goes)
	if !isTerminating {
		object.SetFinalizers(slices.DeleteFunc(slices.Clone(object.GetFinalizers()), s.isOurs))
	}
	return size() < before
}

func (s Settings) isOurs(finalizer string) bool {
	return finalizer == BarrierFinalizer || (s.Alone && finalizer == PodsFinalizer)
}

// Relies reports whether a terminating PVC waits for a finalizer that only we remove.
func (s Settings) Relies(pvc metav1.Object) bool {
	return pvc.GetDeletionTimestamp() != nil && slices.ContainsFunc(pvc.GetFinalizers(), s.isOurs)
}

// IsOurGate reports whether a pod waits for us to be scheduled.
func IsOurGate(name string) bool { return strings.HasPrefix(name, Prefix) }
