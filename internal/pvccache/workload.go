package pvccache

import (
	"fmt"
	"math"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// workload is what the cache keeps of an object that may want PVCs: which ones, and its controller.
// An object that wants none is kept as a link of chains.
type workload struct {
	metav1.ObjectMeta
	want  workloads.Want
	owner identity.Ref
}

// workloadOf returns a transform that reduces objects to workloads. A workload stays as it is.
func workloadOf(of wants) func(any) (any, error) {
	return func(object any) (any, error) {
		source, ok := object.(metav1.Object)
		if _, kept := object.(*workload); kept || !ok {
			return object, nil
		}
		want, err := of(object)
		if err != nil {
			return nil, err
		}
		w := &workload{want: want, ObjectMeta: metav1.ObjectMeta{
			Namespace: source.GetNamespace(), Name: source.GetName(), UID: source.GetUID(), ResourceVersion: source.GetResourceVersion(),
		}}
		if owner := metav1.GetControllerOfNoCopy(source); owner != nil {
			w.owner = identity.OwnerRef(source.GetNamespace(), *owner)
		}
		return w, nil
	}
}

// wants returns which PVCs an object wants.
type wants = func(object any) (workloads.Want, error)

// builtIn returns what a workload of a built-in kind wants.
func builtIn(object any) (workloads.Want, error) {
	if want, ok := workloads.BuiltIn(object); ok {
		return want, nil
	}
	return workloads.Want{}, fmt.Errorf("%T is not a workload", object)
}

// ofKind returns what a workload of a configured kind wants.
func ofKind(kind workloads.Kind) wants {
	return func(object any) (workloads.Want, error) {
		found, ok := object.(*unstructured.Unstructured)
		if !ok {
			return workloads.Want{}, fmt.Errorf("%T is not a %s", object, kind.Kind)
		}
		return kind.Of(found), nil
	}
}

// GroupSize is the number of pods in the largest group that a set has started.
type GroupSize func(*lwsv1.LeaderWorkerSet) int

// OfLeaderWorkerSet returns a function that reads which PVCs an untyped set wants.
func OfLeaderWorkerSet(started GroupSize) wants {
	return func(object any) (workloads.Want, error) {
		found, ok := object.(*unstructured.Unstructured)
		if !ok {
			return workloads.Want{}, fmt.Errorf("%T is not a LeaderWorkerSet", object)
		}
		set := wantingPart(found)
		return workloads.OfLeaderWorkerSet(set, started(set)), nil
	}
}

// wantingPart returns the fields of a set that decide which PVCs it wants. The CRD may be another
// implementation's, with values that our Go types cannot hold or that take forever to decode: one
// set would keep all others from being read.
func wantingPart(found *unstructured.Unstructured) *lwsv1.LeaderWorkerSet {
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: found.GetNamespace(), Name: found.GetName(), UID: found.GetUID(), ResourceVersion: found.GetResourceVersion(),
		CreationTimestamp: found.GetCreationTimestamp(), DeletionTimestamp: found.GetDeletionTimestamp(),
		Finalizers: found.GetFinalizers(), OwnerReferences: found.GetOwnerReferences(),
	}}
	spec, status := member(found.Object, "spec"), member(found.Object, "status")
	set.Spec.Replicas = number(spec, "replicas")
	if replicas := number(status, "replicas"); replicas != nil {
		set.Status.Replicas = *replicas
	}
	for _, group := range items(status, "started") {
		set.Status.Started = append(set.Status.Started, lwsv1.StartedGroup{Pods: text(group, "pods")})
	}
	from, template := member(spec, "leaderWorkerTemplate"), &set.Spec.LeaderWorkerTemplate
	template.Size = number(from, "size")
	if policy := member(from, "persistentVolumeClaimRetentionPolicy"); policy != nil {
		template.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.PersistentVolumeClaimRetentionPolicyType(text(policy, "whenDeleted")),
			WhenScaled:  appsv1.PersistentVolumeClaimRetentionPolicyType(text(policy, "whenScaled")),
		}
	}
	if leader := member(from, "leaderTemplate"); leader != nil {
		template.LeaderTemplate = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: volumes(leader)}}
	}
	template.WorkerTemplate.Spec.Volumes = volumes(member(from, "workerTemplate"))
	for _, claim := range items(from, "volumeClaimTemplates") {
		name := text(member(claim, "metadata"), "name")
		template.VolumeClaimTemplates = append(template.VolumeClaimTemplates, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return set
}

// volumes returns the volumes of a pod template that name a PVC.
func volumes(template any) (all []corev1.Volume) {
	for _, volume := range items(member(template, "spec"), "volumes") {
		if claim := text(member(volume, "persistentVolumeClaim"), "claimName"); claim != "" {
			all = append(all, corev1.Volume{Name: text(volume, "name"), VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}})
		}
	}
	return all
}

// member returns a field of an object, or nil.
func member(object any, field string) any {
	fields, _ := object.(map[string]any)
	return fields[field]
}

// text returns a field that is a string, or "".
func text(object any, field string) string {
	value, _ := member(object, field).(string)
	return value
}

// items returns a field that is a list, or nil.
func items(object any, field string) []any {
	list, _ := member(object, field).([]any)
	return list
}

// number returns a field as int32, or nil if it is absent. A field that is not an integer may
// mean any number, so PVCs of every ordinal are wanted.
func number(object any, field string) *int32 {
	switch value := member(object, field).(type) {
	case nil:
		return nil
	case int64:
		return new(int32(max(math.MinInt32, min(value, math.MaxInt32))))
	}
	return new(int32(math.MaxInt32))
}
