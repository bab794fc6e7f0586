package webhook

import (
	"context"
	"encoding/json"

	"gomodules.xyz/jsonpatch/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"lockstep.dev/lockstep/internal/pvc"
)

// The paths on which claims and volumes come in where the API server knows no
// policies that could give them their finalizers.
const (
	PathProtectClaim       = "/protect-claim"
	PathProtectClaimChosen = "/protect-claim-chosen"
	PathProtectClaimPods   = "/protect-claim-pods"
	PathProtectVolume      = "/protect-volume"
)

// ProtectionConfiguration sends the API server to these paths.
const ProtectionConfiguration = "lockstep-protection-webhook-configuration"

// RegisterProtection puts the webhooks that give finalizers, and the gate of mode
// strict, on their paths.
func RegisterProtection(server webhook.Server) {
	server.Register(PathGatePod, &webhook.Admission{Handler: admission.HandlerFunc(gating)})
	for path, birth := range births() {
		server.Register(path, &webhook.Admission{Handler: giving(birth)})
	}
}

func births() map[string]pvc.Birth {
	return map[string]pvc.Birth{
		PathProtectClaim:       pvc.BornProtected,
		PathProtectClaimChosen: pvc.BornChoosing,
		PathProtectClaimPods:   pvc.BornAlone,
		PathProtectVolume:      pvc.BornVolume,
	}
}

// giving adds one finalizer, and never refuses: what cannot be read is for the API
// server to judge, and a claim without its finalizer is dressed by the controller.
func giving(birth pvc.Birth) admission.HandlerFunc {
	return func(_ context.Context, req admission.Request) admission.Response {
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(req.Object.Raw, &object); err != nil || !birth.Gives(&object) {
			return admission.Allowed("")
		}
		if len(object.Finalizers) == 0 {
			return admission.Patched("", jsonpatch.NewOperation("add", "/metadata/finalizers", []string{birth.Finalizer}))
		}
		return admission.Patched("", jsonpatch.NewOperation("add", "/metadata/finalizers/-", birth.Finalizer))
	}
}
