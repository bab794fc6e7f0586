package manifest

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
)

// over is what kubectl apply would make of a live set. What the file does not name stays
// as it is, for it may be somebody else's to say, as the number of groups is an
// autoscaler's; unless the apply before named it.
func (s Set) over(live *lwsv1.LeaderWorkerSet) (*lwsv1.LeaderWorkerSet, error) {
	stored, err := treeOf(live)
	if err != nil {
		return nil, err
	}
	merged := merge(appliedPart(lastApplied(live)), appliedPart(s.said), appliedPart(stored))
	g, err := openGate()
	if err != nil {
		return nil, err
	}
	g.complete(merged)
	var asked lwsv1.LeaderWorkerSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(merged, &asked); err != nil {
		return nil, err
	}
	set := live.DeepCopy()
	set.Labels, set.Annotations, set.Spec = asked.Labels, asked.Annotations, asked.Spec
	admission.Default(set)
	if !equality.Semantic.DeepEqual(set.Spec, live.Spec) {
		set.Generation++
	}
	return set, nil
}

// lastApplied is what kubectl applied before, or nil where it did not, or where nobody can
// read it any more.
func lastApplied(live *lwsv1.LeaderWorkerSet) map[string]any {
	var tree map[string]any
	if json.Unmarshal([]byte(live.Annotations[corev1.LastAppliedConfigAnnotation]), &tree) != nil {
		return nil
	}
	return tree
}

// appliedPart is what an apply changes of a set. It never takes all annotations away:
// kubectl always says one, its own.
func appliedPart(tree map[string]any) map[string]any {
	words := map[string]any{"annotations": map[string]any{}}
	metadata, _ := tree["metadata"].(map[string]any)
	for _, key := range []string{"labels", "annotations"} {
		if said, ok := metadata[key].(map[string]any); ok {
			words[key] = said
		}
	}
	kept := map[string]any{"metadata": words}
	if spec, ok := tree["spec"].(map[string]any); ok {
		kept["spec"] = spec
	}
	return kept
}

// merge is live with all that is said in it, and without what was said last and is not
// any more. Lists are one value: no kind that is not built in has them merged.
func merge(last, said, live map[string]any) map[string]any {
	merged := maps.Clone(live)
	if merged == nil {
		merged = map[string]any{}
	}
	for key := range last {
		if _, still := said[key]; !still {
			delete(merged, key)
		}
	}
	for key, value := range said {
		below, isMap := value.(map[string]any)
		switch {
		case value == nil:
			delete(merged, key)
		case isMap:
			lastBelow, _ := last[key].(map[string]any)
			liveBelow, _ := live[key].(map[string]any)
			merged[key] = merge(lastBelow, below, liveBelow)
		default:
			merged[key] = value
		}
	}
	return merged
}
