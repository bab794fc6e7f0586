package admission

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// warnDroppedFromClaims names what a claim template says and no claim will have.
// One warning is for all templates, however many there are.
func warnDroppedFromClaims(set *lwsv1.LeaderWorkerSet) []string {
	dropped := make([]bool, len(claimExtras))
	for _, template := range set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates {
		for i, extra := range claimExtras {
			dropped[i] = dropped[i] || extra.set(&template)
		}
	}
	var names []string
	for i, extra := range claimExtras {
		if dropped[i] {
			names = append(names, extra.name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: the claims will not have %s: only name, accessModes, storageClassName, volumeMode and resources are used",
		claimsPath, strings.Join(names, ", "))}
}

// claimExtras are the parts of a claim template that reach no StatefulSet.
var claimExtras = []struct {
	name string
	set  func(*corev1.PersistentVolumeClaim) bool
}{
	{"labels", func(c *corev1.PersistentVolumeClaim) bool { return len(c.Labels) > 0 }},
	{"annotations", func(c *corev1.PersistentVolumeClaim) bool { return len(c.Annotations) > 0 }},
	{"selector", func(c *corev1.PersistentVolumeClaim) bool { return c.Spec.Selector != nil }},
	{"volumeName", func(c *corev1.PersistentVolumeClaim) bool { return c.Spec.VolumeName != "" }},
	{"dataSource", func(c *corev1.PersistentVolumeClaim) bool { return c.Spec.DataSource != nil }},
	{"dataSourceRef", func(c *corev1.PersistentVolumeClaim) bool { return c.Spec.DataSourceRef != nil }},
	{"volumeAttributesClassName", func(c *corev1.PersistentVolumeClaim) bool { return c.Spec.VolumeAttributesClassName != nil }},
}
