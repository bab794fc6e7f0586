package standin

import (
	"context"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// groupReady is the readiness gate and condition of Hash leaders.
const groupReady = "leaderworkerset.sigs.k8s.io/group-ready"

// LeaderDeployment returns the Deployment of the leaders of a set with groupIdentity Hash, as 0.11 makes it.
func LeaderDeployment(set *lwsv1.LeaderWorkerSet, key string) *appsv1.Deployment {
	sts := Leaders(set, key, 0, *set.Spec.Replicas, nil)
	template := sts.Spec.Template
	template.Annotations["leaderworkerset.sigs.k8s.io/group-identity"] = "Hash"
	template.Spec.Subdomain = set.Name
	if *set.Spec.LeaderWorkerTemplate.Size > 1 {
		template.Spec.ReadinessGates = append(template.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: groupReady})
	}
	rolling := set.Spec.RolloutStrategy.RollingUpdateConfiguration
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: sts.ObjectMeta,
		Spec: appsv1.DeploymentSpec{
			Replicas: set.Spec.Replicas, Selector: sts.Spec.Selector, Template: template,
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &rolling.MaxUnavailable, MaxSurge: &rolling.MaxSurge},
			},
		},
	}
}

// ApplyLeaderDeployment applies it.
func (o *Other) ApplyLeaderDeployment(ctx context.Context, set *lwsv1.LeaderWorkerSet, key string) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(LeaderDeployment(set, key))
	if err != nil {
		return err
	}
	delete(fields, "status")
	owned(fields)
	document := &unstructured.Unstructured{Object: fields}
	return o.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(document), client.FieldOwner(manager), client.ForceOwnership)
}

// Lift lets a Hash leader be scheduled.
func (o *Other) Lift(ctx context.Context, leader *corev1.Pod) error {
	next := leader.DeepCopy()
	next.Spec.SchedulingGates = nil
	delete(next.Annotations, corev1.PodDeletionCost) // later versions set it with the gate
	return o.client.Patch(ctx, next, client.StrategicMergeFrom(leader))
}

// MakeHashGroup creates the worker StatefulSet of a Hash leader, under the name of the leader's pod, and its Service
// where it has one.
func (o *Other) MakeHashGroup(ctx context.Context, set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) error {
	host := leader.Spec.Hostname
	if perReplica(set) {
		err := o.client.Create(ctx, service(set, host, map[string]string{
			lwsv1.SetNameLabelKey: set.Name, lwsv1.GroupIndexLabelKey: leader.Labels[lwsv1.GroupIndexLabelKey],
		}, controlled("v1", "Pod", leader)))
		if client.IgnoreAlreadyExists(err) != nil {
			return err
		}
	}
	if *set.Spec.LeaderWorkerTemplate.Size < 2 {
		return nil
	}
	sts := Workers(set, leader, "")
	AsOf011(sts)
	if perReplica(set) {
		sts.Spec.ServiceName = host
	}
	sts.Spec.Template.Annotations[lwsv1.LeaderAddressAnnotationKey] = host + "." + leader.Spec.Subdomain + "." + set.Namespace
	sts.Spec.Template.Annotations[lwsv1.SizeAnnotationKey] = strconv.Itoa(int(*set.Spec.LeaderWorkerTemplate.Size))
	return client.IgnoreAlreadyExists(o.client.Create(ctx, sts))
}

// SyncReadiness writes the condition of a leader whose workers are ready.
func (o *Other) SyncReadiness(ctx context.Context, leader *corev1.Pod) error {
	next := leader.DeepCopy()
	next.Status.Conditions = append(next.Status.Conditions, corev1.PodCondition{
		Type: groupReady, Status: corev1.ConditionTrue, Reason: "WorkerStatefulSetReady", LastTransitionTime: metav1.Now(),
	})
	return o.client.Status().Patch(ctx, next, client.StrategicMergeFrom(leader))
}
