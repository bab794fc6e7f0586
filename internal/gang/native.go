package gang

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// IncarnationLength is how many random characters a leader adds to the name of its PodGroups.
const IncarnationLength = 5

// HandTo writes onto a template of leaders which Workload its pods belong to.
func HandTo(template *metav1.ObjectMeta, set *lwsv1.LeaderWorkerSet) {
	metav1.SetMetaDataAnnotation(template, lwsv1.WorkloadSchedulingAnnotationKey, string(LevelOf(set.Spec.Scheduling)))
	metav1.SetMetaDataAnnotation(template, lwsv1.WorkloadNameAnnotationKey, WorkloadName(set))
}

// Follow writes onto a template of workers what their leader says.
func Follow(template *metav1.ObjectMeta, leader metav1.Object) {
	for _, key := range []string{lwsv1.WorkloadSchedulingAnnotationKey, lwsv1.WorkloadNameAnnotationKey} {
		if value := leader.GetAnnotations()[key]; value != "" {
			metav1.SetMetaDataAnnotation(template, key, value)
		}
	}
}

// IsHanded reports whether a pod belongs to a Workload.
func IsHanded(pod metav1.Object) bool {
	annotations := pod.GetAnnotations()
	return annotations[lwsv1.WorkloadSchedulingAnnotationKey] != "" && annotations[lwsv1.WorkloadNameAnnotationKey] != ""
}

// WorkloadOf is the name of the Workload that a pod, or a template of pods, belongs to, with what its leader added.
func WorkloadOf(pod metav1.Object) string {
	return pod.GetAnnotations()[lwsv1.WorkloadNameAnnotationKey]
}

// Join puts a pod that belongs to a Workload into its PodGroup. A leader makes the name of the
// PodGroup its own first: the PodGroup of its predecessor may still be there, and terminate.
// incarnation is random. The key of a group, if it has one, is in the name, and no other leader has it.
func Join(pod *corev1.Pod, incarnation string) {
	name := WorkloadOf(pod)
	if isLeader(pod) && levelOf(pod) != SetLevel && !hasKey(pod) && !strings.Contains(name, ".") {
		pod.Annotations[lwsv1.WorkloadNameAnnotationKey] = name + "." + incarnation
	}
	pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new(PodGroupName(pod))}
}

// Leave takes a pod from its Workload.
func Leave(pod *corev1.Pod) {
	delete(pod.Annotations, lwsv1.WorkloadSchedulingAnnotationKey)
	delete(pod.Annotations, lwsv1.WorkloadNameAnnotationKey)
}

// levelOf is the level that a pod was handed over at. An early form of the annotation means replica.
func levelOf(pod metav1.Object) Level {
	if level := Level(pod.GetAnnotations()[lwsv1.WorkloadSchedulingAnnotationKey]); level != "true" {
		return level
	}
	return ReplicaLevel
}

func isLeader(pod metav1.Object) bool { return pod.GetLabels()[lwsv1.WorkerIndexLabelKey] == "0" }

func hasKey(pod metav1.Object) bool {
	labels := pod.GetLabels()
	key := labels[lwsv1.GroupUniqueHashLabelKey]
	return key != "" && key == labels[lwsv1.GroupIndexLabelKey]
}

// PodGroupName is the name of the PodGroup of a pod that belongs to a Workload.
func PodGroupName(pod metav1.Object) string {
	role := lwsv1.WorkerRole
	if isLeader(pod) {
		role = lwsv1.LeaderRole
	}
	return podGroupName(pod, levelOf(pod), role)
}

func podGroupName(pod metav1.Object, level Level, role string) string {
	labels, workload := pod.GetLabels(), WorkloadOf(pod)
	group, key := labels[lwsv1.GroupIndexLabelKey], labels[lwsv1.RevisionKey]
	switch level {
	case SetLevel:
		return workload + "-lws"
	case RoleLevel:
		return workload + "-" + group + "-" + role + "-" + key
	}
	return workload + "-" + group + "-" + key
}

// SetPodGroupName is the name of the PodGroup of all pods of a set.
func SetPodGroupName(set metav1.Object) string { return WorkloadName(set) + "-lws" }

// SetPodGroup is the PodGroup of all pods of a set. It waits for minCount pods, if it waits.
func SetPodGroup(set *lwsv1.LeaderWorkerSet, workload metav1.Object, minCount int32) (*unstructured.Unstructured, error) {
	return podGroup(set, workload, UnitsOf(set)[0], SetPodGroupName(set), minCount, map[string]string{
		lwsv1.SetNameLabelKey: set.Name, lwsv1.SchedulingLevelLabelKey: string(SetLevel),
	})
}

// GroupPodGroups are the PodGroups of a leader and its workers: none if the set has one for all pods.
// size is that of the leader's group.
func GroupPodGroups(set *lwsv1.LeaderWorkerSet, workload metav1.Object, leader *corev1.Pod, size int32) (all []*unstructured.Unstructured, err error) {
	level := levelOf(leader)
	if level == SetLevel {
		return nil, nil
	}
	for _, unit := range Units(set.Spec.Scheduling, level, 1, size) {
		if unit.Members < 1 {
			continue
		}
		labels := map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.SchedulingLevelLabelKey: string(level)}
		for _, key := range []string{lwsv1.GroupIndexLabelKey, lwsv1.RevisionKey} {
			labels[key] = leader.Labels[key]
		}
		if level == RoleLevel {
			labels[lwsv1.RoleLabelKey] = unit.Name
		}
		object, err := podGroup(set, workload, unit, podGroupName(leader, level, unit.Name), unit.Members, labels)
		if err != nil {
			return nil, err
		}
		all = append(all, object)
	}
	return all, nil
}

// PodGroupNames are the names that GroupPodGroups gives, for a group of any size.
func PodGroupNames(leader metav1.Object) []string {
	switch level := levelOf(leader); level {
	case SetLevel:
		return nil
	case RoleLevel:
		return []string{podGroupName(leader, level, lwsv1.LeaderRole), podGroupName(leader, level, lwsv1.WorkerRole)}
	default:
		return []string{podGroupName(leader, level, "")}
	}
}

// InUse are the names of the PodGroups that pods are in, and of those that leaders need for their workers.
func InUse(pods []*corev1.Pod) map[string]bool {
	names := map[string]bool{}
	for _, pod := range pods {
		if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
			names[*group.PodGroupName] = true
		}
		if !IsHanded(pod) {
			continue
		}
		names[PodGroupName(pod)] = true
		if isLeader(pod) && pod.DeletionTimestamp == nil {
			for _, name := range PodGroupNames(pod) {
				names[name] = true
			}
		}
	}
	return names
}

func podGroup(set *lwsv1.LeaderWorkerSet, workload metav1.Object, unit Unit, name string, minCount int32, labels map[string]string) (*unstructured.Unstructured, error) {
	unit.Members = minCount
	builder := unit.Builder(set, nil)
	if _, err := builder.BuildWorkload(); err != nil {
		return nil, err
	}
	object, err := builder.NewPodGroup(name, unit.Name)
	if err != nil {
		return nil, err
	}
	object.Labels = labels
	object.OwnerReferences = append(object.OwnerReferences, metav1.OwnerReference{
		APIVersion: WorkloadKind.GroupVersion().String(), Kind: WorkloadKind.Kind, Name: workload.GetName(), UID: workload.GetUID(),
	})
	return untyped(object, NativePodGroupKind)
}

// MinCount is how many pods the PodGroup of a set waits for: those that the set asks for, and never
// more than can exist now. sizes are those of the groups that have a leader in service, or 0 for one that is stopped. There
// is room for further ones, of the least size that a group has: a leader may come at any of them.
func MinCount(replicas, size int32, sizes []int32, room, least int32) int32 {
	can := int64(max(0, room)) * int64(least)
	for _, each := range sizes {
		can += int64(each)
	}
	return int32(max(1, min(int64(product(replicas, size)), can)))
}

// IsOutdated reports whether labels or counts of a Workload or PodGroup are not those wanted. A patch
// can change nothing else.
func IsOutdated(have, want *unstructured.Unstructured) bool {
	return !labels.SelectorFromSet(want.GetLabels()).Matches(labels.Set(have.GetLabels())) || !slices.Equal(counts(have), counts(want))
}

// Part is what of a Workload or PodGroup may be patched: its labels, and its counts of pods.
func Part(want *unstructured.Unstructured) *unstructured.Unstructured {
	part := &unstructured.Unstructured{}
	part.SetGroupVersionKind(want.GroupVersionKind())
	part.SetLabels(want.GetLabels())
	spec := map[string]any{}
	var templates []any
	for i, template := range templatesOf(want) {
		count := counts(want)[i]
		if count == 0 {
			continue
		}
		policy := map[string]any{"gang": map[string]any{"minCount": count}}
		if name, isTemplate := template["name"]; isTemplate {
			templates = append(templates, map[string]any{"name": name, "schedulingPolicy": policy})
		} else {
			spec["schedulingPolicy"] = policy
		}
	}
	if len(templates) > 0 {
		spec["podGroupTemplates"] = templates
	}
	if len(spec) > 0 {
		part.Object["spec"] = spec
	}
	return part
}

// Dropped returns a field of the spec that an object lacks as a whole, with the feature gate of the API server that
// would keep it, or nothing.
func Dropped(have, want *unstructured.Unstructured) (path, gate string) {
	has := templatesOf(have)
	for i, template := range templatesOf(want) {
		for _, g := range gated {
			if template[g.field] == nil || i >= len(has) || has[i][g.field] != nil {
				continue
			}
			if want.GetKind() == WorkloadKind.Kind {
				return fmt.Sprintf("spec.podGroupTemplates[%d].%s", i, g.field), g.gate
			}
			return "spec." + g.field, g.gate
		}
	}
	return "", ""
}

// gated are the fields that an API server drops without another feature gate.
var gated = []struct{ field, gate string }{
	{"schedulingConstraints", "TopologyAwareWorkloadScheduling"},
	{"resourceClaims", "DRAWorkloadResourceClaims"},
}

// HasOtherMembers reports whether a union in a Workload or PodGroup has another member than wanted.
func HasOtherMembers(have, want *unstructured.Unstructured) bool {
	has := templatesOf(have)
	for i, template := range templatesOf(want) {
		for _, union := range []string{"schedulingPolicy", "disruptionMode"} {
			wanted, _ := template[union].(map[string]any)
			for member := range wanted {
				if i >= len(has) {
					return true
				}
				if _, isSame, _ := unstructured.NestedFieldNoCopy(has[i], union, member); !isSame {
					return true
				}
			}
		}
	}
	return false
}

// Fixed is the spec of a Workload or PodGroup with zeros for its counts of pods: no patch can change it.
func Fixed(object *unstructured.Unstructured) any {
	fixed := object.DeepCopy()
	for _, template := range templatesOf(fixed) {
		if _, isGang, _ := unstructured.NestedMap(template, "schedulingPolicy", "gang"); isGang {
			_ = unstructured.SetNestedField(template, int64(0), "schedulingPolicy", "gang", "minCount") // it has that form
		}
	}
	return fixed.Object["spec"]
}

// counts are the numbers of pods that the templates of a Workload, or a PodGroup, wait for. One that
// does not wait has 0.
func counts(object *unstructured.Unstructured) (all []int64) {
	for _, template := range templatesOf(object) {
		count, _, _ := unstructured.NestedInt64(template, "schedulingPolicy", "gang", "minCount")
		all = append(all, count)
	}
	return all
}

// templatesOf are the templates of a Workload. A PodGroup is one itself.
func templatesOf(object *unstructured.Unstructured) (all []map[string]any) {
	spec, _ := object.Object["spec"].(map[string]any)
	templates, isWorkload := spec["podGroupTemplates"].([]any)
	if !isWorkload {
		return []map[string]any{spec}
	}
	for _, template := range templates {
		if template, ok := template.(map[string]any); ok {
			all = append(all, template)
		}
	}
	return all
}
