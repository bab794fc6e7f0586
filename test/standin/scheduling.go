package standin

import (
	"context"
	"fmt"
	"hash/fnv"

	appsv1 "k8s.io/api/apps/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// wholeSet is the level of a PodGroup for all pods of a set.
const wholeSet = "lws"

// AsScheduled changes a StatefulSet of a set to what version 0.11 writes where all pods of the set are in one
// PodGroup.
func AsScheduled(set *lwsv1.LeaderWorkerSet) Change {
	return func(sts *appsv1.StatefulSet) {
		AsOf011(sts)
		sts.Spec.Template.Annotations["leaderworkerset.sigs.k8s.io/workload-aware-scheduling"] = wholeSet
		sts.Spec.Template.Annotations["leaderworkerset.sigs.k8s.io/workload-name"] = workloadName(set)
	}
}

func workloadName(set *lwsv1.LeaderWorkerSet) string {
	hash := fnv.New32a()
	fmt.Fprint(hash, dump.ForHash(set.UID))
	return set.Name + "-" + rand.SafeEncodeString(fmt.Sprint(hash.Sum32()))
}

// Describe creates the Workload of a set, and the PodGroup of all its pods.
func (o *Other) Describe(ctx context.Context, set *lwsv1.LeaderWorkerSet) error {
	policy := schedulingv1beta1.PodGroupSchedulingPolicy{
		Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: *set.Spec.Replicas * *set.Spec.LeaderWorkerTemplate.Size},
	}
	owners := controlled(lwsv1.GroupVersion.String(), "LeaderWorkerSet", set)
	workload := &schedulingv1beta1.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: workloadName(set), Labels: map[string]string{lwsv1.SetNameLabelKey: set.Name}, OwnerReferences: owners,
		},
		Spec: schedulingv1beta1.WorkloadSpec{
			ControllerRef:     &schedulingv1beta1.TypedLocalObjectReference{APIGroup: lwsv1.GroupVersion.Group, Kind: "LeaderWorkerSet", Name: set.Name},
			PodGroupTemplates: []schedulingv1beta1.PodGroupTemplate{{Name: wholeSet, SchedulingPolicy: policy}},
		},
	}
	if err := o.client.Create(ctx, workload); err != nil {
		return err
	}
	return o.client.Create(ctx, &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: workload.Name + "-" + wholeSet,
			Labels: map[string]string{lwsv1.SetNameLabelKey: set.Name, "leaderworkerset.sigs.k8s.io/scheduling-level": wholeSet},
			OwnerReferences: append(owners, metav1.OwnerReference{
				APIVersion: schedulingv1beta1.SchemeGroupVersion.String(), Kind: "Workload", Name: workload.Name, UID: workload.UID,
			}),
		},
		Spec: schedulingv1beta1.PodGroupSpec{
			WorkloadRef:      &schedulingv1beta1.WorkloadReference{WorkloadName: workload.Name, TemplateName: wholeSet},
			SchedulingPolicy: policy,
		},
	})
}
