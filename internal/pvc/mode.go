package pvc

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func (m Mode) String() string {
	if int(m) < len(modes) && m >= 0 {
		return modes[m]
	}
	return "unknown"
}

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
	Idle IdlePolicy
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
