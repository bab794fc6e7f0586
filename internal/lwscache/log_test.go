package lwscache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A log is read of the pod and container that failed, and its end is added to the decision on the
// leader. One that cannot be read says why.
func TestLogsAreAddedToTheDecision(t *testing.T) {
	e, _, _ := chained(t)
	at := metav1.NewTime(fakeapi.Epoch)
	set := fakeapi.Edit(e.Server, "w", func(set *lwsv1.LeaderWorkerSet) {
		set.Status.RestartsSince, set.Spec.LeaderWorkerTemplate.RestartPolicy = &at, lwsv1.RecreateGroupOnPodRestart
	})
	leader := fakeapi.Find[*corev1.Pod](e.Server, "w-0")
	leader.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", LastTerminationState: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: at},
	}}}
	decision := &restart.Decision{Leader: leader.UID, At: metav1.NewTime(at.Add(time.Minute)), Failure: restart.Failure{Containers: []lwsv1.ContainerFailure{
		{Pod: "w-0", Name: "c", ExitCode: 1, At: at}, {Pod: "w-0", Name: "d", ExitCode: 1, At: at}, {Pod: "w-0-1", Name: "c", ExitCode: 1, At: at},
	}}}
	decision.AwaitLogs()
	leader.Annotations = map[string]string{restart.AnnotationKey: decision.Annotation()}
	leader = fakeapi.Edit(e.Server, "w-0", func(pod *corev1.Pod) { pod.Annotations, pod.Status = leader.Annotations, leader.Status })

	var asked []string
	var fails error
	logs := lwscache.Logs{Lines: 7, Open: func(_ context.Context, pod types.NamespacedName, o *corev1.PodLogOptions) (io.ReadCloser, error) {
		asked = append(asked, fmt.Sprintf("%s %s previous %t lines %d", pod.Name, o.Container, o.Previous, *o.TailLines))
		return io.NopCloser(strings.NewReader(strings.Repeat("x", 9000) + "\nno shard 7\n")), fails
	}}
	e.observer.Logs = &logs
	plan := func() []action.Action {
		_, plan, err := e.observer.LogPlan(t.Context(), key("w-0"))
		if err != nil {
			t.Fatal(err)
		}
		return plan.Actions
	}
	fails = errors.New("no kubelet")
	for _, log := range []string{"", "no shard 7"} {
		actions := plan()
		if len(actions) != 1 || len(asked) != 1 || asked[0] != "w-0 c previous true lines 7" {
			t.Fatalf("plan %v, asked %v", actions, asked)
		}
		written := *leader
		written.Annotations = actions[0].(action.Annotate).Annotations
		got := restart.Of(set, &written).Containers
		if !strings.HasSuffix(got[0].Log, log) || len(got[0].Log) > restart.LogBytes || (log == "") != (got[0].LogUnread == "no kubelet") {
			t.Errorf("%+v", got[0])
		}
		if got[1].LogUnread == "" || got[2].LogUnread == "" {
			t.Errorf("no reason: %+v", got[1:])
		}
		asked, fails = nil, nil
		if log != "" {
			fakeapi.Edit(e.Server, "w-0", func(pod *corev1.Pod) { pod.Annotations = written.Annotations })
		}
	}
	if actions := plan(); len(actions) != 0 || len(asked) != 0 {
		t.Errorf("logs are read again: %v", asked)
	}
}
