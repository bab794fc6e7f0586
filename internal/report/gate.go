package report

import (
	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/action"
)

// Waits tells a pod that is not let to the scheduler why, once for each reason in
// a row.
func (p *Protection) Waits(pod *corev1.Pod, why action.Reason) {
	if last, _ := p.told.Get(pod.UID); last == why {
		return
	}
	p.told.Add(pod.UID, why)
	p.recorder.Eventf(pod, nil, corev1.EventTypeWarning, why.Code, "Schedule", "%s", clipped(why.Sentence))
}
