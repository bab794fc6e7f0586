package standin

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Levels of the PodGroups of a set: one for all of its pods, or one for each group.
const (
	WholeSet  = "lws"
	EachGroup = "replica"
)

// AsScheduled changes a StatefulSet of a set to what version 0.11 writes where pods are in PodGroups. Leaders name the
// Workload of their set.
func AsScheduled(set *lwsv1.LeaderWorkerSet, level string) Change {
	return asScheduled(level, workloadName(set))
}

// AsScheduledWith is AsScheduled for workers. Their name of the Workload is that of their leader: the webhook may have
// added to it.
func AsScheduledWith(leader *corev1.Pod, level string) Change {
	return asScheduled(level, leader.Annotations[lwsv1.WorkloadNameAnnotationKey])
}

func asScheduled(level, workload string) Change {
	return func(sts *appsv1.StatefulSet) {
		AsOf011(sts)
		sts.Spec.Template.Annotations[lwsv1.WorkloadSchedulingAnnotationKey] = level
		sts.Spec.Template.Annotations[lwsv1.WorkloadNameAnnotationKey] = workload
	}
}

func workloadName(set *lwsv1.LeaderWorkerSet) string {
	hash := fnv.New32a()
	fmt.Fprint(hash, dump.ForHash(set.UID))
	return set.Name + "-" + rand.SafeEncodeString(fmt.Sprint(hash.Sum32()))
}

// Describe creates the Workload of a set whose PodGroups are gangs, and at level WholeSet the PodGroup of all its pods.
func (o *Other) Describe(ctx context.Context, set *lwsv1.LeaderWorkerSet, level string) error {
	workload := &schedulingv1beta1.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: workloadName(set), Labels: map[string]string{lwsv1.SetNameLabelKey: set.Name},
			OwnerReferences: controlled(lwsv1.GroupVersion.String(), "LeaderWorkerSet", set),
		},
		Spec: schedulingv1beta1.WorkloadSpec{
			ControllerRef:     &schedulingv1beta1.TypedLocalObjectReference{APIGroup: lwsv1.GroupVersion.Group, Kind: "LeaderWorkerSet", Name: set.Name},
			PodGroupTemplates: []schedulingv1beta1.PodGroupTemplate{{Name: level, SchedulingPolicy: gangOf(set, level)}},
		},
	}
	if err := o.client.Create(ctx, workload); err != nil || level != WholeSet {
		return err
	}
	return o.group(ctx, set, level, workload.Name+"-"+level, nil)
}

// DescribeGroup creates the PodGroup of a leader and its workers. It comes after the leader, whose name of the Workload
// it needs.
func (o *Other) DescribeGroup(ctx context.Context, set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) error {
	labels := map[string]string{
		lwsv1.GroupIndexLabelKey: leader.Labels[lwsv1.GroupIndexLabelKey], lwsv1.RevisionKey: leader.Labels[lwsv1.RevisionKey],
	}
	name := leader.Annotations[lwsv1.WorkloadNameAnnotationKey] + "-" + labels[lwsv1.GroupIndexLabelKey] + "-" + labels[lwsv1.RevisionKey]
	return o.group(ctx, set, EachGroup, name, labels)
}

// gangOf is the policy of a PodGroup of a level: it waits for all pods of the PodGroup.
func gangOf(set *lwsv1.LeaderWorkerSet, level string) schedulingv1beta1.PodGroupSchedulingPolicy {
	pods := *set.Spec.LeaderWorkerTemplate.Size
	if level == WholeSet {
		pods *= *set.Spec.Replicas
	}
	return schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: pods}}
}

// group creates a PodGroup of a set whose Workload exists. Its labels include more.
func (o *Other) group(ctx context.Context, set *lwsv1.LeaderWorkerSet, level, name string, more map[string]string) error {
	var workload schedulingv1beta1.Workload
	if err := o.client.Get(ctx, client.ObjectKey{Namespace: set.Namespace, Name: workloadName(set)}, &workload); err != nil {
		return err
	}
	labels := map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.SchedulingLevelLabelKey: level}
	maps.Copy(labels, more)
	return o.client.Create(ctx, &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: name, Labels: labels,
			OwnerReferences: append(controlled(lwsv1.GroupVersion.String(), "LeaderWorkerSet", set), metav1.OwnerReference{
				APIVersion: schedulingv1beta1.SchemeGroupVersion.String(), Kind: "Workload", Name: workload.Name, UID: workload.UID,
			}),
		},
		Spec: schedulingv1beta1.PodGroupSpec{
			WorkloadRef:      &schedulingv1beta1.WorkloadReference{WorkloadName: workload.Name, TemplateName: level},
			SchedulingPolicy: gangOf(set, level),
		},
	})
}
