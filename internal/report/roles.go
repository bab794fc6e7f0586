package report

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
)

var (
	roleGroups = gauge("lockstep_role_groups",
		"Groups of a role of a DisaggregatedSet, in all slices and revisions, by state (wanted, ready, updated).", "namespace", "name", "role", "state")
	pairsReady = gauge("lockstep_pairs_ready_ratio",
		"Part of the wanted pairs of a DisaggregatedSet whose roles are all ready at one revision, in sum over its revisions: 1 if all are.", "namespace", "name")
)

// toldRoles has the roles of each set that have series.
var toldRoles sync.Map

// RoleMetrics returns the metrics about DisaggregatedSets.
func RoleMetrics() []prometheus.Collector { return []prometheus.Collector{roleGroups, pairsReady} }

// RolesStand counts what the plan of a DisaggregatedSet was decided from. Without roles, its series are removed.
func RolesStand(key types.NamespacedName, roles []dsv1.RoleStatus, wanted []int32, pairs float64) {
	labels := prometheus.Labels{"namespace": key.Namespace, "name": key.Name}
	if len(roles) == 0 {
		toldRoles.Delete(key)
		roleGroups.DeletePartialMatch(labels)
		pairsReady.DeletePartialMatch(labels)
		return
	}
	pairsReady.With(labels).Set(pairs)
	before, _ := toldRoles.Swap(key, roles)
	told, _ := before.([]dsv1.RoleStatus)
	for _, role := range told {
		if !slices.ContainsFunc(roles, func(r dsv1.RoleStatus) bool { return r.Name == role.Name }) {
			roleGroups.DeletePartialMatch(prometheus.Labels{"namespace": key.Namespace, "name": key.Name, "role": role.Name})
		}
	}
	for i, role := range roles {
		for state, n := range map[string]int32{"wanted": wanted[i], "ready": role.ReadyReplicas, "updated": role.UpdatedReplicas} {
			roleGroups.WithLabelValues(key.Namespace, key.Name, role.Name, state).Set(float64(n))
		}
	}
}
