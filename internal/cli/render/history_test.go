package render_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/lws"
)

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "serve", Image: image}, {Name: "watch", Image: "watcher"},
	}}}
}

func revisions() []*appsv1.ControllerRevision {
	first, second := revision(1, "older", "image:1"), revision(2, key, "image:2")
	second.Annotations = map[string]string{lws.ChangeCauseAnnotationKey: "a better image"}
	return []*appsv1.ControllerRevision{first, second}
}

// twoGroups is a set whose group 0 runs the current revision, and group 1 that
// before it.
func twoGroups() clilws.Survey {
	s := with(with(newSurvey(2, 1), 0, "+"), 1, "+")
	s.Groups[1].Leader.Labels = map[string]string{lwsv1.RevisionKey: "older"}
	s.Set.Set.Spec.LeaderWorkerTemplate = lwsv1.LeaderWorkerTemplate{WorkerTemplate: template("image:2")}
	return s
}

func TestHistoryAsText(t *testing.T) {
	var out strings.Builder
	if err := render.History(twoGroups(), revisions()).WriteText(&out, now); err != nil {
		t.Fatal(err)
	}
	want := `leaderworkerset llama in namespace ns: 2 revisions

REVISION      GROUPS   AGE   CHANGE-CAUSE
1             1        9h    -
2 (current)   1        8h    a better image
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestHistoryForPrograms(t *testing.T) {
	s, broken := twoGroups(), revision(3, "broken", "image:3")
	s.Set.Set.Spec.LeaderWorkerTemplate.WorkerTemplate = template("image:4")
	broken.Data.Raw = []byte("{")
	history := render.History(s, append(revisions(), broken))
	if history.Revisions[2].Unreadable == "" {
		t.Errorf("got %+v, want Unreadable", history.Revisions[2])
	}
	history.Revisions[2].Unreadable = "why"
	raw, err := json.Marshal(history)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"kind":"SetHistory","apiVersion":"cli.lockstep.dev/v1","namespace":"ns","name":"llama",` +
		`"waiting":[{"path":"leaderWorkerTemplate.workerTemplate.spec.containers[serve].image","from":"image:2","to":"image:4"}],"revisions":[` +
		`{"number":1,"key":"older","name":"llama-older","createdAt":"2026-01-01T03:00:00Z","groups":1},` +
		`{"number":2,"key":"7bdcf6cbd6","name":"llama-7bdcf6cbd6","createdAt":"2026-01-01T04:00:00Z","groups":1,"current":true,"cause":"a better image",` +
		`"changes":[{"path":"leaderWorkerTemplate.workerTemplate.spec.containers[serve].image","from":"image:1","to":"image:2"}]},` +
		`{"number":3,"key":"broken","name":"llama-broken","createdAt":"2026-01-01T05:00:00Z","groups":0,"unreadable":"why"}]}`
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestOneRevisionWithItsTemplate(t *testing.T) {
	r, err := render.RevisionOf(twoGroups(), revisions(), 2)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := r.WriteText(&out, now); err != nil {
		t.Fatal(err)
	}
	want := `leaderworkerset llama in namespace ns, revision 2 (7bdcf6cbd6), first rolled out 8h ago, run by 1 group
change cause: a better image

leaderWorkerTemplate:
  workerTemplate:
    metadata: {}
    spec:
      containers:
      - image: image:2
        name: serve
        resources: {}
      - image: watcher
        name: watch
        resources: {}
networkConfig:
  subdomainPolicy: Shared
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := render.RevisionOf(twoGroups(), revisions(), 5); err == nil || err.Error() != `leaderworkerset "llama" has no revision 5; there are: 1, 2` {
		t.Errorf("got %v", err)
	}
}

func TestDifferences(t *testing.T) {
	const between = `--- llama revision 1
+++ llama revision 2
@@ -3,7 +3,7 @@
     metadata: {}
     spec:
       containers:
-      - image: image:1
+      - image: image:2
         name: serve
         resources: {}
       - image: watcher
`
	s := twoGroups()
	got, err := render.Compare(s.Set.Set, revisions(), render.Comparison{From: 1, To: 2})
	if diff := cmp.Diff(between, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	same, err := render.Compare(s.Set.Set, revisions(), render.Comparison{From: 2, To: render.Live})
	if err != nil || same != "" {
		t.Errorf("the spec says what revision 2 says: got %q, %v", same, err)
	}
}

func TestTheUsualDifference(t *testing.T) {
	tests := []struct {
		name  string
		image string
		of    []*appsv1.ControllerRevision
		want  render.Comparison
		says  string
	}{
		{"what was changed last", "image:2", revisions(), render.Comparison{From: 1, To: 2}, ""},
		{"what waits", "image:3", revisions(), render.Comparison{From: 2, To: render.Live}, ""},
		{"nothing yet", "image:1", nil, render.Comparison{}, "has no revision yet"},
		{"nothing but the first", "image:1", revisions()[:1], render.Comparison{From: 1, To: render.Live}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := twoGroups().Set.Set
			set.Spec.LeaderWorkerTemplate.WorkerTemplate = template(tt.image)
			got, err := render.UsualComparison(set, tt.of)
			if got != tt.want || (err != nil) != (tt.says != "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}
