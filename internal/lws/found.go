package lws

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// systemPrefix begins the keys of every label and annotation of the API.
const systemPrefix = "leaderworkerset.sigs.k8s.io/"

// asFound keeps the template of a StatefulSet that another implementation made until the
// next revision: a write of the template would restart its pods. Its revision says what the
// spec says. The templates may still differ, because another version or a webhook wrote this
// one. An annotation on the StatefulSet records that the template is kept.
func (d *setDecision) asFound(desired *appsv1.StatefulSet) {
	delete(desired.Annotations, AsFoundAnnotationKey) // an annotation of the set is no record
	live := d.leaderStatefulSet()
	if live == nil {
		return
	}
	if d.otherClaims != "" || workload.SameClaimTemplates(desired.Namespace, live.Spec.VolumeClaimTemplates, desired.Spec.VolumeClaimTemplates) {
		desired.Spec.VolumeClaimTemplates = live.Spec.VolumeClaimTemplates // a StatefulSet refuses other templates, even with the same meaning
	}
	key := desired.Labels[lwsv1.RevisionKey]
	if !workload.BearsName(live, d.Set.Name) || leadersKey(live) != key || live.Spec.Template.Labels[lwsv1.RevisionKey] != key {
		return
	}
	if !d.foundTemplate(live) || d.displaced(live) { // a leader with another placement is replaced anyway
		return
	}
	if live.Annotations[AsFoundAnnotationKey] == key || !madeAlike(&live.Spec.Template, &desired.Spec.Template) {
		desired.Spec.Template = live.Spec.Template
		desired.Annotations[AsFoundAnnotationKey] = key
	}
}

// foundTemplate reports whether another implementation may have written the template of a
// leader StatefulSet: this operator never wrote it, or kept it as found.
func (d *setDecision) foundTemplate(live *appsv1.StatefulSet) bool {
	return live.Annotations[AppliedAnnotationKey] == "" || live.Annotations[AsFoundAnnotationKey] == leadersKey(live)
}

// madeAlike reports whether an apply of desired leaves live as it is. Defaults of the API
// server may be present or not. Labels and annotations of the API must be equal.
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
