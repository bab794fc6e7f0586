package integration

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The definition refuses quantities that hang every client which decodes them.
func TestDefinitionRefusesCostlyQuantities(t *testing.T) {
	namespace := newNamespace(t)
	places := map[string]string{
		"limits":       `{leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c, resources: {limits: {cpu: "VALUE"}}}]}}}}`,
		"overhead":     `{leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c}], overhead: {cpu: "VALUE"}}}}}`,
		"sizeLimit":    `{leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c}], volumes: [{name: v, emptyDir: {sizeLimit: "VALUE"}}]}}}}`,
		"divisor":      `{leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c, env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "VALUE"}}}]}]}}}}`,
		"of a leader":  `{leaderWorkerTemplate: {leaderTemplate: {spec: {containers: [{name: c, resources: {requests: {cpu: "VALUE"}}}]}}}}`,
		"of a claim":   `{leaderWorkerTemplate: {volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: "VALUE"}}}}]}}`,
		"claim status": `{leaderWorkerTemplate: {volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}, status: {capacity: {storage: "VALUE"}}}]}}`,
	}
	for place, spec := range places {
		t.Run(place, func(t *testing.T) {
			for _, value := range []string{"1e-2147483647", "1e2147483647", "0e-2147483648", "1e100"} {
				set := fromYAML(t, namespace, strings.ReplaceAll(spec, "VALUE", value))
				wantRefusal(t, api.Create(t.Context(), set, client.DryRunAll), "should match")
				wantRefusal(t, api.Create(t.Context(), set), "should match")
			}
			set := fromYAML(t, namespace, strings.ReplaceAll(spec, "VALUE", strings.Repeat("9", 65)))
			wantRefusal(t, api.Create(t.Context(), set), "may not be more than 64")
			for _, value := range []string{"1", "500m", "1.5Gi", "1e3", "1E-2", "+2k"} {
				set := fromYAML(t, namespace, strings.ReplaceAll(spec, "VALUE", value))
				if err := api.Create(t.Context(), set, client.DryRunAll); err != nil {
					t.Errorf("%s: %v", value, err)
				}
			}
		})
	}
}
