package admission

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// surprises are the rules about what is legal and surely unwanted.
var surprises = []func(*lwsv1.LeaderWorkerSet) []string{
	warnLongName,
	warnTopologies,
	warnReservedKeys,
	warnOverwritten,
	warnDroppedFromClaims,
	warnGangScheduler,
}

// Warnings returns what about set will not do what it seems to. old is nil for a new set. An update
// repeats no warning of the set before it: the same manifest may be applied every minute.
//
// Each warning is short enough for the API server, which cuts at 256 characters.
func Warnings(set, old *lwsv1.LeaderWorkerSet) []string {
	warnings := warn(set)
	if old == nil {
		return warnings
	}
	told := warn(old)
	warnings = slices.DeleteFunc(warnings, func(w string) bool { return slices.Contains(told, w) })
	return append(warnings, warnTopologyChange(set, old)...)
}

func warn(set *lwsv1.LeaderWorkerSet) []string {
	var warnings []string
	for _, w := range surprises {
		warnings = append(warnings, w(set)...)
	}
	return warnings
}

// revisionHashLength is the longest hash the StatefulSet controller appends: ten
// digits, each replaced by one character. Shorter ones happen, which is why a
// name that is too long is not refused: it may be lucky.
const revisionHashLength = 10

// warnLongName counts the characters of the longest label the StatefulSet
// controller puts on pods: the name of their StatefulSet, a dash, a hash. The
// API server refuses a pod with a label value of more than 63 characters.
func warnLongName(set *lwsv1.LeaderWorkerSet) []string {
	limit := validation.LabelValueMaxLength - len("-") - revisionHashLength - groupSuffixLength(set)
	if len(set.Name) <= limit {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: has %d characters: pods may be refused, since their labels hold it together with group index and revision hash; use at most %d",
		len(set.Name), limit)}
}

// groupSuffixLength is what the name of the last group's worker StatefulSet adds
// to that of the set. Without workers there is none.
func groupSuffixLength(set *lwsv1.LeaderWorkerSet) int {
	if workload.Size(set) < 2 {
		return 0
	}
	_, surge := workload.Budget(set)
	last := max(int64(workload.Replicas(set))+int64(surge)-1, 0)
	return len("-") + len(strconv.FormatInt(last, 10))
}

func warnTopologies(set *lwsv1.LeaderWorkerSet) []string {
	var warnings []string
	for _, key := range topologyKeys {
		if topology, present := set.Annotations[key]; present && topology == "" {
			warnings = append(warnings, fmt.Sprintf("metadata.annotations[%s]: is empty and places nothing; name a node label, or remove it", key))
		}
	}
	group, subgroup := set.Annotations[lwsv1.ExclusiveKeyAnnotationKey], set.Annotations[lwsv1.SubGroupExclusiveKeyAnnotationKey]
	if group != "" && group == subgroup {
		warnings = append(warnings, fmt.Sprintf("metadata.annotations[%s]: names the same node label as exclusive-topology and has no effect; name a narrower one", lwsv1.SubGroupExclusiveKeyAnnotationKey))
	}
	return warnings
}

// warnTopologyChange: an annotation is quickly changed, and here all groups pay for
// it.
func warnTopologyChange(set, old *lwsv1.LeaderWorkerSet) []string {
	var warnings []string
	for _, key := range topologyKeys {
		if set.Annotations[key] != old.Annotations[key] {
			warnings = append(warnings, fmt.Sprintf("metadata.annotations[%s]: changing it replaces every group, within maxUnavailable and from the partition on", key))
		}
	}
	return warnings
}

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

// warnGangScheduler warns of pods with another scheduler: only Volcano reads PodGroups.
func warnGangScheduler(set *lwsv1.LeaderWorkerSet) []string {
	name := set.Annotations[lwsv1.GangSchedulerAnnotationKey]
	if name != gang.Volcano {
		return nil
	}
	var warnings []string
	for _, template := range templatesInUse(set) {
		if template.Spec.SchedulerName != name {
			warnings = append(warnings, fmt.Sprintf("%s: is not %q, so these pods are placed one by one", template.path.Child("spec", "schedulerName"), name))
		}
	}
	return warnings
}
