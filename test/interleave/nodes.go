package interleave

import (
	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/kubelet"
)

// nodes are the kubelets. They may learn of a pod's deletion late: they mount its volumes until the
// pod is gone.
func (w *world) nodes(add adder) {
	for i, name := range sorted(wants) {
		pod := w.store.pods()[name]
		if pod == nil || pod.Spec.NodeName == "" {
			continue
		}
		for _, claim := range pvc.ClaimsOf(pod) {
			w.kubelet(add, pod, claim, w.rules.kubelets[i])
		}
	}
}

func (w *world) kubelet(add adder, pod *corev1.Pod, name string, kind kubelet.Kind) {
	m := w.mounts[pod.UID][name]
	switch claim := w.store.claims()[name]; {
	case m != nil && m.done:
	case m != nil:
		add(kubelets, func() { w.mount(pod, name) }, "pod %s mounts %s", pod.Name, name)
	case claim == nil:
	case kind.Admits(claim) == nil:
		add(kubelets, func() { w.admit(pod, claim) }, "%s admits %s for pod %s", kind, name, pod.Name)
	default:
		w.seen["refused by "+kind.String()]++
	}
}

func (w *world) admit(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) {
	if w.mounts[pod.UID] == nil {
		w.mounts[pod.UID] = map[string]*mount{}
	}
	w.mounts[pod.UID][claim.Name] = &mount{claim: claim.UID}
	if claim.DeletionTimestamp != nil {
		w.seen[admittedLate]++
	}
}

func (w *world) mount(pod *corev1.Pod, claim string) {
	w.mounts[pod.UID][claim].done = true
	w.seen[mounted]++
}
