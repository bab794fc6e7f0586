package report

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/pvc"
)

var (
	claimStates = gauge("lockstep_protection_claim_states",
		"PersistentVolumeClaims by state (Held, Cooling, Draining, Doomed). Free ones are not counted.", "state")
	claimsInUse = gauge("lockstep_protection_claims_in_use",
		"PersistentVolumeClaims in use, by reason (BoundPod, UnboundPod, DesiredState, Asked, BeingCopied); one may have several.", "reason")
	tokens = counter("lockstep_protection_release_tokens_total",
		"Release tokens on PersistentVolumeClaims and namespaces, by outcome (granted, used, expired).", "outcome")
)

// HoldMetrics returns the metrics of Holds, and that of Policies.
func HoldMetrics() []prometheus.Collector {
	return []prometheus.Collector{claimStates, claimsInUse, tokens, policiesMissing}
}

// Holds reports on PVCs and their holders. It is safe for concurrent use.
type Holds struct {
	*Reporter

	mu    sync.Mutex
	known map[types.NamespacedName]counted
}

// counted is how the metrics count a PVC.
type counted struct {
	uid     types.UID
	state   pvc.State
	reasons []string
}

// NewHolds returns a Holds that reports through r.
func NewHolds(r *Reporter) *Holds {
	return &Holds{Reporter: r, known: map[types.NamespacedName]counted{}}
}

// Judged counts a PVC by its verdict, and reports once that it is doomed.
func (h *Holds) Judged(claim *corev1.PersistentVolumeClaim, d pvc.HoldVerdict) {
	now := counted{uid: claim.UID, state: d.State}
	for _, holder := range d.Holders {
		if !slices.Contains(now.reasons, holder.Reason) {
			now.reasons = append(now.reasons, holder.Reason)
		}
	}
	before := h.replace(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, now)
	if d.State == pvc.Doomed && (before.state != pvc.Doomed || before.uid != claim.UID) {
		h.event(claim, pvc.TellDoomed(d))
	}
}

// Gone forgets a PVC that does not exist.
func (h *Holds) Gone(key types.NamespacedName) { h.replace(key, counted{}) }

func (h *Holds) replace(key types.NamespacedName, now counted) (before counted) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before = h.known[key]
	before.add(-1)
	now.add(1)
	if h.known[key] = now; now.uid == "" {
		delete(h.known, key)
	}
	return before
}

func (c counted) add(n float64) {
	if c.state != "" && c.state != pvc.Free {
		claimStates.WithLabelValues(string(c.state)).Add(n)
	}
	for _, reason := range c.reasons {
		claimsInUse.WithLabelValues(reason).Add(n)
	}
}

// Token counts a release token that is granted or expired.
func (h *Holds) Token(t pvc.TokenVerdict) {
	switch {
	case t.Granted:
		tokens.WithLabelValues("granted").Inc()
	case t.Expired:
		tokens.WithLabelValues("expired").Inc()
	}
}

// Left reports a PVC that was deleted in use; a use of a release also on the namespace. A namespace that is
// being deleted accepts no events of its PVCs.
func (h *Holds) Left(claim *corev1.PersistentVolumeClaim, namespace *metav1.PartialObjectMetadata, told action.Event) {
	if namespace.DeletionTimestamp == nil {
		h.event(claim, told)
	}
	if told.Reason != pvc.ReleaseUsed {
		return
	}
	tokens.WithLabelValues("used").Inc()
	if namespace.UID != "" {
		told.Note = "claim " + claim.Name + " was " + told.Note
		h.event(namespace, told)
	}
}

// Ends reports a namespace that is deleted by a release.
func (h *Holds) Ends(namespace *metav1.PartialObjectMetadata) {
	if told, used := pvc.TellNamespaceLeft(namespace); used {
		tokens.WithLabelValues("used").Inc()
		h.event(namespace, told)
	}
}
