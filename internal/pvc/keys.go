// Package pvc decides what becomes of a PVC that a user wants to delete: whether it is in use,
// what holds it, and when its finalizers go.
//
//	          a pod uses it, a workload wants it       the last holder is gone
//	Free ────────────────────────────► Held ────────────────────────► Cooling ──grace──► Free
//	 │ DELETE                           │ DELETE is refused, or was released
//	 ▼                                  ▼
//	Draining: terminating; P, then B go when no bound pod uses it    Doomed: the same, and a workload wants it
//
// It knows pods, workloads and the annotations of a PVC. It refuses to know how they are read,
// and how a decision is carried out. A cache can only say "in use": a Release comes from a
// LiveView alone, and a LiveView from pods that were read after the PVC was seen terminating.
package pvc

// The finalizers. Kubelets know the first, the built-in controller's own key.
const (
	// PodsFinalizer, P: a pod uses the PVC.
	PodsFinalizer = "kubernetes.io/pvc-protection"
	// VolumeFinalizer: the volume is bound to a PVC.
	VolumeFinalizer = "kubernetes.io/pv-protection"
	// BarrierFinalizer, B: goes only after P is gone and pods were read once more.
	BarrierFinalizer = Prefix + "barrier"
)

// Prefix begins every key of protection.
const Prefix = "protection.lockstep.dev/"

// Annotations on a PVC.
const (
	// HoldersAnnotation is present exactly if a DELETE is refused. Its value names the holders, at most maxNamed.
	HoldersAnnotation = Prefix + "holders"
	// ObservedAnnotation names them in mode observe: a DELETE is warned of.
	ObservedAnnotation = Prefix + "observed-holders"
	// DigestAnnotation differs for two sets of holders of the same names.
	DigestAnnotation = Prefix + "holders-digest"
	// VerifiedAnnotation is when the holders were last confirmed.
	VerifiedAnnotation = Prefix + "verified-at"
	// ReleaseAnnotation lets a DELETE through: its value is the UID of the PVC, so that a
	// copied manifest disarms nothing.
	ReleaseAnnotation = Prefix + "release"
	// ReleaseUntilAnnotation is when the operator removes that token.
	ReleaseUntilAnnotation = Prefix + "release-until"
	// IntentAnnotation asks for a DELETE when the last holder is gone: the UID.
	IntentAnnotation = Prefix + "delete-when-free"
	// HoldAnnotation is a hold by a user or another operator: free text.
	HoldAnnotation = Prefix + "hold"
	// UsersAnnotation is the use record: pods that may be bound.
	UsersAnnotation = Prefix + "used-by"
)

const (
	// ModeKey is a label on a namespace, and an annotation on a PVC.
	ModeKey = Prefix + "mode"
	// HeldClaimsAnnotation is on a namespace: how many of its PVCs are held.
	HeldClaimsAnnotation = Prefix + "held-claims"
)

// Unverified is the value of HoldersAnnotation from creation until the operator reads the PVC.
const Unverified = "unverified"

// Finalizers of others while a PVC is being copied.
const (
	snapshotFinalizer = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
	cloneFinalizer    = "provisioner.storage.kubernetes.io/cloning-protection"
)

// UseGate is the scheduling gate of mode strict: a pod waits under it until its use is recorded on its PVCs.
const UseGate = Prefix + "use-recorded"
