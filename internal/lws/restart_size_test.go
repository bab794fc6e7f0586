package lws_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/test/fakeapi"
)

// largeSet is a set of many groups of eight pods, all of which run and are not recorded.
func largeSet(many int, incarnation string) lws.SetSnapshot {
	set := fakeapi.Set("w", int32(many), 8, onRestart)
	since := metav1.NewTime(fakeapi.Epoch)
	set.UID, set.Status.RestartsSince = "set", &since
	world := lws.SetSnapshot{Now: fakeapi.Epoch.Add(time.Hour), Set: set}
	runs := func(pod *corev1.Pod) *corev1.Pod {
		pod.UID = types.UID(pod.Name + incarnation + strings.Repeat("x", 28))
		pod.Status.Phase = corev1.PodRunning
		return pod
	}
	for i := range many {
		leader := runs(fakeapi.Pod(identity.LeaderName("w", i), "w", 0))
		leader.Labels[lwsv1.RevisionKey] = "5f8f8c9d4b"
		g := lws.Group{Index: i, LeaderName: leader.Name, Leader: leader}
		for worker := 1; worker < 8; worker++ {
			g.Pods.Owned = append(g.Pods.Owned, runs(fakeapi.Pod(identity.LeaderName(leader.Name, worker), "w", worker)))
		}
		world.Groups = append(world.Groups, g)
		world.Leaders.Owned = append(world.Leaders.Owned, leader)
	}
	return world
}

// failed has every group be decided to have failed, with as much evidence as there can be.
func failed(t *testing.T, world lws.SetSnapshot) {
	t.Helper()
	exit := int32(137)
	for i := range world.Groups {
		leader := world.Groups[i].Leader
		text, err := json.Marshal(restart.Decision{Leader: leader.UID, Count: 1, At: metav1.NewTime(world.Now), Failure: lwsv1.PodFailure{
			Pod: strings.Repeat("p", 63), Container: strings.Repeat("c", 63), ExitCode: &exit, Reason: "OOMKilled",
			Message: strings.Repeat("\"", 256), Node: strings.Repeat("n", 253), At: metav1.NewTime(world.Now),
		}})
		if err != nil {
			t.Fatal(err)
		}
		leader.Annotations = map[string]string{restart.AnnotationKey: string(text)}
	}
}

func statusOf(t *testing.T, world lws.SetSnapshot) lwsv1.LeaderWorkerSetStatus {
	t.Helper()
	written := of[action.WriteStatus](lws.DecideSet(world))
	if len(written) == 0 {
		return world.Set.Status
	}
	return written[0].Status
}

// An API server stores no object of more than 1.5 MiB. The largest of sets leaves room in
// its status when all of its groups fail at once, again and again.
func TestAStatusOfManyRestartsFitsIntoStorage(t *testing.T) {
	const many, most = 5000, 1200 << 10
	var status lwsv1.LeaderWorkerSetStatus
	for _, incarnation := range []string{"a", "b", "c", "d"} {
		world := largeSet(many, incarnation)
		status.RestartsSince = world.Set.Status.RestartsSince
		world.Set.Status = status
		world.Set.Status = statusOf(t, world)
		failed(t, world)
		status = statusOf(t, world)
		written, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		detailed := 0
		for i, r := range status.Restarts {
			if i > 0 && status.Restarts[i-1].Index >= r.Index {
				t.Fatalf("out of order at %d", i)
			}
			if len(r.Failures) > 0 {
				detailed++
			}
		}
		if len(written) > most || len(status.Restarts) != 2500 || detailed != 64 {
			t.Errorf("%d bytes, %d started, %d restarts, %d with evidence", len(written), len(status.Started), len(status.Restarts), detailed)
		}
		world.Set.Status = status
		if again := of[action.WriteStatus](lws.DecideSet(world)); len(again) > 0 {
			t.Errorf("a status that is full is written again")
		}
	}
}
