package pvchold

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/report"
)

// counted is how many claims are counted in a state.
func counted(t *testing.T, state pvc.State) (n int) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(report.HoldMetrics()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "lockstep_protection_claim_states" && m.GetLabel()[0].GetValue() == string(state) {
				n += int(m.GetGauge().GetValue())
			}
		}
	}
	return n
}

// What is gone counts no more, without being looked at: a thousand claims that are released
// together were each looked at once more to find that out. It may go while it is looked at,
// and no event tells of it afterwards.
func TestAClaimThatWentCountsNoMore(t *testing.T) {
	l := newLagging(t)
	l.narrate = report.NewHolds(report.New(events.NewFakeRecorder(10)))
	elected := make(chan struct{})
	close(elected)
	claims := newKeys(nil, nil)
	looks := &looked{}
	claims.queue = looks
	followers := l.followers(claims, newKeys(nil, nil), elected)
	before := counted(t, pvc.Held)
	stays, goes := heldByHand("stays", "1"), heldByHand("goes", "1")
	l.shown(space("1", "hold"))
	l.is(space("1", "hold"))
	for _, claim := range []*corev1.PersistentVolumeClaim{stays, goes} {
		l.both(claim)
		l.pass(claim.Name)
	}
	if now := counted(t, pvc.Held) - before; now != 2 {
		t.Fatalf("%d claims are counted, want 2", now)
	}
	followers.Gone(goes)
	if now := counted(t, pvc.Held) - before; now != 1 {
		t.Errorf("%d claims are counted, want the one that stays", now)
	}
	l.judged(t.Context(), heldByHand("gone meanwhile", "1"), pvc.HoldVerdict{State: pvc.Held})
	if now := counted(t, pvc.Held) - before; now != 1 {
		t.Errorf("%d claims are counted after one went during its pass", now)
	}
	if looks.n > 0 {
		t.Errorf("%d claims are looked at that are not there", looks.n)
	}
}

// looked counts what is put into a queue.
type looked struct {
	queue
	n int
}

func (q *looked) AddAfter(ctrl.Request, time.Duration) { q.n++ }
