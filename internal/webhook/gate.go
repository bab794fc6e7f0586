package webhook

import (
	"context"
	"encoding/json"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"lockstep.dev/lockstep/internal/pvc"
)

// PathGatePod is where pods of mode strict come in where the API server knows no
// policy that could give them their gate.
const PathGatePod = "/gate-pod"

// gating gives pods that use claims the gate of mode strict, and never refuses: what
// has no gate all the same is refused by a policy, which needs nobody to be up.
func gating(_ context.Context, req admission.Request) admission.Response {
	var pod corev1.Pod
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil || !pvc.ToBeGated(&pod) {
		return admission.Allowed("")
	}
	gate := corev1.PodSchedulingGate{Name: pvc.UseGate}
	if len(pod.Spec.SchedulingGates) == 0 {
		return admission.Patched("", jsonpatch.NewOperation("add", "/spec/schedulingGates", []corev1.PodSchedulingGate{gate}))
	}
	return admission.Patched("", jsonpatch.NewOperation("add", "/spec/schedulingGates/-", gate))
}
