package lws

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Volume is the metadata of a PVC.
type Volume = metav1.PartialObjectMetadata

// NewVolume returns a PVC of which only the name is known.
func NewVolume(namespace, name string) *Volume {
	return &Volume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: string(identity.KindPersistentVolumeClaim)},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
	}
}

const (
	retainVolumes = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	deleteVolumes = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
)

// HasVolumes reports whether the pods of a set have PVCs of their own.
func HasVolumes(set *lwsv1.LeaderWorkerSet) bool {
	return len(set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates) > 0
}

// KeepsVolumes reports whether the PVCs of a set outlive it.
func KeepsVolumes(set *lwsv1.LeaderWorkerSet) bool {
	policy := set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy
	return policy == nil || policy.WhenDeleted != deleteVolumes
}

// keepsVolumesScaled reports whether the PVCs of a group that is scaled away stay.
func keepsVolumesScaled(set *lwsv1.LeaderWorkerSet) bool {
	policy := set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy
	return policy == nil || policy.WhenScaled != deleteVolumes
}

// IsWorkerVolume reports whether a PVC has the set's label and a name of a PVC of a
// worker of the group.
func IsWorkerVolume(volume *Volume, set *lwsv1.LeaderWorkerSet, leaderName string) bool {
	return workload.BearsName(volume, set.Name) && volumeOrdinal(volume.Name, set, leaderName) > 0
}

// IsLeaderVolume reports whether a PVC has the set's label and a name of a PVC of a
// leader of the set.
func IsLeaderVolume(volume *Volume, set *lwsv1.LeaderWorkerSet) bool {
	return workload.BearsName(volume, set.Name) && volumeOrdinal(volume.Name, set, set.Name) >= 0
}

// volumeOrdinal is the ordinal of the pod that a PVC is named after, if that is a pod of
// the given StatefulSet, else NoOrdinal.
func volumeOrdinal(name string, set *lwsv1.LeaderWorkerSet, statefulSet string) int {
	stem, ordinal := identity.ParentAndOrdinal(name)
	template, named := strings.CutSuffix(stem, "-"+statefulSet)
	if !named || identity.LeaderName(stem, ordinal) != name {
		return identity.NoOrdinal
	}
	if !slices.ContainsFunc(templateNames(set), func(known string) bool { return known == template }) {
		return identity.NoOrdinal
	}
	return ordinal
}

// WorkersOf are the worker StatefulSets that a leader controls, terminating or not.
func WorkersOf(g *Group, leader *corev1.Pod) []*appsv1.StatefulSet {
	all := slices.Concat(g.Workers.Members, g.Workers.Ghosts)
	return slices.DeleteFunc(all, func(sts *appsv1.StatefulSet) bool { return leader == nil || !metav1.IsControlledBy(sts, leader) })
}

func templateNames(set *lwsv1.LeaderWorkerSet) []string {
	templates := claimTemplatesOf(set)
	names := make([]string, len(templates))
	for i := range templates {
		names[i] = templates[i].Name
	}
	return names
}
