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

// Register adds each webhook to the server. The library bounds requests to 7 MiB, counts
// them, and answers a panic in a rule with 500.
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
		PathValidatePod: allowing, // for configurations of other implementations; ours does not call it
	}
}

// ofSets allows pods of no set, whatever next answers. The webhook configuration selects
// pods of sets already, but one without its selector must do no harm. The label is read of
// refused pods only: to decode each pod twice costs half as much again, and next changes no
// pod without the label.
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
		if _, isOfSet := pod.Labels[lwsv1.SetNameLabelKey]; !isOfSet {
			return admission.Allowed("")
		}
		return answer
	}
}
