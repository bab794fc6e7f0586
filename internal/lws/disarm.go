package lws

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// What worker StatefulSets of ours never have, and those of another implementation may:
// a part in the end of their claims.

// leftBehindBy is the StatefulSet of workers that a leader on its way out controls and
// that nobody has deleted yet, or nil.
func leftBehindBy(leader *corev1.Pod, g *Group) *appsv1.StatefulSet {
	for _, workers := range WorkersOf(g, leader) {
		if workers.DeletionTimestamp == nil {
			return workers
		}
	}
	return nil
}

// armed tells whether a worker StatefulSet has a part in the end of its claims,
// which another implementation gave it.
func armed(workers *appsv1.StatefulSet) bool {
	if workers == nil || len(workers.Spec.VolumeClaimTemplates) == 0 {
		return false
	}
	policy := workers.Spec.PersistentVolumeClaimRetentionPolicy
	return policy != nil && policy.WhenDeleted == deleteVolumes
}

// unseen tells whether the StatefulSet controller may still take claims for those of
// a StatefulSet that was disarmed.
func unseen(workers *appsv1.StatefulSet) bool {
	if workers == nil || len(workers.Spec.VolumeClaimTemplates) == 0 {
		return false
	}
	seen := workers.Status.ObservedGeneration
	return seen != 0 && seen < workers.Generation
}

// disarm takes from a worker StatefulSet its part in the end of its claims.
func disarm(workers *appsv1.StatefulSet) action.Apply {
	return action.Apply{
		Object: &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{DisarmedAnnotationKey: fmt.Sprint(workers.Generation)}},
			Spec: appsv1.StatefulSetSpec{
				PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: retainVolumes, WhenScaled: retainVolumes},
			},
		},
		Onto:       identity.RefOf(identity.KindStatefulSet, workers),
		FieldOwner: retentionFieldOwner,
		Because:    because(CodeTie, fmt.Sprintf("statefulset %s would take its volume claims with it at the next restart of its group", workers.Name)),
	}
}

// podsGeneration is the generation that last said anything of the pods of a worker
// StatefulSet: a group that is taken from another implementation does not cease to
// be ready because its StatefulSet was disarmed.
func podsGeneration(workers *appsv1.StatefulSet) int64 {
	before := workers.Generation - 1
	if workers.Annotations[DisarmedAnnotationKey] == fmt.Sprint(before) {
		return before
	}
	return workers.Generation
}
