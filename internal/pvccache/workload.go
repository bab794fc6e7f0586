package pvccache

import (
	"fmt"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

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
		w := &workload{ObjectMeta: bareMeta(source), want: internWant(want)}
		if owner := metav1.GetControllerOfNoCopy(source); owner != nil {
			w.owner = ownerKept(source.GetNamespace(), owner)
		}
		return w, nil
	}
}

func ownerKept(namespace string, owner *metav1.OwnerReference) identity.Ref {
	return identity.Ref{
		Kind: identity.Kind(one(owner.Kind)), APIVersion: one(owner.APIVersion),
		Namespace: one(namespace), Name: one(owner.Name), UID: owner.UID,
	}
}

// bareMeta is the metadata that a cache needs.
func bareMeta(object metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: one(object.GetNamespace()), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
	}
}

// internWant makes workloads share equal strings.
func internWant(want workloads.Want) workloads.Want {
	want.Workload.Kind, want.Workload.APIVersion = identity.Kind(one(string(want.Workload.Kind))), one(want.Workload.APIVersion)
	want.Workload.Namespace, want.Released, want.Idle = one(want.Workload.Namespace), one(want.Released), one(want.Idle)
	want.Named = internMap(want.Named)
	for i := range want.Series {
		want.Series[i].Path = one(want.Series[i].Path)
	}
	return want
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

// Indexes of workloads.
const (
	indexNamed  = "named"  // by PVCs that a pod template names
	indexSeries = "series" // by prefixes of the names of numbered PVCs
)

func namedBy(object any) ([]string, error) {
	w, ok := object.(*workload)
	if !ok {
		return nil, nil
	}
	keys := make([]string, 0, len(w.want.Named))
	for claim := range w.want.Named {
		keys = append(keys, w.Namespace+"/"+claim)
	}
	return keys, nil
}

func seriesOf(object any) ([]string, error) {
	w, ok := object.(*workload)
	if !ok {
		return nil, nil
	}
	var keys []string
	for _, series := range w.want.Series {
		keys = append(keys, w.Namespace+"/"+series.Prefix)
	}
	return keys, nil
}

// GroupSize is the number of pods in the largest group that a set has started.
type GroupSize func(*lwsv1.LeaderWorkerSet) int

// OfLeaderWorkerSet returns a function that reads which PVCs an untyped set wants.
func OfLeaderWorkerSet(started GroupSize) wants {
	return func(object any) (workloads.Want, error) { return ofLeaderWorkerSet(object, started) }
}

func ofLeaderWorkerSet(object any, started GroupSize) (workloads.Want, error) {
	found, ok := object.(*unstructured.Unstructured)
	if !ok {
		return workloads.Want{}, fmt.Errorf("%T is not a LeaderWorkerSet", object)
	}
	set := &lwsv1.LeaderWorkerSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(wantingPart(found.Object), set); err != nil {
		return workloads.Want{}, fmt.Errorf("read leaderworkerset %s/%s: %w", found.GetNamespace(), found.GetName(), err)
	}
	return workloads.OfLeaderWorkerSet(set, started(set)), nil
}

// wantingPart returns the fields of a set that decide which PVCs it wants. The CRD may be another
// implementation's, with values that our Go types cannot hold or that take forever to decode: one
// set would keep all others from being read.
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

// namingVolume returns a volume of a pod with the PVC that it names, and no more.
func namingVolume(volume any) map[string]any {
	kept := texts(volume, "name")
	if claim := texts(member(volume, "persistentVolumeClaim"), "claimName"); len(claim) > 0 {
		kept["persistentVolumeClaim"] = claim
	}
	return kept
}

// member returns a field of an object, or nil.
func member(object any, field string) any {
	fields, _ := object.(map[string]any)
	return fields[field]
}

// texts returns those fields of an object that are strings.
func texts(object any, fields ...string) map[string]any {
	kept := map[string]any{}
	for _, field := range fields {
		if text, ok := member(object, field).(string); ok {
			kept[field] = text
		}
	}
	return kept
}

// numbers returns those fields of an object that exist, as int32. A field that is not an integer
// may mean any number, so PVCs of every ordinal are wanted.
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

// each returns a list of what is kept of the items of another one.
func each(list any, keep func(any) map[string]any) []any {
	members, _ := list.([]any)
	kept := make([]any, len(members))
	for i := range members {
		kept[i] = keep(members[i])
	}
	return kept
}
