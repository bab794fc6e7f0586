package report

import (
	"fmt"

	"github.com/aymanbagabas/go-udiff"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
)

// Live stands for the set's spec in place of a revision's number.
const Live int64 = 0

// Comparison says which two to compare: numbers of revisions, or Live.
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
	from, err := said(set, revisions, c.From)
	if err != nil {
		return "", err
	}
	to, err := said(set, revisions, c.To)
	if err != nil {
		return "", err
	}
	return udiff.Unified(nameOf(set, c.From), nameOf(set, c.To), from, to), nil
}

// Same says that there is no difference.
func Same(set *lwsv1.LeaderWorkerSet, c Comparison) string {
	return fmt.Sprintf("no difference between %s and %s", nameOf(set, c.From), nameOf(set, c.To))
}

func nameOf(set *lwsv1.LeaderWorkerSet, number int64) string {
	if number == Live {
		return set.Name + " spec"
	}
	return fmt.Sprintf("%s revision %d", set.Name, number)
}

// said returns the content of a revision or of the spec as YAML.
func said(set *lwsv1.LeaderWorkerSet, revisions []*appsv1.ControllerRevision, number int64) (string, error) {
	tree, err := contentOf(set)
	if number != Live {
		i := indexOf(revisions, number)
		if i < 0 {
			return "", NoSuchRevision(set.Name, revisions, number)
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
	for i, r := range revisions {
		if r.Revision == number {
			return i
		}
	}
	return -1
}
