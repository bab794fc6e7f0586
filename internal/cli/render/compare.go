package render

import (
	"fmt"
	"maps"
	"slices"

	"github.com/aymanbagabas/go-udiff"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/lws"
)

// Live stands for the set's spec in place of a revision's number.
const Live int64 = 0

// Comparison names the two sides to compare: numbers of revisions, or Live.
type Comparison struct{ From, To int64 }

// UsualComparison is the comparison of a user who names no revision: the change that is not rolled
// out yet, or else the last rollout.
func UsualComparison(set *lwsv1.LeaderWorkerSet, revisions []*appsv1.ControllerRevision) (Comparison, error) {
	if len(revisions) == 0 {
		return Comparison{}, fmt.Errorf("leaderworkerset %q has no revision yet", set.Name)
	}
	latest := revisions[len(revisions)-1]
	if len(revisions) == 1 || !lws.Agrees(set, latest.Data.Raw) {
		return Comparison{From: latest.Revision, To: Live}, nil
	}
	return Comparison{From: revisions[len(revisions)-2].Revision, To: latest.Revision}, nil
}

// Compare returns the difference in the format of diff -u; it is empty if there is none.
func Compare(set *lwsv1.LeaderWorkerSet, revisions []*appsv1.ControllerRevision, c Comparison) (string, error) {
	from, err := yamlOf(set, revisions, c.From)
	if err != nil {
		return "", err
	}
	to, err := yamlOf(set, revisions, c.To)
	if err != nil {
		return "", err
	}
	return udiff.Unified(nameOf(set, c.From), nameOf(set, c.To), from, to), nil
}

// Same returns the sentence that there is no difference.
func Same(set *lwsv1.LeaderWorkerSet, c Comparison) string {
	return fmt.Sprintf("no difference between %s and %s", nameOf(set, c.From), nameOf(set, c.To))
}

func nameOf(set *lwsv1.LeaderWorkerSet, number int64) string {
	if number == Live {
		return set.Name + " spec"
	}
	return fmt.Sprintf("%s revision %d", set.Name, number)
}

// yamlOf returns the content of a revision or of the spec as YAML.
func yamlOf(set *lwsv1.LeaderWorkerSet, revisions []*appsv1.ControllerRevision, number int64) (string, error) {
	tree, err := contentOf(set)
	if number != Live {
		i := indexOf(revisions, number)
		if i < 0 {
			return "", clilws.NoSuchRevision(set.Name, revisions, number)
		}
		tree, err = content(set, revisions[i].Data.Raw)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", nameOf(set, number), err)
	}
	text, err := yaml.Marshal(tree)
	return string(text), err
}

func indexOf(revisions []*appsv1.ControllerRevision, number int64) int {
	return slices.IndexFunc(revisions, func(r *appsv1.ControllerRevision) bool { return r.Revision == number })
}

// content returns the part of the spec that a revision holds.
func content(set *lwsv1.LeaderWorkerSet, data []byte) (map[string]any, error) {
	restored, err := lws.Restore(set, data)
	if err != nil {
		return nil, err
	}
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&restored.Spec)
	if err != nil {
		return nil, fmt.Errorf("encode spec: %w", err)
	}
	maps.DeleteFunc(spec, func(field string, _ any) bool { return field != "leaderWorkerTemplate" && field != "networkConfig" })
	return spec, nil
}

func contentOf(set *lwsv1.LeaderWorkerSet) (map[string]any, error) {
	data, err := lws.RevisionData(set)
	if err != nil {
		return nil, err
	}
	return content(set, data)
}
