package pvccache

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// TestATrimmedPodDecidesAlike, and one that waits for nothing of ours costs
// next to nothing.
func TestATrimmedPodDecidesAlike(t *testing.T) {
	pod := func(gates ...string) *corev1.Pod {
		o := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}, Volumes: []corev1.Volume{
				{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
			}},
		}
		for _, gate := range gates {
			o.Spec.SchedulingGates = append(o.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
		}
		return o
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "c", ResourceVersion: "8"}}
	judge := func(o *corev1.Pod) pvc.GateVerdict {
		return pvc.DecideGate(pvc.GateView{Pod: o, Live: pvc.Claims{"data": claim}, Settings: pvc.Settings{Mode: pvc.Strict}})
	}
	trim := func(o *corev1.Pod) *corev1.Pod {
		trimmed, err := trimGated(o.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		return trimmed.(*corev1.Pod)
	}
	waiting := pod("other", pvc.UseGate)
	if diff := cmp.Diff(judge(waiting), judge(trim(waiting)), cmp.AllowUnexported(pvc.Lifting{}, pvc.Recording{})); diff != "" {
		t.Errorf("(-whole +trimmed):\n%s", diff)
	}
	if v := judge(trim(waiting)); len(v.Writes) != 1 || v.Lift.Target().UID != "u" {
		t.Errorf("got %+v", v)
	}
	if free := trim(pod("other")); pvc.Gated(free) || len(free.Spec.Volumes)+len(free.Labels) > 0 {
		t.Errorf("kept %+v", free)
	}
}
