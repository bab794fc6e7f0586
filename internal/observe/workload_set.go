package observe

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/protect"
)

// OfLeaderWorkerSet tells what a set wants as the API server sends it when nobody
// says of what type it is.
func OfLeaderWorkerSet(object any) (protect.Want, error) {
	found, ok := object.(*unstructured.Unstructured)
	if !ok {
		return protect.Want{}, fmt.Errorf("%T is no LeaderWorkerSet", object)
	}
	set := &lwsv1.LeaderWorkerSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(wantingPart(found.Object), set); err != nil {
		return protect.Want{}, fmt.Errorf("read leaderworkerset %s/%s: %w", found.GetNamespace(), found.GetName(), err)
	}
	return protect.OfLeaderWorkerSet(set, lws.LargestStarted(set)), nil
}

// wantingPart is what of a set tells which claims it wants. The definition may be another
// implementation's, whose schema lets through what Go types cannot hold, and amounts that
// take for ever to decode: one set would keep all others from being read.
func wantingPart(set map[string]any) map[string]any {
	spec := part(set["spec"], "replicas")
	all := member(set["spec"], "leaderWorkerTemplate")
	template := part(all, "size", "persistentVolumeClaimRetentionPolicy")
	for _, role := range []string{"leaderTemplate", "workerTemplate"} {
		if pod := member(all, role); pod != nil {
			volumes := partsOf(member(member(pod, "spec"), "volumes"), "name", "persistentVolumeClaim")
			template[role] = map[string]any{"spec": map[string]any{"volumes": volumes}}
		}
	}
	claims := partsOf(member(all, "volumeClaimTemplates"), "metadata")
	for _, claim := range claims {
		claim.(map[string]any)["metadata"] = part(member(claim, "metadata"), "name")
	}
	template["volumeClaimTemplates"], spec["leaderWorkerTemplate"] = claims, template
	status := part(set["status"], "replicas")
	status["started"] = partsOf(member(set["status"], "started"), "pods")
	return map[string]any{"metadata": set["metadata"], "spec": spec, "status": status}
}

// member is a field of an object, or nil.
func member(object any, field string) any {
	fields, _ := object.(map[string]any)
	return fields[field]
}

// part is an object with no other fields than these. Numbers are no greater than an int32.
func part(object any, fields ...string) map[string]any {
	kept := map[string]any{}
	for _, field := range fields {
		switch value := member(object, field).(type) {
		case nil:
		case int64:
			kept[field] = max(math.MinInt32, min(value, math.MaxInt32))
		default:
			kept[field] = value
		}
	}
	return kept
}

// partsOf are the objects of a list, each with no other fields than these.
func partsOf(list any, fields ...string) []any {
	objects, _ := list.([]any)
	kept := make([]any, len(objects))
	for i := range objects {
		kept[i] = part(objects[i], fields...)
	}
	return kept
}
