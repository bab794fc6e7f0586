package pvccache

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/pvc"
)

// GroupSize is the number of pods in the largest group that a set has started.
type GroupSize func(*lwsv1.LeaderWorkerSet) int

// OfLeaderWorkerSet returns a function that reads which PVCs an untyped set wants.
func OfLeaderWorkerSet(started GroupSize) func(any) (pvc.Want, error) {
	return func(object any) (pvc.Want, error) { return ofLeaderWorkerSet(object, started) }
}

func ofLeaderWorkerSet(object any, started GroupSize) (pvc.Want, error) {
	found, ok := object.(*unstructured.Unstructured)
	if !ok {
		return pvc.Want{}, fmt.Errorf("%T is no LeaderWorkerSet", object)
	}
	set := &lwsv1.LeaderWorkerSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(wantingPart(found.Object), set); err != nil {
		return pvc.Want{}, fmt.Errorf("read leaderworkerset %s/%s: %w", found.GetNamespace(), found.GetName(), err)
	}
	return pvc.OfLeaderWorkerSet(set, started(set)), nil
}

// wantingPart is what of a set tells which claims it wants. The definition may be another
// implementation's, whose schema lets through what Go types cannot hold, and amounts that
// take for ever to decode: one set would keep all others from being read.
func wantingPart(set map[string]any) map[string]any {
	spec := numbers(set["spec"], "replicas")
	all := member(set["spec"], "leaderWorkerTemplate")
	template := numbers(all, "size")
	template["persistentVolumeClaimRetentionPolicy"] = texts(member(all, "persistentVolumeClaimRetentionPolicy"), "whenDeleted", "whenScaled")
	for _, role := range []string{"leaderTemplate", "workerTemplate"} {
		if pod := member(all, role); pod != nil {
			template[role] = map[string]any{"spec": map[string]any{"volumes": each(member(member(pod, "spec"), "volumes"), namingVolume)}}
		}
	}
	template["volumeClaimTemplates"] = each(member(all, "volumeClaimTemplates"), func(claim any) map[string]any {
		return map[string]any{"metadata": texts(member(claim, "metadata"), "name")}
	})
	spec["leaderWorkerTemplate"] = template
	status := numbers(set["status"], "replicas")
	status["started"] = each(member(set["status"], "started"), func(group any) map[string]any { return texts(group, "pods") })
	return map[string]any{"metadata": set["metadata"], "spec": spec, "status": status}
}

// namingVolume is a volume of a pod with nothing but the claim that it names.
func namingVolume(volume any) map[string]any {
	kept := texts(volume, "name")
	if claim := texts(member(volume, "persistentVolumeClaim"), "claimName"); len(claim) > 0 {
		kept["persistentVolumeClaim"] = claim
	}
	return kept
}

// member is a field of an object, or nil.
func member(object any, field string) any {
	fields, _ := object.(map[string]any)
	return fields[field]
}

// texts are those of the fields of an object that are texts.
func texts(object any, fields ...string) map[string]any {
	kept := map[string]any{}
	for _, field := range fields {
		if text, ok := member(object, field).(string); ok {
			kept[field] = text
		}
	}
	return kept
}

// numbers are those of the fields of an object that are there, no greater than an int32.
// What is no whole number may be any: claims of whatever ordinal are wanted.
func numbers(object any, fields ...string) map[string]any {
	kept := map[string]any{}
	for _, field := range fields {
		switch number := member(object, field).(type) {
		case nil:
		case int64:
			kept[field] = max(math.MinInt32, min(number, math.MaxInt32))
		default:
			kept[field] = int64(math.MaxInt32)
		}
	}
	return kept
}

// each is a list of what is kept of the members of another one.
func each(list any, keep func(any) map[string]any) []any {
	members, _ := list.([]any)
	kept := make([]any, len(members))
	for i := range members {
		kept[i] = keep(members[i])
	}
	return kept
}
