package apply

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

func TestALiftingNamesTheVersionAndLeavesOtherGates(t *testing.T) {
	for want, gates := range map[string][]string{
		`{"metadata":{"resourceVersion":"7","uid":"u"},"spec":{"schedulingGates":[]}}`:                            {pvc.UseGate},
		`{"metadata":{"resourceVersion":"7","uid":"u"},"spec":{"schedulingGates":[{"name":"a"},{"name":"b/c"}]}}`: {"a", pvc.UseGate, "b/c"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w-0", UID: "u", ResourceVersion: "7"}}
		for _, gate := range gates {
			pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
		}
		writer := &patched{}
		if _, err := New(writer, nil).Do(t.Context(), pvc.DecideGate(pvc.GateView{Pod: pod}).Lift); err != nil {
			t.Fatal(err)
		}
		if writer.document != want || writer.waits {
			t.Errorf("got %s, waits %t", writer.document, writer.waits)
		}
	}
}

// The zero value comes from no judgement: carried out, it would lift the gate off
// whatever pod has no name.
func TestALiftingThatNobodyJudgedIsRefused(t *testing.T) {
	writer := &patched{}
	if _, err := New(writer, nil).Do(t.Context(), pvc.Lifting{}); err == nil || writer.document != "" {
		t.Errorf("got %v, wrote %q", err, writer.document)
	}
}
