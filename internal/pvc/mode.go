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
	// Off leaves claims to what is built in.
	Off Mode = iota
	// Observe tells, and changes nothing.
	Observe
	// Barrier makes removal safe: finalizer B.
	Barrier
	// Hold refuses the DELETE of what a workload wants.
	Hold
	// Strict binds a pod only after its use is written on its claims.
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
	// Mode is that of namespaces and claims that choose none.
	Mode Mode
	// Alone: there is no built-in controller, and P is ours to give and to take.
	Alone bool
	// Exempt are namespaces that are never protected.
	Exempt []string
	// Idle is what becomes of claims that only an idle workload would use.
	Idle IdlePolicy
}

// ModeOf is the mode of a claim: its own choice, or that of its namespace, or the
// cluster's. A word that is no mode chooses nothing: a slip of the pen must not
// disarm what the namespace asks for.
func (s Settings) ModeOf(claim *corev1.PersistentVolumeClaim, namespaceLabels map[string]string) Mode {
	if slices.Contains(s.Exempt, claim.Namespace) || isEphemeral(claim) {
		return Off
	}
	for _, chosen := range []string{claim.Annotations[ModeKey], namespaceLabels[ModeKey]} {
		if mode, ok := ParseMode(chosen); ok {
			return mode
		}
	}
	return s.Mode
}

// isEphemeral reports whether a claim was made for one pod. One that a StatefulSet has
// condemned belongs to a pod as well, and bears another name. That a held claim does not
// become one is guarded: config/protection/guard.yaml says the same.
func isEphemeral(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOfNoCopy(claim)
	return owner != nil && owner.Kind == string(identity.KindPod) && owner.APIVersion == "v1" && strings.HasPrefix(claim.Name, owner.Name+"-")
}
