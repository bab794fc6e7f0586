package narrate

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/protect"
)

func goingSince(name string, seconds int64) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), DeletionTimestamp: &metav1.Time{Time: time.Unix(seconds, 0)},
	}}
}

func newTestProtection() (*Protection, *events.FakeRecorder) {
	recorder := events.NewFakeRecorder(10)
	return NewProtection(recorder, func() time.Time { return time.Unix(1000, 0) }, func() int { return 7 }), recorder
}

func TestCensusCountsWhatIsOnItsWayOut(t *testing.T) {
	p, _ := newTestProtection()
	living := goingSince("living", 1)
	living.DeletionTimestamp = nil
	p.Held(living, HeldByPods)
	p.Held(goingSince("a", 900), HeldByOther)
	p.Held(goingSince("a", 900), HeldByPods) // by something else now
	p.Held(goingSince("b", 990), HeldByPods)
	p.Held(goingSince("gone", 10), HeldUnread)
	p.Gone("gone")
	want := `
# HELP lockstep_protection_claims_held Claims on their way out that are still there, by what keeps them.
# TYPE lockstep_protection_claims_held gauge
lockstep_protection_claims_held{reason="AwaitingPodProtection"} 0
lockstep_protection_claims_held{reason="InUse"} 2
lockstep_protection_claims_held{reason="InUseRecord"} 0
lockstep_protection_claims_held{reason="Releasing"} 0
lockstep_protection_claims_held{reason="Unreadable"} 0
lockstep_protection_claims_held{reason="UsedWithoutProtection"} 0
# HELP lockstep_protection_oldest_terminating_seconds How long ago the deletion of the claim was asked for that has waited longest; 0 without one.
# TYPE lockstep_protection_oldest_terminating_seconds gauge
lockstep_protection_oldest_terminating_seconds 100
# HELP lockstep_protection_queue_depth Claims that wait to be looked at, those being looked at included.
# TYPE lockstep_protection_queue_depth gauge
lockstep_protection_queue_depth 7
`
	if err := testutil.CollectAndCompare(p.census, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestReleaseIsToldOfTheLastFinalizerOfOurs(t *testing.T) {
	p, told := newTestProtection()
	claim := goingSince("a", 900)
	p.Postponed(claim, action.Reason{Sentence: "deletion is postponed: pod x on node n"})
	if got := <-told.Events; got != "Normal DeletionPostponed deletion is postponed: pod x on node n" {
		t.Errorf("told %q", got)
	}
	p.Slipped(claim, "pod y on node n")
	p.Slipped(claim, "pod y on node n")
	if got := <-told.Events; !strings.HasPrefix(got, "Warning UsedWithoutProtection ") || !strings.HasSuffix(got, "end it: pod y on node n") {
		t.Errorf("told %q", got)
	}
	p.Released(claim, protect.PodsFinalizer, []string{protect.BarrierFinalizer})
	p.Released(claim, protect.BarrierFinalizer, []string{"example.com/x"})
	if got := <-told.Events; got != "Normal DeletionReleased nobody uses the claim any more: its deletion goes on, as soon as others let it go: example.com/x" {
		t.Errorf("told %q", got)
	}
	p.Released(claim, protect.BarrierFinalizer, nil)
	if len(told.Events) != 0 {
		t.Errorf("told again: %q", <-told.Events)
	}
}

func TestReadingsAreCountedByOutcome(t *testing.T) {
	p, _ := newTestProtection()
	before := testutil.ToFloat64(reads.WithLabelValues("list", "failed"))
	p.Read("list", time.Second, errors.New("down"))
	p.Read("list", time.Second, nil)
	if got := testutil.ToFloat64(reads.WithLabelValues("list", "failed")); got != before+1 {
		t.Errorf("got %v", got-before)
	}
}
