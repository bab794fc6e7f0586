package lws

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// Volume is a volume claim as it is looked at: its metadata. What a claim holds is
// none of our business.
type Volume = metav1.PartialObjectMetadata

// NewVolume names a volume claim and says nothing else of it.
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

// HasVolumes tells whether the pods of a set have volume claims of their own.
func HasVolumes(set *lwsv1.LeaderWorkerSet) bool {
	return len(set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates) > 0
}

// KeepsVolumes tells whether the claims of a set outlive it.
func KeepsVolumes(set *lwsv1.LeaderWorkerSet) bool {
	policy := set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy
	return policy == nil || policy.WhenDeleted != deleteVolumes
}

// keepsVolumesScaled tells whether the claims of a group that is scaled away stay.
func keepsVolumesScaled(set *lwsv1.LeaderWorkerSet) bool {
	policy := set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy
	return policy == nil || policy.WhenScaled != deleteVolumes
}

// workerRetention is what a worker StatefulSet says of its claims, if the set says
// anything: that it has no part in their end. A worker StatefulSet ends with every
// restart of its group, and must take no claim with it.
func workerRetention(set *lwsv1.LeaderWorkerSet) *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy {
	if set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy == nil {
		return nil
	}
	return &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: retainVolumes, WhenScaled: retainVolumes}
}

// IsWorkerVolume tells whether a claim bears the set's label and a name that a
// worker of the group gives its claims.
func IsWorkerVolume(volume *Volume, set *lwsv1.LeaderWorkerSet, leaderName string) bool {
	return BearsName(volume, set.Name) && volumeOrdinal(volume.Name, set, leaderName) > 0
}

// IsLeaderVolume tells whether a claim bears the set's label and a name that a
// leader of the set gives its claims.
func IsLeaderVolume(volume *Volume, set *lwsv1.LeaderWorkerSet) bool {
	return BearsName(volume, set.Name) && volumeOrdinal(volume.Name, set, set.Name) >= 0
}

// volumeOrdinal is the ordinal of the pod that a claim is named after, if that is a
// pod of a StatefulSet of the given name, else NoOrdinal.
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

func templateNames(set *lwsv1.LeaderWorkerSet) []string {
	templates := claimTemplatesOf(set)
	names := make([]string, len(templates))
	for i := range templates {
		names[i] = templates[i].Name
	}
	return names
}
