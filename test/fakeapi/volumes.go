package fakeapi

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

const (
	retain = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	// inUse is the finalizer that keeps a PVC while a pod uses it.
	inUse = "kubernetes.io/pvc-protection"
)

// Volumes gives each pod of a set a PVC of the template data, with a retention policy.
func Volumes(whenDeleted, whenScaled appsv1.PersistentVolumeClaimRetentionPolicyType) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) {
		template := &set.Spec.LeaderWorkerTemplate
		template.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
		template.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: whenDeleted, WhenScaled: whenScaled,
		}
	}
}

// ensureClaims creates the PVCs of a pod, and reports whether the pod may be created.
func (c *Controllers) ensureClaims(sts *appsv1.StatefulSet, pod string) bool {
	for _, template := range sts.Spec.VolumeClaimTemplates {
		name := template.Name + "-" + pod
		standing := Find[*corev1.PersistentVolumeClaim](c.Server, name)
		switch {
		case standing == nil:
			Add(c.Server, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: sts.Namespace, Name: name, Labels: maps.Clone(sts.Spec.Selector.MatchLabels), Finalizers: []string{inUse},
			}})
		case standing.DeletionTimestamp != nil:
			c.blocked[sts.UID] = wakers(sts)
			return false
		case retentionOf(sts).WhenScaled == remove && ownerNamed(standing, "Pod", pod) != "":
			return false // the garbage collector deletes it: its owner, an earlier pod, is gone
		}
	}
	return true
}

// ownClaims sets the ownerReferences on the PVCs of a StatefulSet's pods that its
// retention policy asks for, as the StatefulSet controller does.
func (c *Controllers) ownClaims(sts *appsv1.StatefulSet) {
	first, end := ordinals(sts)
	for _, pod := range c.podsOf(sts) {
		_, ordinal := identity.ParentAndOrdinal(pod.Name)
		for _, template := range sts.Spec.VolumeClaimTemplates {
			if claim := Find[*corev1.PersistentVolumeClaim](c.Server, template.Name+"-"+pod.Name); claim != nil {
				c.ownClaim(sts, pod, claim, ordinal < first || ordinal >= end)
			}
		}
	}
}

func (c *Controllers) ownClaim(sts *appsv1.StatefulSet, pod *corev1.Pod, claim *corev1.PersistentVolumeClaim, scaledAway bool) {
	policy := retentionOf(sts)
	for _, owner := range []struct {
		kind, name string
		uid        types.UID
	}{{"StatefulSet", sts.Name, sts.UID}, {"Pod", pod.Name, pod.UID}} {
		if uid := ownerNamed(claim, owner.kind, owner.name); uid != "" && uid != owner.uid {
			return // owned by an earlier incarnation: the garbage collector deletes it
		}
	}
	others := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(o metav1.OwnerReference) bool { return o.UID == sts.UID || o.UID == pod.UID })
	managed := slices.ContainsFunc(others, func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller })
	want := others
	switch {
	case managed && (policy.WhenDeleted == remove || policy.WhenScaled == remove):
	case policy.WhenScaled == remove && scaledAway:
		want = append(want, *metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod")))
	case policy.WhenDeleted == remove:
		want = append(want, *metav1.NewControllerRef(sts, appsv1.SchemeGroupVersion.WithKind("StatefulSet")))
	}
	if !equality.Semantic.DeepEqual(want, claim.OwnerReferences) {
		Edit(c.Server, claim.Name, func(claim *corev1.PersistentVolumeClaim) { claim.OwnerReferences = want })
	}
}

func retentionOf(sts *appsv1.StatefulSet) appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy {
	if policy := sts.Spec.PersistentVolumeClaimRetentionPolicy; policy != nil {
		return *policy
	}
	return appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: retain, WhenScaled: retain}
}

func ownerNamed(object metav1.Object, kind, name string) types.UID {
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == kind && owner.Name == name {
			return owner.UID
		}
	}
	return ""
}

// Protect removes the finalizer from terminating PVCs that no pod uses. A terminating pod
// that its kubelet has ended uses no PVC, even while a finalizer keeps the pod.
func (c *Controllers) Protect() {
	for _, claim := range All[*corev1.PersistentVolumeClaim](c.Objects) {
		used := slices.ContainsFunc(All[*corev1.Pod](c.Objects), func(pod *corev1.Pod) bool {
			ended := pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
			return strings.HasSuffix(claim.Name, "-"+pod.Name) && !ended
		})
		if claim.DeletionTimestamp != nil && !used {
			c.Release(claim, inUse)
		}
	}
}
