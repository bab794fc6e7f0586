package lwscache

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/definitioncache"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// DefinitionName is the name of the CustomResourceDefinition of sets.
const DefinitionName = "leaderworkersets.leaderworkerset.x-k8s.io"

// NewDefinition returns the Definition of sets. It reads through live, which must not be a cache.
func NewDefinition(live client.Reader) *definitioncache.Definition {
	return definitioncache.New(live, lwsv1.GroupVersion.WithKind("LeaderWorkerSet"), "leaderworkersets")
}

// beyond returns what a set has that this version lacks: fields and values, or what its leaders show of a field that
// the API server removed since.
func (r *reading) beyond(ctx context.Context, leaders *appsv1.StatefulSet) ([]string, error) {
	found, err := workload.Unmet(r.set, r.Scheduler)
	if r.former != "" {
		found = append(found, r.former)
	}
	if r.Definition == nil || err != nil || len(found) > 0 {
		return found, err
	}
	if leaders != nil && r.set.Spec.Scheduling == nil && leaders.Spec.Template.Annotations[lwsv1.WorkloadNameAnnotationKey] != "" {
		return []string{fmt.Sprintf("annotation %s of statefulset %s", lwsv1.WorkloadNameAnnotationKey, leaders.Name)}, nil
	}
	return r.Definition.BeyondOf(ctx, client.ObjectKeyFromObject(r.set))
}
