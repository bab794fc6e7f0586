package render

import (
	"encoding/json"
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

// Programs read these names: they are never changed or removed.
func TestFieldsForPrograms(t *testing.T) {
	status := with(newSurvey(1, 2), 0, "+-")
	status.Groups[0].Pods.Previous = []*corev1.Pod{terminating("llama-0-1", time.Second, "example.com/hold")}
	tried := Claim(heldClaim())
	tried.Deletion = &Deletion{Outcome: Refused, Message: "in use"}
	history, broken := twoGroups(), newRevision(3, "broken", "image:3")
	history.Set.Set.Spec.LeaderWorkerTemplate.WorkerTemplate = template("image:4")
	broken.Data.Raw = []byte("{")
	const object = "kind namespace name uid "
	for name, tt := range map[string]struct {
		reports []Report
		fields  string
	}{
		"SetStatus": {[]Report{Status(status)}, object + `apiVersion generation createdAt desired size ready upToDate revision conditions.reason due
			groups.index groups.leader groups.wanted groups.exists groups.ready groups.readyPods groups.pods groups.revision groups.upToDate
			groups.nodes groups.createdAt groups.restarts groups.waiting.reason groups.waiting.message groups.ghosts.kind groups.ghosts.name
			groups.ghosts.uid groups.ghosts.deletedAt groups.ghosts.node groups.ghosts.finalizers groups.previous.kind groups.previous.name
			groups.previous.uid groups.previous.deletedAt groups.previous.node groups.previous.finalizers`},
		"SetPlan": {[]Report{Plan(planned())}, object + `apiVersion exists inStep parts.group parts.actions.verb parts.actions.object.kind
			parts.actions.object.namespace parts.actions.object.name parts.actions.object.uid parts.actions.reason parts.actions.message
			parts.actions.preconditions.absent parts.actions.preconditions.uid parts.actions.preconditions.resourceVersion
			parts.actions.preconditions.alive.uid parts.actions.preconditions.gone.uid parts.waits.reason parts.waits.message parts.waits.until`},
		"SetHistory": {[]Report{History(history, append(revisions(), broken))}, `kind apiVersion namespace name waiting.path waiting.from waiting.to
			revisions.number revisions.key revisions.name revisions.createdAt revisions.groups revisions.current revisions.cause
			revisions.changes.path revisions.changes.from revisions.changes.to revisions.unreadable`},
		"ClaimWhy": {[]Report{Claim(foundClaim()), tried}, object + `apiVersion claim
			state since summary mode modeFrom verifiedAt refused release finalizers.key finalizers.owner finalizers.drops holders.name holders.uid
			holders.reason holders.proof holders.node holders.phase holders.since holders.leaving holders.holds holders.why holders.released
			actions.do actions.command actions.frees delete.do delete.command rescue.do rescue.command then volume.name volume.standing
			volume.reclaimPolicy volume.capacity unread.what unread.why unread.mayHold deletion.outcome deletion.message askedBy readAt live`},
	} {
		have := map[string]any{}
		for _, report := range tt.reports {
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
		for want := range strings.FieldsSeq(tt.fields) {
			if _, ok := have[want]; !ok {
				t.Errorf("%s: no field %s", name, want)
			}
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
