package report

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/pvc"
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
	byReason, age := p.census.count()
	want := map[string]int{HeldByPods: 2, HeldByRecord: 0, HeldByOther: 0, HeldUnread: 0, HeldBySlipped: 0, HeldForWriting: 0, HeldUnwritten: 0, HeldByCompleted: 0, HeldByVolume: 0}
	if diff := cmp.Diff(want, byReason); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if age != 100*time.Second {
		t.Errorf("the oldest waits for %v", age)
	}
	metrics := make(chan prometheus.Metric, 20)
	p.census.Collect(metrics)
	if len(metrics) != len(want)+2 {
		t.Errorf("%d metrics", len(metrics))
	}
}

// TestAPredecessorsPostponementIsToldToBeOver: who took over does not know what was told.
func TestAPredecessorsPostponementIsToldToBeOver(t *testing.T) {
	p, told := newTestProtection()
	p.Begin(time.Unix(950, 1))
	p.Released(goingSince("in the same second", 950), pvc.BarrierFinalizer, nil)
	p.Released(goingSince("afterwards", 960), pvc.BarrierFinalizer, nil)
	p.Released(goingSince("before", 949), pvc.PodsFinalizer, []string{pvc.BarrierFinalizer})
	if len(told.Events) != 0 {
		t.Errorf("told %q", <-told.Events)
	}
	p.Released(goingSince("before", 949), pvc.BarrierFinalizer, nil)
	if len(told.Events) != 1 {
		t.Fatalf("told %d times", len(told.Events))
	}
	if got := <-told.Events; got != "Normal DeletionReleased nobody uses the claim any more: its deletion goes on" {
		t.Errorf("told %q", got)
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
	p.Released(claim, pvc.PodsFinalizer, []string{pvc.BarrierFinalizer})
	p.Released(claim, pvc.BarrierFinalizer, []string{"example.com/x"})
	if got := <-told.Events; got != "Normal DeletionReleased nobody uses the claim any more: its deletion goes on, as soon as others let it go: example.com/x" {
		t.Errorf("told %q", got)
	}
	p.Released(claim, pvc.BarrierFinalizer, nil)
	if len(told.Events) != 0 {
		t.Errorf("told again: %q", <-told.Events)
	}
}
