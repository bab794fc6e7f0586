package workloads

import (
	"fmt"
	"math"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// GroupSize is the number of pods in the largest group that a set has started.
type GroupSize func(*lwsv1.LeaderWorkerSet) int

// OfLeaderWorkerSet is the PVCs of all groups, by the set's own spec: workers' StatefulSets are gone while a group
// restarts, and the PVCs must stay. The set is read field by field. Its CRD may be another implementation's, with
// values that our Go types cannot hold or that take forever to decode: one set would keep all others from being read.
//
// Groups beyond the replicas, of a surge or a scale-down, count until they are gone. Workers
// beyond the size count while a group has them.
func (started GroupSize) OfLeaderWorkerSet(untyped any) Want {
	set := untyped.(*unstructured.Unstructured)
	w, object := newWant(identity.KindLeaderWorkerSet, lwsv1.GroupVersion.String(), set), set.Object
	const template = "spec.leaderWorkerTemplate"
	groups, size := number(first(at(object, "spec.replicas")), 1), number(first(at(object, template+".size")), 1)
	w.idleAt(groups)
	groups, size = max(groups, number(first(at(object, "status.replicas")), 0)), max(size, started(startedOf(object)))
	w.volumes(object, template+".leaderTemplate")
	if _, isMap := first(at(object, template+".leaderTemplate")).(map[string]any); !isMap || size > 1 {
		w.volumes(object, template+".workerTemplate")
	}
	for _, name := range texts(object, template+".volumeClaimTemplates.*.metadata.name") {
		prefix, from := name+"-"+set.GetName(), fmt.Sprintf("%s.volumeClaimTemplates[%s]", template, name)
		w.Series = append(w.Series,
			Series{Prefix: prefix, Spans: []Span{{0, groups}}, Path: from},
			Series{Prefix: prefix, Spans: []Span{{0, groups}, {1, size}}, Path: from},
		)
	}
	whenScaled := first(at(object, template+".persistentVolumeClaimRetentionPolicy.whenScaled"))
	w.DeleteWhenScaled = whenScaled == string(appsv1.DeletePersistentVolumeClaimRetentionPolicyType)
	w.Released = "scale it below the group, or delete it"
	return w
}

// startedOf is a set with nothing but the record of its groups.
func startedOf(object any) *lwsv1.LeaderWorkerSet {
	set := &lwsv1.LeaderWorkerSet{}
	for _, pods := range texts(object, "status.started.*.pods") {
		set.Status.Started = append(set.Status.Started, lwsv1.StartedGroup{Pods: pods})
	}
	return set
}

// number is an integer of an untyped object, or a default if it is nil. A value that is not an
// integer may mean any number, so PVCs of every ordinal are wanted.
func number(value any, otherwise int) int {
	switch value := value.(type) {
	case nil:
		return otherwise
	case int64:
		return int(max(math.MinInt32, min(value, math.MaxInt32)))
	}
	return math.MaxInt32
}

// volumes adds the PVCs that the untyped pod templates at a path name.
func (w *Want) volumes(object any, path string) {
	for _, volume := range at(object, path+".spec.volumes.*") {
		name, _ := first(at(volume, "name")).(string)
		for _, claim := range texts(volume, "persistentVolumeClaim.claimName") {
			w.Named[claim] = fmt.Sprintf("%s.spec.volumes[%s]", path, name)
		}
	}
}

// first is the first of some values, or nil.
func first(values []any) any {
	if len(values) == 0 {
		return nil
	}
	return values[0]
}

// texts are the strings that a path leads to, without empty ones.
func texts(object any, path string) (all []string) {
	for _, value := range at(object, path) {
		if text, ok := value.(string); ok && text != "" {
			all = append(all, text)
		}
	}
	return all
}
