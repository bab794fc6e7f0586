package report

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/pvc"
)

// claimStates counts claims by what they are to somebody who wants them gone.
var claimStates = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "lockstep_protection_claim_states",
	Help: "PersistentVolumeClaims by state (Held, Cooling, Draining, Doomed). Free ones are not counted.",
}, []string{"state"})

// claimsInUse counts claims by who holds them: one that is held for two reasons counts twice.
var claimsInUse = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "lockstep_protection_claims_in_use",
	Help: "PersistentVolumeClaims in use, by reason (BoundPod, UnboundPod, DesiredState, Asked, BeingCopied).",
}, []string{"reason"})

// tokens counts what became of permissions to delete claims and namespaces in use.
var tokens = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "lockstep_protection_release_tokens_total",
	Help: "Release tokens on PersistentVolumeClaims and namespaces, by what became of them (granted, used, expired).",
}, []string{"outcome"})

// HoldMetrics returns the metrics that Holds count in.
func HoldMetrics() []prometheus.Collector {
	return []prometheus.Collector{claimStates, claimsInUse, tokens}
}

// Holds tells of claims and who holds them. It is safe for concurrent use.
type Holds struct {
	*Narrator

	mu    sync.Mutex
	known map[types.NamespacedName]standing
}

// standing is what was last told of a claim.
type standing struct {
	uid     types.UID
	state   pvc.State
	reasons uint8
}

// reasons are those that a claim is held for, each a bit of standing.
var reasons = []string{pvc.BoundPod, pvc.UnboundPod, pvc.DesiredState, pvc.Asked, pvc.BeingCopied}

// NewHolds returns a Holds that tells through n.
func NewHolds(n *Narrator) *Holds {
	return &Holds{Narrator: n, known: map[types.NamespacedName]standing{}}
}

// Judged counts a claim as it was judged, and tells once of one that is doomed.
func (h *Holds) Judged(claim *corev1.PersistentVolumeClaim, d pvc.HoldVerdict) {
	now := standing{uid: claim.UID, state: d.State}
	for _, holder := range d.Holders {
		for i, reason := range reasons {
			if holder.Reason == reason {
				now.reasons |= 1 << i
			}
		}
	}
	before := h.replace(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, now)
	if d.State == pvc.Doomed && (before.state != pvc.Doomed || before.uid != claim.UID) {
		h.event(claim, pvc.TellDoomed(d))
	}
}

// Gone forgets a claim that is not there any more.
func (h *Holds) Gone(key types.NamespacedName) { h.replace(key, standing{}) }

func (h *Holds) replace(key types.NamespacedName, now standing) (before standing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before = h.known[key]
	if before == now {
		return before
	}
	before.count(-1)
	now.count(1)
	if h.known[key] = now; now.uid == "" {
		delete(h.known, key)
	}
	return before
}

func (s standing) count(by float64) {
	if s.state != "" && s.state != pvc.Free {
		claimStates.WithLabelValues(string(s.state)).Add(by)
	}
	for i, reason := range reasons {
		if s.reasons&(1<<i) != 0 {
			claimsInUse.WithLabelValues(reason).Add(by)
		}
	}
}

// Token counts what became of a release token.
func (h *Holds) Token(t pvc.TokenVerdict) {
	switch {
	case t.Granted:
		tokens.WithLabelValues("granted").Inc()
	case t.Expired:
		tokens.WithLabelValues("expired").Inc()
	}
}

// Left tells of a claim that was deleted in use, on the claim; and, where somebody
// who may say so had released it, on its namespace as well. One that is ending takes
// no more events.
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

// Ends tells of a namespace whose deletion has begun that its release was used.
func (h *Holds) Ends(namespace *metav1.PartialObjectMetadata) {
	if told, used := pvc.TellNamespaceLeft(namespace); used {
		tokens.WithLabelValues("used").Inc()
		h.event(namespace, told)
	}
}
