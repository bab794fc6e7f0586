package pvc

// The finalizers. Kubelets know the first: it must be the built-in's own key.
const (
	// PodsFinalizer, P: a pod uses the claim.
	PodsFinalizer = "kubernetes.io/pvc-protection"
	// VolumeFinalizer: the volume is bound to a claim.
	VolumeFinalizer = "kubernetes.io/pv-protection"
	// BarrierFinalizer, B: goes only after P went and pods were read once more.
	BarrierFinalizer = Prefix + "barrier"
)

// Prefix begins every key of protection.
const Prefix = "protection.lockstep.dev/"

// Annotations on a claim.
const (
	// HoldersAnnotation is there exactly if a DELETE is to be refused. Its value
	// names the holders, at most maxNamed.
	HoldersAnnotation = Prefix + "holders"
	// ObservedAnnotation names them in mode observe: a DELETE is warned of.
	ObservedAnnotation = Prefix + "observed-holders"
	// DigestAnnotation tells two sets of holders apart when the names do not.
	DigestAnnotation = Prefix + "holders-digest"
	// VerifiedAnnotation is when the holders were last found to be so.
	VerifiedAnnotation = Prefix + "verified-at"
	// ReleaseAnnotation lets a DELETE through: its value is the claim's UID, so that
	// a copied manifest disarms nothing.
	ReleaseAnnotation = Prefix + "release"
	// ReleaseUntilAnnotation is when the operator takes that token away.
	ReleaseUntilAnnotation = Prefix + "release-until"
	// IntentAnnotation asks for a DELETE when the last holder has gone: the UID.
	IntentAnnotation = Prefix + "delete-when-free"
	// HoldAnnotation is a hold by a person or another operator, in their words.
	HoldAnnotation = Prefix + "hold"
	// UsersAnnotation is the use record: pods that may have been bound.
	UsersAnnotation = Prefix + "used-by"
)

const (
	// ModeKey is a label on a namespace, and an annotation on a claim.
	ModeKey = Prefix + "mode"
	// HeldClaimsAnnotation is on a namespace: how many of its claims are held.
	HeldClaimsAnnotation = Prefix + "held-claims"
)

// Unverified is the value of HoldersAnnotation from birth until the first look.
const Unverified = "unverified"

// Finalizers of others that say a claim is being copied.
const (
	snapshotFinalizer = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
	cloneFinalizer    = "provisioner.storage.kubernetes.io/cloning-protection"
)

// UseGate is the scheduling gate of mode strict: a pod waits under it until its use
// is written on its claims.
const UseGate = Prefix + "use-recorded"
