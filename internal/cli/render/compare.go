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
	"lockstep.dev/lockstep/internal/lws/revision"
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
	if len(revisions) == 1 || !revision.Agrees(set, latest.Data.Raw) {
		return Comparison{From: latest.Revision, To: Live}, nil
	}
	return Comparison{From: revisions[len(revisions)-2].Revision, To: latest.Revision}, nil
}

// Compare returns the difference in the format of diff -u; it is empty if there is none.
func Compare(set *lwsv1.LeaderWorkerSet, revisions []*appsv1.ControllerRevision, c Comparison) (string, error) {
	var texts []string
	for _, number := range []int64{c.From, c.To} {
		spec, err := contentOf(set, revisions, number)
		if err != nil {
			return "", err
		}
		texts = append(texts, yamlOf(spec))
	}
	return udiff.Unified(nameOf(set, c.From), nameOf(set, c.To), texts[0], texts[1]), nil
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

func yamlOf(spec map[string]any) string {
	text, err := yaml.Marshal(spec)
	if err != nil {
		return err.Error() // it was decoded from JSON
	}
	return string(text)
}

// contentOf returns the content of a revision, or that of the spec.
func contentOf(set *lwsv1.LeaderWorkerSet, revisions []*appsv1.ControllerRevision, number int64) (map[string]any, error) {
	data, err := revision.Data(set)
	if number != Live {
		i := slices.IndexFunc(revisions, func(r *appsv1.ControllerRevision) bool { return r.Revision == number })
		if i < 0 {
			return nil, clilws.NoSuchRevision(set.Name, revisions, number)
		}
		data, err = revisions[i].Data.Raw, nil
	}
	if err != nil {
		return nil, err
	}
	spec, err := content(set, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", nameOf(set, number), err)
	}
	return spec, nil
}

// content returns the part of the spec that a revision holds.
func content(set *lwsv1.LeaderWorkerSet, data []byte) (map[string]any, error) {
	restored, err := revision.Restore(set, data)
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
