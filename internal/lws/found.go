package lws

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// systemPrefix begins the keys of every label and annotation of the API.
const systemPrefix = "leaderworkerset.sigs.k8s.io/"

// asFound keeps of a StatefulSet that another implementation made what no write
// may change without restarting its pods: the template, until the next revision.
// That revision says what the spec says; where the templates of the two differ
// all the same, another version made this one, or somebody's webhook did. Which
// templates are kept so is written on the StatefulSet, as the next look could not
// tell them from those that somebody spoilt since.
func (d *setDecision) asFound(desired *appsv1.StatefulSet) {
	delete(desired.Annotations, AsFoundAnnotationKey) // one on the set says nothing
	live := d.leaderStatefulSet()
	if live == nil {
		return
	}
	if d.otherClaims != "" || sameClaims(desired.Namespace, live.Spec.VolumeClaimTemplates, desired.Spec.VolumeClaimTemplates) {
		desired.Spec.VolumeClaimTemplates = live.Spec.VolumeClaimTemplates // one may never change, whatever its spelling
	}
	key := desired.Labels[lwsv1.RevisionKey]
	if !BearsName(live, d.Set.Name) || leadersKey(live) != key || live.Spec.Template.Labels[lwsv1.RevisionKey] != key {
		return
	}
	if !d.foundTemplate(live) || d.displaced(live) { // who is placed otherwise is replaced anyway
		return
	}
	if live.Annotations[AsFoundAnnotationKey] == key || !madeAlike(&live.Spec.Template, &desired.Spec.Template) {
		desired.Spec.Template = live.Spec.Template
		desired.Annotations[AsFoundAnnotationKey] = key
	}
}

// foundTemplate tells whether the template of a leader StatefulSet may be another
// implementation's: ours never wrote it, or left it as it was found.
func (d *setDecision) foundTemplate(live *appsv1.StatefulSet) bool {
	ours := live.Annotations[AppliedAnnotationKey] != "" || d.Applied.UID == live.UID
	return !ours || live.Annotations[AsFoundAnnotationKey] == leadersKey(live)
}

// madeAlike tells whether an apply of one template would leave the other as it is.
// What the API server filled in may be there or not; what the API itself puts in
// must be the same.
func madeAlike(live, desired *corev1.PodTemplateSpec) bool {
	return contains(live, desired) &&
		equality.Semantic.DeepEqual(systemKeys(live.Labels), systemKeys(desired.Labels)) &&
		equality.Semantic.DeepEqual(systemKeys(live.Annotations), systemKeys(desired.Annotations))
}

func systemKeys(all map[string]string) map[string]string {
	system := map[string]string{}
	for key, value := range all {
		if strings.HasPrefix(key, systemPrefix) {
			system[key] = value
		}
	}
	return system
}

// sameClaims tells whether the claim templates differ in their spelling at most:
// the server fills in a mode, and earlier versions left out what is implied.
func sameClaims(namespace string, one, other []corev1.PersistentVolumeClaim) bool {
	spelt := func(claims []corev1.PersistentVolumeClaim) []corev1.PersistentVolumeClaim {
		claims = claimTemplates(namespace, claims)
		for i := range claims {
			mode := orDefault(claims[i].Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
			claims[i].Spec.VolumeMode = &mode
		}
		return claims
	}
	return equality.Semantic.DeepEqual(spelt(one), spelt(other))
}

// leadersRun tells whether the leaders' template is what the live spec says, if
// need be as a version says it that did not yet write down a default policy.
func leadersRun(sts *appsv1.StatefulSet, desired *corev1.PodTemplateSpec) bool {
	const policy = lwsv1.SubGroupPolicyTypeAnnotationKey
	if _, written := sts.Spec.Template.Annotations[policy]; !written &&
		desired.Annotations[policy] == string(lwsv1.SubGroupPolicyTypeLeaderWorker) {
		delete(desired.Annotations, policy)
	}
	return contains(&sts.Spec.Template, desired)
}
