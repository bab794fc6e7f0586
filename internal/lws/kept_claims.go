package lws

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
)

// keepClaims replaces volumeClaimTemplates that the leader StatefulSet does not have. Admission
// refuses such a change, but another implementation allowed it, and the API server refuses
// every later write of the StatefulSet. The templates are part of the revision's data: with
// those of the revision that stands, they alone are no new revision.
func (d *setDecision) keepClaims() effectiveSpec {
	sts := d.leaderStatefulSet()
	if sts == nil || sameClaims(d.Set.Namespace, sts.Spec.VolumeClaimTemplates, claimTemplatesOf(d.Set)) {
		return effectiveSpec{set: d.Set, live: d.Set}
	}
	stands := d.standingTemplate(sts)
	if sameClaims(d.Set.Namespace, claimTemplatesOf(stands), claimTemplatesOf(d.Set)) {
		return effectiveSpec{set: d.Set, live: d.Set} // a webhook rewrites those of the StatefulSet
	}
	live := withClaims(d.Set, claimTemplatesOf(stands))
	kept := effectiveSpec{set: live, live: live}
	waits := "nothing else waits for that"
	if lacks := lackingMount(d.Set, claimTemplatesOf(stands)); lacks != "" {
		kept.set, kept.pending = stands, true
		waits = fmt.Sprintf("the template waits, since it mounts %q, which is in none of them", lacks)
	}
	kept.otherClaims = fmt.Sprintf("spec.leaderWorkerTemplate.volumeClaimTemplates is not what statefulset %s was made with, "+
		"and a StatefulSet never takes other claims: groups old and new have those of the StatefulSet (%s); %s; %s",
		sts.Name, cmp.Or(strings.Join(templateNames(stands), ", "), "none"), waits, remedyClaims)
	return kept
}

// remedyClaims names both ways to make the templates of the spec and of the set equal.
const remedyClaims = "to put these into the spec, delete the set with --cascade=orphan, which leaves all pods running, and create it again with them; " +
	"to have those of the spec, delete the set and create it again, with whenDeleted Retain if data is to stay"

// standingTemplate is the set with the template that its leaders were last given. Without
// its revision only the volumeClaimTemplates are known, from the StatefulSet, unless the spec
// hashes to its key.
func (d *setDecision) standingTemplate(sts *appsv1.StatefulSet) *lwsv1.LeaderWorkerSet {
	key := leadersKey(sts)
	if current := d.revisionWithKey(key); current != nil {
		if restored, err := Restore(d.Set, current.Data.Raw); err == nil {
			return restored
		}
	}
	if data, err := RevisionData(d.Set); err == nil && RevisionKey(data) == key {
		return d.Set
	}
	return withClaims(d.Set, sts.Spec.VolumeClaimTemplates)
}

// AsMade is a set with the volumeClaimTemplates of its leader StatefulSet if their names
// differ: PVCs are found by these names.
func AsMade(set *lwsv1.LeaderWorkerSet, leaders *appsv1.StatefulSet) *lwsv1.LeaderWorkerSet {
	named := func(a, b corev1.PersistentVolumeClaim) bool { return a.Name == b.Name }
	if leaders == nil || slices.EqualFunc(leaders.Spec.VolumeClaimTemplates, claimTemplatesOf(set), named) {
		return set
	}
	return withClaims(set, leaders.Spec.VolumeClaimTemplates)
}

func claimTemplatesOf(set *lwsv1.LeaderWorkerSet) []corev1.PersistentVolumeClaim {
	return set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates
}

func withClaims(set *lwsv1.LeaderWorkerSet, claims []corev1.PersistentVolumeClaim) *lwsv1.LeaderWorkerSet {
	other := *set
	other.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = claims
	return &other
}

// lackingMount names a volumeClaimTemplate of the spec that a container mounts and that is not
// among those kept, or is empty. The API server refuses pods of such a template.
func lackingMount(set *lwsv1.LeaderWorkerSet, kept []corev1.PersistentVolumeClaim) string {
	template := &set.Spec.LeaderWorkerTemplate
	for _, claim := range template.VolumeClaimTemplates {
		if slices.ContainsFunc(kept, func(k corev1.PersistentVolumeClaim) bool { return k.Name == claim.Name }) {
			continue
		}
		if mounts(&template.WorkerTemplate.Spec, claim.Name) ||
			template.LeaderTemplate != nil && mounts(&template.LeaderTemplate.Spec, claim.Name) {
			return claim.Name
		}
	}
	return ""
}

// mounts reports whether a pod mounts name, which is no volume of its spec.
func mounts(pod *corev1.PodSpec, name string) bool {
	if slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
		return false
	}
	return slices.ContainsFunc(slices.Concat(pod.InitContainers, pod.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == name }) ||
			slices.ContainsFunc(c.VolumeDevices, func(v corev1.VolumeDevice) bool { return v.Name == name })
	})
}

const claimsAsMade = "the claims of the spec are those that the set was made with"

// claimsConditions says that the volumeClaimTemplates of the spec differ from those of the
// set, and that they are equal again.
func (d *setDecision) claimsConditions() []metav1.Condition {
	return d.toldWhile(CodeVolumeClaimsDiffer, CodeVolumeClaimsDiffer, d.otherClaims, "VolumeClaimsAsMade", claimsAsMade)
}

// claimsEvents reports the difference once.
func (d *setDecision) claimsEvents() []action.Event {
	if d.otherClaims == "" || condition.IsTrue(d.Set.Status.Conditions, CodeVolumeClaimsDiffer) {
		return nil
	}
	return []action.Event{{Warning: true, Reason: CodeVolumeClaimsDiffer, Action: "Update", Note: d.otherClaims}}
}
