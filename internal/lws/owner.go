package lws

import (
	"cmp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// LeadersOwner is the StatefulSet or Deployment that creates the leaders of a set.
type LeadersOwner struct {
	metav1.Object
	Kind     identity.Kind
	Template *corev1.PodTemplateSpec
	// Wants is how many leaders it is to have, and has how many it has.
	Wants, Has int32
	// IsObserved is set once its controller has seen the present spec.
	IsObserved bool
}

// LeadersOwner returns the one that the set owns or adopts, or nil.
func (w *SetSnapshot) LeadersOwner() *LeadersOwner {
	return OwnerOf(w.LeaderStatefulSet(), w.LeaderDeployment())
}

// OwnerOf returns one of them, whichever is there, or nil.
func OwnerOf(sts *appsv1.StatefulSet, deployment *appsv1.Deployment) *LeadersOwner {
	switch {
	case sts != nil:
		return &LeadersOwner{sts, identity.KindStatefulSet, &sts.Spec.Template, workload.PodsOf(sts), sts.Status.Replicas, workload.Observed(sts)}
	case deployment != nil:
		return &LeadersOwner{
			deployment, identity.KindDeployment, &deployment.Spec.Template, ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status.Replicas,
			deployment.Status.ObservedGeneration >= deployment.Generation,
		}
	}
	return nil
}

// Noun names its kind in a sentence.
func (o *LeadersOwner) Noun() string { return strings.ToLower(string(o.Kind)) }

// Key returns its revision key: its label, or else the label of its template.
func (o *LeadersOwner) Key() string {
	return cmp.Or(o.GetLabels()[lwsv1.RevisionKey], o.Template.Labels[lwsv1.RevisionKey])
}

// LeaderDeployment is the leader Deployment that the set owns or adopts.
func (w *SetSnapshot) LeaderDeployment() *appsv1.Deployment {
	return cmp.Or(w.Deployment.Own(), w.Deployment.Orphan())
}

// Replaces reports whether a leader is of another revision or placement than the template.
func (o *LeadersOwner) Replaces(leader *corev1.Pod) bool {
	return leader.Labels[lwsv1.RevisionKey] != o.Template.Labels[lwsv1.RevisionKey] ||
		slices.ContainsFunc(workload.Placements, func(key string) bool { return leader.Annotations[key] != o.Template.Annotations[key] })
}

// Paused reports whether the user holds a set's rollout.
func Paused(set *lwsv1.LeaderWorkerSet) bool {
	return set.Annotations[lwsv1.PausedAnnotationKey] == lwsv1.PausedValue
}

// AsLed is a set as the group of a leader is to see it. While the rollout is paused, a group has the subdomain policy
// of its leader: what waits is not for it. A Hash group always has that of its leader.
func AsLed(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) *lwsv1.LeaderWorkerSet {
	if leader == nil || !Paused(set) && !workload.IsHashLeader(leader) {
		return set
	}
	return workload.WithSubdomain(set, lwsv1.SubdomainPolicy(leader.Annotations[lwsv1.SubdomainPolicyAnnotationKey]))
}

// AwaitsLeaders reports whether a set is to get its first leaders.
func (w *SetSnapshot) AwaitsLeaders() bool {
	owner := w.LeadersOwner()
	return workload.Replicas(w.Set) > 0 && (owner == nil || owner.Wants == 0)
}

// LeaderStatefulSet is the leader StatefulSet that the set owns or adopts.
func (w *SetSnapshot) LeaderStatefulSet() *appsv1.StatefulSet {
	return cmp.Or(w.StatefulSet.Own(), w.StatefulSet.Orphan())
}

// LivePartition is the ordinal from which a StatefulSet replaces its pods. One with OnDelete replaces none.
func LivePartition(sts *appsv1.StatefulSet) int32 {
	strategy := sts.Spec.UpdateStrategy
	if strategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return workload.PodsOf(sts)
	}
	return ptr.Deref(ptr.Deref(strategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{}).Partition, 0)
}
