package admission

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// warnReservedKeys: in a template, most of these keys are overwritten; the rest
// are believed, and mislead. They are not refused, since a set that carries one
// may have run for years.
func warnReservedKeys(set *lwsv1.LeaderWorkerSet) []string {
	var warnings []string
	for _, template := range templatesInUse(set) {
		metadata := template.path.Child("metadata")
		for _, key := range reserved(template.Labels) {
			if key == lwsv1.SetNameLabelKey && template.Labels[key] == set.Name {
				continue
			}
			warnings = append(warnings, fmt.Sprintf("%s: is set by the operator; remove it from the template", metadata.Child("labels").Key(key)))
		}
		for _, key := range reserved(template.Annotations) {
			warnings = append(warnings, fmt.Sprintf("%s: %s", metadata.Child("annotations").Key(key), adviseAnnotation(key)))
		}
	}
	return warnings
}

func adviseAnnotation(key string) string {
	switch key {
	case lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey, lwsv1.RecreateGroupAfterStartAnnotationKey:
		return "belongs to the set; move it to metadata.annotations"
	}
	return "is set by the operator; remove it from the template"
}

// reservedKeys are the keys that are the operator's in a pod.
var reservedKeys = []string{
	lwsv1.SetNameLabelKey, lwsv1.GroupIndexLabelKey, lwsv1.WorkerIndexLabelKey, lwsv1.GroupUniqueHashLabelKey, lwsv1.RevisionKey,
	lwsv1.SubGroupIndexLabelKey, lwsv1.SubGroupUniqueHashLabelKey, lwsv1.ExclusiveKeyAnnotationKey,
	lwsv1.SubGroupExclusiveKeyAnnotationKey, lwsv1.RecreateGroupAfterStartAnnotationKey, lwsv1.SizeAnnotationKey,
	lwsv1.ReplicasAnnotationKey, lwsv1.LeaderPodNameAnnotationKey, lwsv1.SubGroupSizeAnnotationKey,
	lwsv1.SubGroupPolicyTypeAnnotationKey, lwsv1.SubdomainPolicyAnnotationKey, lwsv1.LeaderRequestsTPUsAnnotationKey,
}

func reserved(keys map[string]string) []string {
	var found []string
	for _, key := range reservedKeys {
		if _, present := keys[key]; present {
			found = append(found, key)
		}
	}
	return found
}

// warnOverwritten names what the user wrote and no pod will have.
func warnOverwritten(set *lwsv1.LeaderWorkerSet) []string {
	var warnings []string
	for _, template := range templatesInUse(set) {
		spec := template.path.Child("spec")
		if template.Spec.Hostname != "" {
			warnings = append(warnings, fmt.Sprintf("%s: is overwritten with the name of the pod", spec.Child("hostname")))
		}
		if template.Spec.Subdomain != "" {
			warnings = append(warnings, fmt.Sprintf("%s: is overwritten with the name of the Service; see spec.networkConfig.subdomainPolicy", spec.Child("subdomain")))
		}
		for _, name := range overwrittenEnv(template.Spec) {
			warnings = append(warnings, fmt.Sprintf("%s: environment variable %s is overwritten by the operator", spec, name))
		}
	}
	return warnings
}

func overwrittenEnv(spec corev1.PodSpec) []string {
	found := map[string]bool{}
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, variable := range container.Env {
			switch variable.Name {
			case lwsv1.LwsLeaderAddress, lwsv1.LwsGroupSize, lwsv1.LwsWorkerIndex:
				found[variable.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
