package report_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/report"
	"lockstep.dev/lockstep/internal/cli/survey"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const key = "7bdcf6cbd6"

// newSurvey is a set of so many groups of so many pods, of which nothing exists
// but the leader StatefulSet.
func newSurvey(replicas, size int32) survey.Survey {
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "llama", UID: "set", Generation: 1, CreationTimestamp: metav1.NewTime(now.Add(-5 * time.Minute)),
	}}
	set.Spec.Replicas, set.Spec.LeaderWorkerTemplate.Size = &replicas, &size
	set.Status.Conditions = []metav1.Condition{{
		Type: "Progressing", Status: metav1.ConditionTrue, Reason: "GroupsProgressing", Message: "Replicas are progressing",
		LastTransitionTime: metav1.NewTime(now.Add(-90 * time.Second)),
	}}
	s := survey.Survey{Standing: lws.Standing{Key: key}}
	s.Set.Set = set
	s.Set.StatefulSet.Members = []*appsv1.StatefulSet{{ObjectMeta: metav1.ObjectMeta{Name: "llama", UID: "leaders"}}}
	return s
}

// with adds a group whose pods are as described: "+" is ready, "-" runs and is
// not ready, "?" has no node, and "." is not there. The first is the leader.
func with(s survey.Survey, index int, pods string) survey.Survey {
	name := identity.LeaderName("llama", index)
	g := survey.Group{}
	g.Set, g.Index, g.LeaderName = s.Set.Set, index, name
	labels := map[string]string{lwsv1.RevisionKey: key}
	g.Leader = newPod(name, rune(pods[0]))
	g.Leader.Labels = labels
	g.Leader.Annotations = map[string]string{lwsv1.SizeAnnotationKey: fmt.Sprint(len(pods))}
	workers := int32(len(pods) - 1)
	g.Workers.Members = []*appsv1.StatefulSet{{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       appsv1.StatefulSetSpec{Replicas: &workers},
		Status:     appsv1.StatefulSetStatus{AvailableReplicas: int32(strings.Count(pods[1:], "+"))},
	}}
	for i, state := range pods[1:] {
		if state != '.' {
			g.Pods.Members = append(g.Pods.Members, newPod(identity.WorkerName("llama", index, i+1), state))
		}
	}
	s.Groups = append(s.Groups, g)
	return s
}

func newPod(name string, state rune) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-2 * time.Minute))},
		Spec:       corev1.PodSpec{NodeName: "node-" + name + ".example.com"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{RestartCount: 1}, {RestartCount: 2}}},
	}
	switch state {
	case '+':
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	case '-':
		pod.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
	case '?':
		pod.Spec.NodeName, pod.Status.Phase, pod.Status.ContainerStatuses = "", corev1.PodPending, nil
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available"}}
	}
	return pod
}

func ghost(name string, deleted time.Duration) *corev1.Pod {
	pod := newPod(name, '+')
	at := metav1.NewTime(now.Add(-deleted))
	pod.DeletionTimestamp, pod.Finalizers = &at, []string{"example.com/hold"}
	return pod
}

func text(t *testing.T, status *report.SetStatus) string {
	t.Helper()
	var out strings.Builder
	if err := status.WriteText(&out, now); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}

func checkText(t *testing.T, s survey.Survey, want string) {
	t.Helper()
	if diff := cmp.Diff(want, text(t, report.Status(s))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGroupsAreShownWithWhatTheyWaitFor(t *testing.T) {
	s := newSurvey(4, 4)
	s = with(with(with(s, 0, "++++"), 1, "+-?."), 2, "++++")
	s.Groups[2].Workers.Members[0].Status.AvailableReplicas = 2
	s.Standing.Ready, s.Standing.Updated = 1, 3
	checkText(t, s, `
llama in namespace ns: 1 of 4 groups ready, 3 up to date, 4 pods each
revision 7bdcf6cbd6, set created 5m ago

CONDITION     STATUS   SINCE   REASON              MESSAGE
Progressing   True     90s     GroupsProgressing   Replicas are progressing

GROUP   READY   REVISION     NODES                                             AGE   RESTARTS   GHOSTS   WAITING FOR
0       4/4     7bdcf6cbd6   node-llama-0-1,node-llama-0-2,node-llama-0-3 +1   2m    12         -        -
1       1/4     7bdcf6cbd6   node-llama-1-1,node-llama-1                       2m    6          -        1 of 3 workers not created yet: llama-1-3; 1 pod not scheduled: llama-1-2: 0/2 nodes are available; 1 pod not ready: llama-1-1 (CrashLoopBackOff)
2       4/4     7bdcf6cbd6   node-llama-2-1,node-llama-2-2,node-llama-2-3 +1   2m    12         -        statefulset llama-2 has not reported its workers available yet
3       0/4     -            -                                                 -     0          -        leader llama-3 is not created yet
`)
}

func TestAPauseIsShown(t *testing.T) {
	s := with(newSurvey(1, 1), 0, "+")
	s.Set.Set.Annotations = map[string]string{lwsv1.PausedAnnotationKey: "true"}
	if got := text(t, report.Status(s)); !strings.Contains(got, "created 5m ago, rollout paused\n") {
		t.Errorf("got %s", got)
	}
}

// A leader that its own StatefulSet replaces is told of here alone, and with what is to
// be done once it should have ended.
func TestALeaderThatShouldHaveEndedIsShownWithWhatReleasesIt(t *testing.T) {
	for after, want := range map[time.Duration]string{
		time.Minute: "leader llama-0 is on its way out and is made again",
		5 * time.Minute: "leader llama-0 is on its way out and is made again; pod llama-0 goes when node node-llama-0.example.com confirms that it ended; " +
			"if that machine is off for certain: kubectl taint node node-llama-0.example.com node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
	} {
		s := newSurvey(1, 1)
		leader := ghost("llama-0", after)
		leader.Finalizers = nil
		own := s.Set.StatefulSet.Member()
		leader.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(own, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
		s.Set.Now, s.Set.Leaders.Ghosts = now, []*corev1.Pod{leader}
		g := survey.Group{}
		g.Set, g.Index, g.LeaderName = s.Set.Set, 0, "llama-0"
		s.Groups = []survey.Group{g}
		waiting := report.Status(s).Groups[0].Waiting
		if len(waiting) != 1 || waiting[0].Message != want {
			t.Errorf("%v after its end: got %+v, want %q", after, waiting, want)
		}
	}
}

func TestGhostsAreShownAndNotCounted(t *testing.T) {
	s := newSurvey(2, 2)
	s.Set.StatefulSet.Members = nil
	s.Set.Leaders.Ghosts = []*corev1.Pod{ghost("llama-0", 12*time.Second)}
	g := survey.Group{}
	g.Set, g.Index, g.LeaderName = s.Set.Set, 0, "llama-0"
	g.Pods.Ghosts = []*corev1.Pod{ghost("llama-0-1", 3*time.Second)}
	s.Groups = []survey.Group{g}
	s.Plan.Waits = []lws.Wait{{Reason: reasonFor(lws.CodePreviousIncarnation, "waiting for 1 pod of the previous incarnation: llama-0")}}
	s.Set.Set.Status.Conditions[0].Reason = lws.CodePreviousIncarnation
	s.Set.Set.Status.Conditions[0].Message = s.Plan.Waits[0].Sentence
	checkText(t, s, `
llama in namespace ns: 0 of 2 groups ready, 0 up to date, 2 pods each
revision 7bdcf6cbd6, set created 5m ago

CONDITION     STATUS   SINCE   REASON                          MESSAGE
Progressing   True     90s     WaitingForPreviousIncarnation   waiting for 1 pod of the previous incarnation: llama-0

GROUP   READY   REVISION   NODES   AGE   RESTARTS   GHOSTS   WAITING FOR
0       0/2     -          -       -     0          2        leader llama-0 of the previous incarnation is still there
1       0/2     -          -       -     0          -        the set waits for its previous incarnation

GHOST (NOT COUNTED)   DELETED   NODE             HELD BY
pod llama-0           12s ago   node-llama-0     example.com/hold
pod llama-0-1         3s ago    node-llama-0-1   example.com/hold
`)
	if since := report.Status(s).Waiting[0].Since; since == nil || !since.Equal(&s.Set.Set.Status.Conditions[0].LastTransitionTime) {
		t.Errorf("waits since %v, want since the condition says so", since)
	}
}

func TestGroupsThatDoNotExistAreTakenTogether(t *testing.T) {
	s := newSurvey(1_000, 8)
	s.Set.StatefulSet.Members = nil
	s.Set.Set.Status.Conditions = nil
	checkText(t, s, `
llama in namespace ns: 0 of 1000 groups ready, 0 up to date, 8 pods each
revision 7bdcf6cbd6, set created 5m ago

no conditions yet: no operator has seen this set

GROUP   READY   REVISION   NODES   AGE   RESTARTS   GHOSTS   WAITING FOR
0-999   0/8     -          -       -     0          -        leader statefulset llama is not made yet; likewise the other 999
`)
}

func TestAMillionGroupsAreNotListed(t *testing.T) {
	s := with(newSurvey(1_000_000, 1), 500_000, "+")
	status := report.Status(s)
	if len(status.Groups) != 10_001 || status.GroupsOmitted != 1_000_000-10_001 {
		t.Errorf("got %d groups and %d left out", len(status.Groups), status.GroupsOmitted)
	}
}

func TestSurplusGroupsAreShownOnlyIfAnythingIsLeft(t *testing.T) {
	s := with(with(newSurvey(1, 2), 0, "++"), 3, "++")
	nothing := survey.Group{}
	nothing.Set, nothing.Index, nothing.LeaderName = s.Set.Set, 9, "llama-9"
	s.Groups = append(s.Groups, nothing)
	status := report.Status(s)
	if len(status.Groups) != 2 || status.Groups[1].Index != 3 || status.Groups[1].Wanted {
		t.Errorf("got %+v", status.Groups)
	}
	if !strings.Contains(text(t, status), "3 (surplus)") {
		t.Error("a surplus group is not marked")
	}
}

func TestSquattersAndOrphansAreNamed(t *testing.T) {
	s := newSurvey(2, 1)
	yes := true
	squatter := newPod("llama-0", '+')
	squatter.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "other", UID: "x", Controller: &yes}}
	s.Set.Leaders.Squatters = []*corev1.Pod{squatter}
	s.Set.Leaders.Orphans = []*corev1.Pod{newPod("llama-1", '+')}
	groups := report.Status(s).Groups
	want := []report.Wait{
		{Reason: "NameConflict", Message: "pod llama-0 belongs to replicaset other"},
		{Reason: "Orphan", Message: "leader llama-1 has no controller yet: the leader statefulset adopts it"},
	}
	if diff := cmp.Diff(want, []report.Wait{groups[0].Waiting[0], groups[1].Waiting[0]}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The names below are read by programs: they are never changed or taken away.
func TestFieldsOfAStatusForPrograms(t *testing.T) {
	s := with(newSurvey(1, 2), 0, "+-")
	s.Groups[0].Pods.Ghosts = []*corev1.Pod{ghost("llama-0-1", time.Second)}
	raw, err := json.Marshal(report.Status(s))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"kind":"SetStatus","apiVersion":"cli.lockstep.dev/v1","namespace":"ns","name":"llama","uid":"set","generation":1,` +
		`"createdAt":"2026-01-01T11:55:00Z","desired":1,"size":2,"ready":0,"upToDate":0,"revision":"7bdcf6cbd6",` +
		`"conditions":[{"type":"Progressing","status":"True","lastTransitionTime":"2026-01-01T11:58:30Z","reason":"GroupsProgressing","message":"Replicas are progressing"}],` +
		`"due":0,"groups":[{"index":0,"leader":"llama-0","wanted":true,"exists":true,"ready":false,"readyPods":1,"pods":2,` +
		`"revision":"7bdcf6cbd6","upToDate":true,"nodes":["node-llama-0-1.example.com","node-llama-0.example.com"],"createdAt":"2026-01-01T11:58:00Z","restarts":6,` +
		`"waiting":[{"reason":"WaitingForReadyPods","message":"1 pod not ready: llama-0-1 (CrashLoopBackOff)"}],` +
		`"ghosts":[{"kind":"Pod","name":"llama-0-1","uid":"llama-0-1","deletedAt":"2026-01-01T11:59:59Z","node":"node-llama-0-1.example.com","finalizers":["example.com/hold"]}]}]}`
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFailuresAreShown(t *testing.T) {
	exit := int32(137)
	s := with(with(newSurvey(2, 2), 0, "++"), 1, "+-")
	s.Set.Set.Status.Restarts = []lwsv1.GroupRestarts{{
		Index: 1, Leader: "llama-1", Count: 2, FailedAt: metav1.NewTime(now), DueAt: metav1.NewTime(now.Add(10 * time.Second)),
		Failures: []lwsv1.PodFailure{
			{Pod: "llama-1", Reason: "Evicted", Message: "low on memory", At: metav1.NewTime(now.Add(-time.Minute))},
			{Pod: "llama-1-1", Container: "serve", ExitCode: &exit, Reason: "OOMKilled", Message: "loading\nno memory left", Node: "n1", At: metav1.NewTime(now)},
		},
	}}
	status := report.Status(s)
	if f := status.Groups[1].Failed; f == nil || f.Count != 2 || len(f.Pods) != 2 || f.Due == nil || !f.Due.Equal(&s.Set.Set.Status.Restarts[0].DueAt) {
		t.Errorf("got %+v", f)
	}
	if status.Groups[0].Failed != nil {
		t.Errorf("group 0: %+v", status.Groups[0].Failed)
	}
	var text strings.Builder
	if err := status.WriteText(&text, now); err != nil {
		t.Fatal(err)
	}
	want := `
GROUP   FAILED POD        WHEN      IN A ROW   NODE   WHY
1       llama-1-1/serve   0s ago    2          n1     OOMKilled (exit code 137): loading no memory left
        llama-1           60s ago              -      Evicted: low on memory
`
	if !strings.Contains(text.String(), want) {
		t.Errorf("got\n%s", text.String())
	}
	s.Set.Set.Status.Restarts[0].Leader = "before"
	if f := report.Status(s).Groups[1].Failed; f == nil || f.Due != nil {
		t.Errorf("once it is recreated: %+v", f)
	}
}
