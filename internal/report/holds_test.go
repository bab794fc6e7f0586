package report

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
)

func gauge(t *testing.T, v *prometheus.GaugeVec, label string) int {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(v)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == label {
				return int(m.GetGauge().GetValue())
			}
		}
	}
	return 0
}

func judged(state pvc.State, reasons ...string) pvc.HoldVerdict {
	d := pvc.HoldVerdict{State: state}
	for _, reason := range reasons {
		d.Holders = append(d.Holders, pvc.Holder{Name: "StatefulSet/db", Reason: reason})
	}
	return d
}

func TestClaimsAreCountedAsTheyWereJudgedLast(t *testing.T) {
	recorder := &fakeRecorder{}
	h := NewHolds(New(recorder))
	a := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "1"}}
	b := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b", UID: "2"}}
	for range 2 {
		h.Judged(a, judged(pvc.Held, pvc.BoundPod, pvc.DesiredState))
		h.Judged(b, judged(pvc.Held, pvc.DesiredState))
	}
	want := func(heldNow, cooling, doomed, bound, desired int) {
		t.Helper()
		got := []int{gauge(t, claimStates, "Held"), gauge(t, claimStates, "Cooling"), gauge(t, claimStates, "Doomed"),
			gauge(t, claimsInUse, pvc.BoundPod), gauge(t, claimsInUse, pvc.DesiredState)}
		for i, n := range []int{heldNow, cooling, doomed, bound, desired} {
			if got[i] != n {
				t.Errorf("got %v, want %v", got, []int{heldNow, cooling, doomed, bound, desired})
				break
			}
		}
	}
	want(2, 0, 0, 1, 2)
	h.Judged(b, judged(pvc.Cooling))
	want(1, 1, 0, 1, 1)
	h.Judged(b, judged(pvc.Free))
	want(1, 0, 0, 1, 1)
	h.Judged(a, judged(pvc.Doomed, pvc.DesiredState))
	h.Judged(a, judged(pvc.Doomed, pvc.DesiredState))
	want(0, 0, 1, 0, 1)
	if len(recorder.told) != 1 || !strings.Contains(recorder.told[0], "Warning Doomed") || !strings.Contains(recorder.told[0], "StatefulSet/db") {
		t.Errorf("told %q", recorder.told)
	}
	another := a.DeepCopy()
	another.UID = "3"
	h.Judged(another, judged(pvc.Doomed, pvc.DesiredState))
	if len(recorder.told) != 2 {
		t.Errorf("of another life nothing is told: %q", recorder.told)
	}
	for _, name := range []string{"a", "b", "never"} {
		h.Gone(types.NamespacedName{Namespace: "ns", Name: name})
	}
	want(0, 0, 0, 0, 0)
}

func TestAReleaseThatIsUsedIsToldOnTheClaimAndItsNamespace(t *testing.T) {
	recorder := &fakeRecorder{}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "1",
		Annotations: map[string]string{pvc.HoldersAnnotation: "StatefulSet/db", pvc.ReleaseAnnotation: "1"}}}
	namespace := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "2"}}
	told, ok := pvc.TellLeft(claim)
	if !ok {
		t.Fatal("of a release that was used nothing is told")
	}
	NewHolds(New(recorder)).Left(claim, namespace, told)
	if len(recorder.told) != 2 || !strings.Contains(recorder.told[0], "in use by StatefulSet/db") || !strings.Contains(recorder.told[1], "claim data") {
		t.Errorf("told %q", recorder.told)
	}
}

func TestANamespaceThatGoesReleasedIsTold(t *testing.T) {
	recorder := &fakeRecorder{}
	h := NewHolds(New(recorder))
	namespace := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "2"}}
	h.Ends(namespace)
	namespace.Annotations = map[string]string{pvc.HeldClaimsAnnotation: "3"}
	h.Ends(namespace)
	if len(recorder.told) > 0 {
		t.Errorf("nobody released it, and told is %q", recorder.told)
	}
	namespace.Annotations[pvc.ReleaseAnnotation] = "2"
	h.Ends(namespace)
	if len(recorder.told) != 1 || !strings.Contains(recorder.told[0], "in use: 3") {
		t.Errorf("told %q", recorder.told)
	}
}
