package webhook

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	rule "lockstep.dev/lockstep/internal/lws/admission"
)

// Register puts every webhook on its path of the server. Requests are bounded
// to 7 MiB, counted, and a panic in a rule is counted and answered with 500, by
// the library underneath.
func Register(server webhook.Server, gangs Gangs) {
	for path, answer := range handlers(gangs) {
		server.Register(path, &webhook.Admission{Handler: answer})
	}
}

func handlers(gangs Gangs) map[string]admission.HandlerFunc {
	return map[string]admission.HandlerFunc{
		PathMutateSet: mutating(func(_ context.Context, set *lwsv1.LeaderWorkerSet) error {
			rule.Default(set)
			return nil
		}),
		PathValidateSet: validating(rules[lwsv1.LeaderWorkerSet]{
			create: rule.ValidateCreate,
			update: rule.ValidateUpdate,
			warn:   rule.Warnings,
		}),
		PathMutatePod:   ofSets(mutating(gangs.mutatePod)),
		PathValidatePod: allowing, // for configurations made by other implementations; ours does not call it
	}
}

// ofSets lets pods that belong to no set pass, whatever next would answer. The webhook
// configuration keeps them away already, but one without its selector must do no harm.
// Whose a pod is, is asked of a refused one only: to read each twice would cost half as
// much again, and next changes none that are not of a set.
func ofSets(next admission.HandlerFunc) admission.HandlerFunc {
	return func(ctx context.Context, req admission.Request) admission.Response {
		answer := next(ctx, req)
		if answer.Allowed {
			return answer
		}
		var pod metav1.PartialObjectMetadata
		if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
			return undecodable(req, err)
		}
		if _, ours := pod.Labels[lwsv1.SetNameLabelKey]; !ours {
			return admission.Allowed("")
		}
		return answer
	}
}
