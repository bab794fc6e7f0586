package check

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
)

// without says what is missing without a kind of policy.
var without = map[string]string{
	operator.MutatingPolicy:   "the operator adds the barrier after a PVC is created, and mode strict works as hold",
	operator.ValidatingPolicy: "nothing refuses the deletion of a PVC in use or protects labels; mode barrier works",
}

// features probes what the API server serves. A feature that is missing has another behaviour, and no
// defect.
func features(ctx context.Context, s *site, f *findings) error {
	for _, kind := range s.lacks {
		f.warn("the API server has no %s: %s", kind, without[kind])
	}
	keeps, err := s.keepsMaxUnavailable(ctx)
	f.take(err)
	if err == nil && !keeps {
		f.warn("the API server drops maxUnavailable of StatefulSets: a rollout replaces one group at a time, whatever the set's maxUnavailable")
	}
	if !f.hasFound() {
		f.ok("the API server has every feature that Lockstep uses")
	}
	return nil
}

// keepsMaxUnavailable creates a StatefulSet as a dry run. The schema has the field, whether it is
// switched on or not.
func (s *site) keepsMaxUnavailable(ctx context.Context) (bool, error) {
	labels := map[string]any{"app": "lockstep-check"}
	probe := install.Bare("apps/v1", "StatefulSet", s.TestNamespace, "lockstep-check")
	probe.Object["spec"] = map[string]any{
		"selector":       map[string]any{"matchLabels": labels},
		"updateStrategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": int64(2)}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "check", "image": "check"}}},
		},
	}
	err := s.Client.Create(ctx, probe, client.DryRunAll)
	_, kept, _ := unstructured.NestedFieldNoCopy(probe.Object, "spec", "updateStrategy", "rollingUpdate", "maxUnavailable")
	return kept, err
}
