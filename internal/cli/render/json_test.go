package render

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/cli/diff"
)

// paths adds the paths of all fields of a value, elements of lists under the path of the list.
func paths(path string, value any, into map[string]any) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			paths(strings.TrimPrefix(path+"."+key, "."), inner, into)
		}
	case []any:
		for _, inner := range value {
			paths(path, inner, into)
		}
	}
	into[path] = value
}

// Programs read the names of the file: they are never changed or removed.
func TestFieldsForPrograms(t *testing.T) {
	status := with(newSurvey(1, 2), 0, "+-")
	status.Groups[0].Pods.Previous = []*corev1.Pod{terminating("llama-0-1", time.Second, "example.com/hold")}
	tried := Claim(heldClaim())
	tried.Deletion = &Deletion{Outcome: Refused, Message: "in use"}
	history, broken := twoGroups(), newRevision(3, "broken", "image:3")
	history.Set.Set.Spec.LeaderWorkerTemplate.WorkerTemplate = template("image:4")
	broken.Data.Raw = []byte("{")
	text, err := os.ReadFile("testdata/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name, reports := range map[string][]Report{
		"SetStatus":  {Status(status)},
		"SetPlan":    {Plan(planned())},
		"SetHistory": {History(history, append(revisions(), broken))},
		"ClaimWhy":   {Claim(foundClaim()), tried},
	} {
		have := map[string]any{}
		for _, report := range reports {
			raw, err := json.Marshal(report)
			if err != nil {
				t.Fatal(err)
			}
			fields := map[string]any{}
			if err := json.Unmarshal(raw, &fields); err != nil {
				t.Fatal(err)
			}
			paths("", fields, have)
		}
		wanted := 0
		for line := range strings.Lines(string(text)) {
			kind, want, _ := strings.Cut(strings.TrimSpace(line), " ")
			if kind != name {
				continue
			}
			wanted++
			if _, ok := have[want]; !ok {
				t.Errorf("%s: no field %s", name, want)
			}
		}
		if wanted == 0 {
			t.Errorf("%s: the list has no field of it", name)
		}
		if have["kind"] != name || have["apiVersion"] != "cli.lockstep.dev/v1" {
			t.Errorf("%s: got kind %s, apiVersion %s", name, have["kind"], have["apiVersion"])
		}
	}
}

func TestChangesBetweenRevisions(t *testing.T) {
	s := twoGroups()
	s.Set.Set.Spec.LeaderWorkerTemplate.WorkerTemplate = template("image:4")
	h := History(s, revisions())
	const path = "leaderWorkerTemplate.workerTemplate.spec.containers[serve].image"
	want := []diff.Change{{Path: path, From: "image:1", To: "image:2"}, {Path: path, From: "image:2", To: "image:4"}}
	if difference := cmp.Diff(want, slices.Concat(h.Revisions[1].Changes, h.Waiting)); difference != "" {
		t.Errorf("(-want +got)\n%s", difference)
	}
	if h.Revisions[0].Groups != 1 || h.Revisions[1].Groups != 1 || h.Revisions[0].Current || !h.Revisions[1].Current {
		t.Errorf("got %+v", h.Revisions)
	}
}

func TestDifferences(t *testing.T) {
	set := twoGroups().Set.Set
	got, err := Compare(set, revisions(), Comparison{From: 1, To: 2})
	for _, line := range []string{"--- llama revision 1 (older)\n", "+++ llama revision 2 (" + key + ")\n", "\n-      - image: image:1\n+      - image: image:2\n", "\n         name: serve\n"} {
		if err != nil || !strings.Contains(got, line) {
			t.Errorf("got %v, without %q\n%s", err, line, got)
		}
	}
	if same, err := Compare(set, revisions(), Comparison{From: 2, To: Live}); err != nil || same != "" {
		t.Errorf("between revision 2 and the equal spec: got %q, %v", same, err)
	}
}

func TestTheUsualDifference(t *testing.T) {
	for name, tt := range map[string]struct {
		image string
		of    []*appsv1.ControllerRevision
		want  Comparison
		fails bool
	}{
		"the last rollout":          {"image:2", revisions(), Comparison{From: 1, To: 2}, false},
		"a change that waits":       {"image:3", revisions(), Comparison{From: 2, To: Live}, false},
		"no revision":               {"image:1", nil, Comparison{}, true},
		"nothing but the first one": {"image:1", revisions()[:1], Comparison{From: 1, To: Live}, false},
	} {
		set := twoGroups().Set.Set
		set.Spec.LeaderWorkerTemplate.WorkerTemplate = template(tt.image)
		if got, err := UsualComparison(set, tt.of); got != tt.want || (err != nil) != tt.fails {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}
