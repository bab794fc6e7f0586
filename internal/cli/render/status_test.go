package render_test

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
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const key = "7bdcf6cbd6"

// newSurvey is a set with a leader StatefulSet and no pod.
func newSurvey(replicas, size int32) clilws.Survey {
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "llama", UID: "set", Generation: 1, CreationTimestamp: metav1.NewTime(now.Add(-5 * time.Minute)),
	}}
	set.Spec.Replicas, set.Spec.LeaderWorkerTemplate.Size = &replicas, &size
	set.Status.Conditions = []metav1.Condition{{
		Type: "Progressing", Status: metav1.ConditionTrue, Reason: "GroupsProgressing", Message: "Replicas are progressing",
		LastTransitionTime: metav1.NewTime(now.Add(-90 * time.Second)),
	}}
	s := clilws.Survey{Standing: lws.Standing{Key: key}}
	s.Set.Set = set
	s.Set.StatefulSet.Owned = []*appsv1.StatefulSet{{ObjectMeta: metav1.ObjectMeta{Name: "llama", UID: "leaders"}}}
	return s
}

// with adds a group of pods, the leader first: "+" is ready, "-" is not ready, "?" has no node, and "."
// is missing.
func with(s clilws.Survey, index int, pods string) clilws.Survey {
	name := identity.LeaderName("llama", index)
	g := clilws.Group{}
	g.Set, g.Index, g.LeaderName = s.Set.Set, index, name
	labels := map[string]string{lwsv1.RevisionKey: key}
	g.Leader = newPod(name, rune(pods[0]))
	g.Leader.Labels = labels
	g.Leader.Annotations = map[string]string{lwsv1.SizeAnnotationKey: fmt.Sprint(len(pods))}
	workers := int32(len(pods) - 1)
	g.Workers.Owned = []*appsv1.StatefulSet{{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       appsv1.StatefulSetSpec{Replicas: &workers},
		Status:     appsv1.StatefulSetStatus{AvailableReplicas: int32(strings.Count(pods[1:], "+"))},
	}}
	for i, state := range pods[1:] {
		if state != '.' {
			g.Pods.Owned = append(g.Pods.Owned, newPod(identity.WorkerName("llama", index, i+1), state))
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

// terminating is a pod that was deleted so long ago.
func terminating(name string, ago time.Duration, finalizers ...string) *corev1.Pod {
	pod := newPod(name, '+')
	at := metav1.NewTime(now.Add(-ago))
	pod.DeletionTimestamp, pod.Finalizers = &at, finalizers
	return pod
}

// without adds a group without a leader.
func without(s clilws.Survey, index int) clilws.Survey {
	g := clilws.Group{}
	g.Set, g.Index, g.LeaderName = s.Set.Set, index, identity.LeaderName("llama", index)
	s.Groups = append(s.Groups, g)
	return s
}

func textOf(t *testing.T, s clilws.Survey) string {
	t.Helper()
	var out, lines strings.Builder
	if err := render.Status(s).WriteText(&out, now); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		lines.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return lines.String()
}

func TestStatusAsText(t *testing.T) {
	s := with(with(with(newSurvey(5, 4), 0, "++++"), 1, "+-?."), 2, "++++")
	s.Groups[2].Workers.Owned[0].Status.AvailableReplicas = 2
	s.Standing.Ready, s.Standing.Updated = 1, 3
	want := `llama in namespace ns: 1 of 5 groups ready, 3 up to date, 4 pods each
revision 7bdcf6cbd6, set created 5m ago

CONDITION     STATUS   SINCE   REASON              MESSAGE
Progressing   True     90s     GroupsProgressing   Replicas are progressing

GROUP   READY   REVISION     NODES                                             AGE   RESTARTS   WAITING FOR
0       4/4     7bdcf6cbd6   node-llama-0-1,node-llama-0-2,node-llama-0-3 +1   2m    12         -
1       1/4     7bdcf6cbd6   node-llama-1-1,node-llama-1                       2m    6          1 of 3 workers not created yet: llama-1-3; 1 pod not scheduled: llama-1-2: 0/2 nodes are available; 1 pod not ready: llama-1-1 (CrashLoopBackOff)
2       4/4     7bdcf6cbd6   node-llama-2-1,node-llama-2-2,node-llama-2-3 +1   2m    12         statefulset llama-2 has not reported its workers available yet
3-4     0/4     -            -                                                 -     0          leader llama-3 is not created yet
`
	if diff := cmp.Diff(want, textOf(t, s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatusSays(t *testing.T) {
	exit := int32(137)
	tests := []struct {
		name   string
		survey func() clilws.Survey
		want   []string
	}{
		{"a pause", func() clilws.Survey {
			s := with(newSurvey(1, 1), 0, "+")
			s.Set.Set.Annotations = map[string]string{lwsv1.PausedAnnotationKey: "true"}
			return s
		}, []string{"created 5m ago, rollout paused\n"}},
		{"no operator", func() clilws.Survey {
			s := newSurvey(1_000_000, 8)
			s.Set.Set.Status.Conditions = nil
			return s
		}, []string{"no operator has reconciled this set", "\n0-9999 ", "llama-0 is not created yet", "and 990000 more"}},
		{"a surplus group", func() clilws.Survey { return with(with(newSurvey(1, 2), 0, "++"), 3, "++") }, []string{"3 (surplus)"}},
		{"an old revision", func() clilws.Survey {
			s := with(newSurvey(1, 1), 0, "+")
			s.Standing.Key = "new"
			return s
		}, []string{key + " (old)"}},
		{"failures", func() clilws.Survey {
			s := with(newSurvey(1, 2), 0, "++")
			s.Set.Set.Status.Restarts = []lwsv1.GroupRestarts{{Index: 0, Leader: "llama-0", Count: 2, Failures: []lwsv1.PodFailure{
				{Pod: "llama-0", Reason: "Evicted", Message: "low on memory", At: metav1.NewTime(now.Add(-time.Minute))},
				{Pod: "llama-0-1", Container: "serve", ExitCode: &exit, Reason: "OOMKilled", Message: "loading\nno memory left", Node: "n1", At: metav1.NewTime(now)},
			}}}
			return s
		}, []string{
			"0       llama-0-1    0s ago    2          n1     serve: OOMKilled (exit code 137): loading no memory left\n",
			"0       llama-0      60s ago   2          -      Evicted: low on memory\n",
		}},
		{"objects of a previous incarnation", func() clilws.Survey {
			s := without(newSurvey(1, 2), 0)
			s.Set.StatefulSet.Owned = nil
			s.Set.Leaders.Previous = []*corev1.Pod{terminating("llama-0", 12*time.Second, "example.com/hold")}
			s.Groups[0].Pods.Previous = []*corev1.Pod{terminating("llama-0-1", 3*time.Second)}
			return s
		}, []string{
			"0       0/2     -          -       -     0          leader llama-0 of the previous incarnation is still there\n",
			"pod llama-0              12s       node-llama-0     example.com/hold\n", "pod llama-0-1            3s        node-llama-0-1   -\n",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := textOf(t, tt.survey())
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("got %s\nwant %q", got, want)
				}
			}
		})
	}
}

func TestWantedGroupsWithoutObjectsAreListed(t *testing.T) {
	status := render.Status(without(with(newSurvey(2, 2), 0, "++"), 9))
	if len(status.Groups) != 2 || status.Groups[1].Exists || status.Groups[1].Waiting[0].Reason != render.CodeMissingPods || len(status.Waiting) != 0 {
		t.Errorf("got %+v", status)
	}
}

func TestLateLeaderIsShownWithItsRemedy(t *testing.T) {
	for after, want := range map[time.Duration]bool{time.Minute: false, 5 * time.Minute: true} {
		s := without(newSurvey(1, 1), 0)
		leader := terminating("llama-0", after)
		own := s.Set.StatefulSet.Own()
		leader.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(own, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
		s.Set.Now, s.Set.Leaders.Previous = now, []*corev1.Pod{leader}
		waiting := render.Status(s).Groups[0].Waiting
		if len(waiting) != 1 || waiting[0].Reason != render.CodeLeaving || strings.Contains(waiting[0].Message, "kubectl taint node") != want {
			t.Errorf("%v after its end: got %+v, remedy wanted: %t", after, waiting, want)
		}
	}
}

func TestRefusedPodsAreShownWithTheReason(t *testing.T) {
	s := with(newSurvey(2, 3), 0, "++.")
	s.Groups[0].Workers.Owned[0].UID = "workers"
	event := func(uid types.UID, message string) corev1.Event {
		return corev1.Event{InvolvedObject: corev1.ObjectReference{UID: uid}, Message: message}
	}
	s.Refusals = clilws.Refusals{
		event("workers", "create Pod llama-0-2 in StatefulSet llama-0 failed error: exceeded quota"),
		event("leaders", "create Pod llama-1 in StatefulSet llama failed error: must be no more than 63 characters"),
	}
	status := render.Status(s)
	for want, waiting := range map[string][]render.Wait{"exceeded quota": status.Groups[0].Waiting, "63 characters": status.Groups[1].Waiting} {
		if len(waiting) != 2 || waiting[1].Reason != lws.CodeRefused || !strings.Contains(waiting[1].Message, want) {
			t.Errorf("got %+v, want %q", waiting, want)
		}
	}
}

// Programs read these names: they never change.
func TestStatusAsJSON(t *testing.T) {
	s := with(newSurvey(1, 2), 0, "+-")
	s.Groups[0].Pods.Previous = []*corev1.Pod{terminating("llama-0-1", time.Second, "example.com/hold")}
	raw, err := json.Marshal(render.Status(s))
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
