package restart_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/test/fakeapi"
)

// Each container has the end of its log, or says why it has none: no log is read twice.
func TestADecisionTakesTheEndsOfLogs(t *testing.T) {
	before := restart.Decision{Failure: restart.Failure{Containers: []lwsv1.ContainerFailure{{Name: "a"}, {Name: "b"}, {Name: "c"}}}}
	before.AwaitLogs()
	after := before.WithLogs([]restart.Log{
		{Text: "first\n" + strings.Repeat("x", restart.LogBytes-4) + "\nend\n"},
		{Unread: "no kubelet" + strings.Repeat("!", 1000)},
		{Text: " \n", Unread: ""},
	})
	got := after.Containers
	if len(got[0].Log) != restart.LogBytes || !strings.HasSuffix(got[0].Log, "x\nend") || got[0].LogUnread != "" {
		t.Errorf("a log: %+v", got[0])
	}
	if got[1].Log != "" || len(got[1].LogUnread) != 256 {
		t.Errorf("an unread log: %+v", got[1])
	}
	if got[2].Log != "" || got[2].LogUnread == "" {
		t.Errorf("an empty log: %+v", got[2])
	}
	if !before.AwaitsLogs() || after.AwaitsLogs() {
		t.Errorf("awaits logs: before %t, after %t", before.AwaitsLogs(), after.AwaitsLogs())
	}
}

// The log is that of the incarnation of the container that failed.
func TestEndedFindsTheIncarnationOfAContainer(t *testing.T) {
	at := metav1.NewTime(fakeapi.Epoch)
	end := func(exit int32, at metav1.Time) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exit, FinishedAt: at}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for name, tt := range map[string]struct {
		now, last corev1.ContainerState
		want      [2]bool
	}{
		"it is down":        {end(1, at), end(1, metav1.NewTime(at.Add(-time.Hour))), [2]bool{true, false}},
		"it runs again":     {running, end(1, at), [2]bool{true, true}},
		"it failed again":   {end(1, metav1.NewTime(at.Add(time.Second))), end(1, at), [2]bool{true, true}},
		"another pod":       {running, corev1.ContainerState{}, [2]bool{}},
		"another exit code": {end(2, at), corev1.ContainerState{}, [2]bool{}},
		"no time is known":  {end(1, metav1.Time{}), corev1.ContainerState{}, [2]bool{true, false}},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: tt.now, LastTerminationState: tt.last}}}}
		found, again := restart.Ended(pod, lwsv1.ContainerFailure{Name: "c", ExitCode: 1, At: at})
		if diff := cmp.Diff(tt.want, [2]bool{found, again}); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}
