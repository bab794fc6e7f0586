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

// keptClaims has a set judged with the claims that its leader StatefulSet was made
// with, where the spec has come to say others. Admission refuses that, but another
// implementation took it, and every write of the StatefulSet was refused from then
// on. Claims are in the revision's data: those of the revision that stands are taken,
// so that claims alone are no new revision, and what else is new is rolled with them.
//
// It comes before all other rules: claims are also names.
func (d *setDecision) keptClaims() {
	sts := d.leaderStatefulSet()
	if sts == nil || sameClaims(d.Set.Namespace, sts.Spec.VolumeClaimTemplates, claimTemplatesOf(d.Set)) {
		return
	}
	stands := d.standingTemplate(sts)
	if sameClaims(d.Set.Namespace, claimTemplatesOf(stands), claimTemplatesOf(d.Set)) {
		return // somebody's webhook rewrites those of the StatefulSet
	}
	asked := d.Set
	d.Set = withClaims(asked, claimTemplatesOf(stands))
	d.live = d.Set
	waits := "nothing else waits for that"
	if lacks := lackingMount(asked, claimTemplatesOf(stands)); lacks != "" {
		d.Set, d.pending = stands, true
		waits = fmt.Sprintf("the template waits, since it mounts %q, which is in none of them", lacks)
	}
	d.otherClaims = fmt.Sprintf("spec.leaderWorkerTemplate.volumeClaimTemplates is not what statefulset %s was made with, "+
		"and a StatefulSet never takes other claims: groups old and new have those of the StatefulSet (%s); %s; %s",
		sts.Name, cmp.Or(strings.Join(templateNames(stands), ", "), "none"), waits, remedyClaims)
	d.plan.wait(Wait{Reason: because(CodeVolumeClaimsDiffer, d.otherClaims)})
}

// remedyClaims is both ways to have the claims of the spec and of the set alike.
const remedyClaims = "to put these into the spec, delete the set with --cascade=orphan, which leaves all pods running, and create it again with them; " +
	"to have those of the spec, delete the set and create it again, with whenDeleted Retain if data is to stay"

// standingTemplate is the set with the template that its leaders were last given. Of
// a revision that is lost only the claims are known, from the StatefulSet, unless it is
// the spec that is the revision.
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

// AsMade is a set whose claims have the names that those of its leader StatefulSet
// have: by these they are found, whatever the spec has come to say.
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

// lackingMount names what a container of the set mounts of a claim of the spec that is
// not among those kept. The pods of such a template could not be made.
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

// mounts tells whether a pod mounts what is called name and is no volume of its own.
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

// claimsConditions says that the claims of the spec are not those of the set, and that
// they are again.
func (d *setDecision) claimsConditions() []metav1.Condition {
	return d.toldWhile(CodeVolumeClaimsDiffer, d.otherClaims, "VolumeClaimsAsMade", claimsAsMade)
}

// claimsEvents tells of it once.
func (d *setDecision) claimsEvents() []action.Event {
	if d.otherClaims == "" || condition.IsTrue(d.Set.Status.Conditions, CodeVolumeClaimsDiffer) {
		return nil
	}
	return []action.Event{{Warning: true, Reason: CodeVolumeClaimsDiffer, Action: "Update", Note: d.otherClaims}}
}
